"""Trips: the table that outgrew its Postgres."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, INET, JSON, JSONB
from sqlalchemy.orm import Mapped, mapped_column, relationship

from tripstore.demo.legacy.models.base import Base, CurrencyCode, Moment, Money, TripStatus
from tripstore.demo.legacy.models.people import City, User

if TYPE_CHECKING:
    from tripstore.demo.legacy.models.billing import BillingAttempt
    from tripstore.demo.legacy.models.fares import FareAdjustment
    from tripstore.demo.legacy.models.notes import TripNote


class Trip(Base):
    """A trip from its request on. `updated_at` is set by a trigger, `payable_amount` by Postgres."""

    __tablename__ = "trips"
    __table_args__ = (
        sa.CheckConstraint("fare_amount >= 0", name="fare_amount"),
        sa.CheckConstraint("passengers BETWEEN 1 AND 8", name="passengers"),
        sa.Index("ix_trips_rider_id_request_at", "rider_id", "request_at"),
        sa.Index("ix_trips_driver_id_request_at", "driver_id", "request_at"),
        sa.Index("ix_trips_city_id_request_at", "city_id", "request_at"),
        sa.Index("ix_trips_open", "request_at", postgresql_where=sa.text("dropoff_at IS NULL")),
    )

    id: Mapped[int] = mapped_column(sa.BigInteger, primary_key=True)
    rider_id: Mapped[int] = mapped_column(sa.BigInteger, sa.ForeignKey("users.id"))
    driver_id: Mapped[int | None] = mapped_column(sa.BigInteger, sa.ForeignKey("users.id"))
    city_id: Mapped[int] = mapped_column(sa.Integer, sa.ForeignKey("cities.id"))
    status: Mapped[str] = mapped_column(TripStatus, server_default="requested")
    product: Mapped[str] = mapped_column(sa.String(32), server_default="standard")
    request_at: Mapped[datetime] = mapped_column(Moment, server_default=sa.func.now())
    begin_at: Mapped[datetime | None] = mapped_column(Moment)
    dropoff_at: Mapped[datetime | None] = mapped_column(Moment)
    local_date: Mapped[date | None] = mapped_column(sa.Date)
    currency: Mapped[str | None] = mapped_column(CurrencyCode)
    fare_amount: Mapped[Decimal | None] = mapped_column(Money)
    tip_amount: Mapped[Decimal | None] = mapped_column(Money)
    payable_amount: Mapped[Decimal | None] = mapped_column(
        Money, sa.Computed("fare_amount + coalesce(tip_amount, 0)", persisted=True)
    )
    surge: Mapped[Decimal | None] = mapped_column(sa.Numeric(4, 2))
    distance_km: Mapped[float | None] = mapped_column(sa.Double)
    leg_km: Mapped[list[float] | None] = mapped_column(ARRAY(sa.Double))
    duration_seconds: Mapped[int | None] = mapped_column(sa.Integer)
    passengers: Mapped[int | None] = mapped_column(sa.SmallInteger)
    is_shared: Mapped[bool] = mapped_column(sa.Boolean, server_default=sa.false())
    tags: Mapped[list[str] | None] = mapped_column(ARRAY(sa.Text))
    route: Mapped[object | None] = mapped_column(JSONB(none_as_null=True))
    client: Mapped[object | None] = mapped_column(JSON(none_as_null=True))
    signature: Mapped[bytes | None] = mapped_column(sa.LargeBinary)
    request_ip: Mapped[str | None] = mapped_column(INET)
    fraud_score: Mapped[float | None] = mapped_column(sa.REAL)
    updated_at: Mapped[datetime] = mapped_column(Moment, server_default=sa.func.now())

    rider: Mapped[User] = relationship(foreign_keys=[rider_id])
    driver: Mapped[User | None] = relationship(foreign_keys=[driver_id])
    city: Mapped[City] = relationship()
    # Attempts are never deleted but with their trip, by Postgres: the session keeps its hands off them.
    attempts: Mapped[list[BillingAttempt]] = relationship(
        back_populates="trip", passive_deletes="all", order_by="BillingAttempt.attempt_no"
    )
    notes: Mapped[list[TripNote]] = relationship(
        back_populates="trip", cascade="all, delete-orphan", order_by="TripNote.n"
    )
    adjustments: Mapped[list[FareAdjustment]] = relationship(
        back_populates="trip", cascade="all, delete-orphan", passive_deletes=True, order_by="FareAdjustment.n"
    )
