"""Users, who ride or drive, and cities. Trips point to both by integer."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from tripstore.demo.legacy.models.base import Base, CurrencyCode, Moment, UserRole

NEW_UUID = sa.text("gen_random_uuid()")


class User(Base):
    """A rider or a driver."""

    __tablename__ = "users"
    __table_args__ = (
        sa.Index("uq_users_user_uuid", "user_uuid", unique=True),
        sa.Index("uq_users_email", sa.text("lower(email)"), unique=True),
    )

    id: Mapped[int] = mapped_column(sa.BigInteger, primary_key=True)
    user_uuid: Mapped[UUID] = mapped_column(sa.Uuid, server_default=NEW_UUID)
    role: Mapped[str] = mapped_column(UserRole)
    name: Mapped[str] = mapped_column(sa.Text)
    email: Mapped[str] = mapped_column(sa.Text)
    rating: Mapped[Decimal | None] = mapped_column(sa.Numeric(3, 2))
    signed_up_at: Mapped[datetime] = mapped_column(Moment, server_default=sa.func.now())


class City(Base):
    """A place with a currency and a time zone."""

    __tablename__ = "cities"
    __table_args__ = (
        sa.UniqueConstraint("code"),
        sa.Index("uq_cities_city_uuid", "city_uuid", unique=True),
    )

    id: Mapped[int] = mapped_column(sa.Integer, primary_key=True)
    city_uuid: Mapped[UUID] = mapped_column(sa.Uuid, server_default=NEW_UUID)
    code: Mapped[str] = mapped_column(sa.String(8))
    name: Mapped[str] = mapped_column(sa.Text)
    timezone: Mapped[str] = mapped_column(sa.Text)
    currency: Mapped[str] = mapped_column(CurrencyCode)
