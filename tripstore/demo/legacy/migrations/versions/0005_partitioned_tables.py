"""Fare adjustments, spread over partitions by trip, and events, over partitions by time."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import DOMAIN, ENUM, JSONB

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

PARTITIONS = 4
YEARS = (2013, 2014)


def upgrade() -> None:
    op.execute("CREATE TYPE adjustment_reason AS ENUM ('inefficient_route', 'toll', 'promotion', 'damage', 'goodwill')")
    _create_adjustments()
    _create_events()
    op.add_column("trips", sa.Column("local_date", sa.Date))
    op.add_column("trips", sa.Column("fraud_score", sa.REAL))


def downgrade() -> None:
    for column in ("fraud_score", "local_date"):
        op.drop_column("trips", column)
    op.drop_table("trip_events")
    op.drop_table("fare_adjustments")
    op.execute("DROP TYPE adjustment_reason")


def _create_adjustments() -> None:
    op.create_table(
        "fare_adjustments",
        sa.Column("trip_id", sa.BigInteger, nullable=False),
        sa.Column("n", sa.Integer, nullable=False),
        sa.Column("amount", sa.Numeric(12, 2), nullable=False),
        sa.Column("currency", DOMAIN("currency_code", sa.Text(), create_type=False), nullable=False),
        sa.Column("reason", ENUM(name="adjustment_reason", create_type=False), nullable=False),
        sa.Column("explanation", sa.Text),
        sa.Column("is_approved", sa.Boolean, server_default=sa.false(), nullable=False),
        sa.Column("approved_by", sa.BigInteger),
        sa.Column("effective_on", sa.Date),
        sa.Column("line_items", JSONB),
        sa.Column("proposed_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("trip_id", "n", name="fare_adjustments_pkey"),
        sa.ForeignKeyConstraint(["trip_id"], ["trips.id"], name="fk_fare_adjustments_trip_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["approved_by"], ["users.id"], name="fk_fare_adjustments_approved_by"),
        postgresql_partition_by="HASH (trip_id)",
    )
    for number in range(PARTITIONS):
        op.execute(
            f"CREATE TABLE fare_adjustments_p{number} PARTITION OF fare_adjustments"
            f" FOR VALUES WITH (MODULUS {PARTITIONS}, REMAINDER {number})"
        )


def _create_events() -> None:
    op.create_table(
        "trip_events",
        sa.Column("trip_id", sa.BigInteger, nullable=False),
        sa.Column("happened_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("details", JSONB),
        sa.PrimaryKeyConstraint("trip_id", "happened_at", "kind", name="trip_events_pkey"),
        postgresql_partition_by="RANGE (happened_at)",
    )
    for year in YEARS:
        op.execute(
            f"CREATE TABLE trip_events_{year} PARTITION OF trip_events"
            f" FOR VALUES FROM ('{year}-01-01 00:00:00+00') TO ('{year + 1}-01-01 00:00:00+00')"
        )
    op.execute("CREATE TABLE trip_events_others PARTITION OF trip_events DEFAULT")
