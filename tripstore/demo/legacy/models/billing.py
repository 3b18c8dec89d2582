"""Billing attempts: facts. A row is written once, whatever came of the attempt, and never changes."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.orm import Mapped, mapped_column, relationship

from tripstore.demo.legacy.models.base import Base, BillingResult, CurrencyCode, Moment, Money
from tripstore.demo.legacy.models.trips import Trip


class BillingAttempt(Base):
    """One attempt to bill a trip. Only `exported_at` is set later, by what copies attempts to the ledger."""

    __tablename__ = "billing_attempts"
    __table_args__ = (
        sa.UniqueConstraint("trip_id", "attempt_no"),
        sa.Index("ix_billing_attempts_unexported", "id", postgresql_where=sa.text("exported_at IS NULL")),
    )

    id: Mapped[int] = mapped_column(sa.BigInteger, sa.Identity(always=True), primary_key=True)
    trip_id: Mapped[int] = mapped_column(sa.BigInteger, sa.ForeignKey("trips.id", ondelete="CASCADE"))
    attempt_no: Mapped[int] = mapped_column(sa.Integer)
    result: Mapped[str] = mapped_column(BillingResult)
    amount: Mapped[Decimal] = mapped_column(Money)
    currency: Mapped[str] = mapped_column(CurrencyCode)
    payment_profile: Mapped[str | None] = mapped_column(sa.String(32))
    processor_response: Mapped[object | None] = mapped_column(JSONB(none_as_null=True))
    error_codes: Mapped[list[str] | None] = mapped_column(ARRAY(sa.Text))
    attempted_at: Mapped[datetime] = mapped_column(Moment, server_default=sa.func.now())
    exported_at: Mapped[datetime | None] = mapped_column(Moment)

    trip: Mapped[Trip] = relationship(back_populates="attempts")
