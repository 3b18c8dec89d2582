"""Attempts to bill trips, and what riders pay besides the fare."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY, DOMAIN, ENUM, JSONB

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

PAYABLE = "fare_amount + coalesce(tip_amount, 0)"


def upgrade() -> None:
    op.execute("CREATE TYPE billing_result AS ENUM ('captured', 'declined', 'error', 'refunded')")
    op.create_table(
        "billing_attempts",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True), nullable=False),
        sa.Column("trip_id", sa.BigInteger, nullable=False),
        sa.Column("attempt_no", sa.Integer, nullable=False),
        sa.Column("result", ENUM(name="billing_result", create_type=False), nullable=False),
        sa.Column("amount", sa.Numeric(12, 2), nullable=False),
        sa.Column("currency", DOMAIN("currency_code", sa.Text(), create_type=False), nullable=False),
        sa.Column("payment_profile", sa.String(32)),
        sa.Column("processor_response", JSONB),
        sa.Column("error_codes", ARRAY(sa.Text)),
        sa.Column("attempted_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.Column("exported_at", sa.DateTime(timezone=True)),
        sa.PrimaryKeyConstraint("id", name="billing_attempts_pkey"),
        sa.ForeignKeyConstraint(["trip_id"], ["trips.id"], name="fk_billing_attempts_trip_id", ondelete="CASCADE"),
        sa.UniqueConstraint("trip_id", "attempt_no", name="uq_billing_attempts_trip_id_attempt_no"),
    )
    op.create_index(
        "ix_billing_attempts_unexported", "billing_attempts", ["id"], postgresql_where=sa.text("exported_at IS NULL")
    )
    op.add_column("trips", sa.Column("tip_amount", sa.Numeric(12, 2)))
    op.add_column("trips", sa.Column("surge", sa.Numeric(4, 2)))
    op.add_column("trips", sa.Column("payable_amount", sa.Numeric(12, 2), sa.Computed(PAYABLE, persisted=True)))


def downgrade() -> None:
    for column in ("payable_amount", "surge", "tip_amount"):
        op.drop_column("trips", column)
    op.drop_table("billing_attempts")
    op.execute("DROP TYPE billing_result")
