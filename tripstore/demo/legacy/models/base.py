"""The base of the models, and the types that the database has of its own: enums and a domain."""

from __future__ import annotations

from typing import ClassVar

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import DOMAIN, ENUM
from sqlalchemy.orm import DeclarativeBase

CONVENTION = {
    "pk": "%(table_name)s_pkey",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
}

USER_ROLES = ("rider", "driver")
TRIP_STATUSES = ("requested", "accepted", "in_progress", "completed", "cancelled")
BILLING_RESULTS = ("captured", "declined", "error", "refunded")
ADJUSTMENT_REASONS = ("inefficient_route", "toll", "promotion", "damage", "goodwill")
NOTE_KINDS = ("rider", "driver", "support")

# The revisions create the types; a table that is created must not try to.
UserRole = ENUM(*USER_ROLES, name="user_role", create_type=False)
TripStatus = ENUM(*TRIP_STATUSES, name="trip_status", create_type=False)
BillingResult = ENUM(*BILLING_RESULTS, name="billing_result", create_type=False)
AdjustmentReason = ENUM(*ADJUSTMENT_REASONS, name="adjustment_reason", create_type=False)
CurrencyCode = DOMAIN("currency_code", sa.Text(), check="VALUE ~ '^[A-Z]{3}$'", create_type=False)

Money = sa.Numeric(12, 2)
Moment = sa.DateTime(timezone=True)


class Base(DeclarativeBase):
    """Base of the models."""

    metadata: ClassVar[sa.MetaData] = sa.MetaData(naming_convention=CONVENTION)
    # Two services may delete a row at once; the second finds it gone, as it wanted.
    __mapper_args__: ClassVar[dict[str, bool]] = {"confirm_deleted_rows": False}  # type: ignore[misc]  # SQLAlchemy declares it for instances, and reads it of the class
