"""Fare adjustments: what a rider is credited or debited after the trip. Partitioned by hash of the trip."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column, relationship

from tripstore.demo.legacy.models.base import AdjustmentReason, Base, CurrencyCode, Moment, Money
from tripstore.demo.legacy.models.trips import Trip


class FareAdjustment(Base):
    """The nth adjustment of a trip; proposed by any service, approved later."""

    __tablename__ = "fare_adjustments"
    __table_args__ = ({"postgresql_partition_by": "HASH (trip_id)"},)

    trip_id: Mapped[int] = mapped_column(sa.BigInteger, sa.ForeignKey("trips.id", ondelete="CASCADE"), primary_key=True)
    n: Mapped[int] = mapped_column(sa.Integer, primary_key=True, autoincrement=False)
    amount: Mapped[Decimal] = mapped_column(Money)
    currency: Mapped[str] = mapped_column(CurrencyCode)
    reason: Mapped[str] = mapped_column(AdjustmentReason)
    explanation: Mapped[str | None] = mapped_column(sa.Text)
    is_approved: Mapped[bool] = mapped_column(sa.Boolean, server_default=sa.false())
    approved_by: Mapped[int | None] = mapped_column(sa.BigInteger, sa.ForeignKey("users.id"))
    effective_on: Mapped[date | None] = mapped_column(sa.Date)
    line_items: Mapped[object | None] = mapped_column(JSONB(none_as_null=True))
    proposed_at: Mapped[datetime] = mapped_column(Moment, server_default=sa.func.now())

    trip: Mapped[Trip] = relationship(back_populates="adjustments")
