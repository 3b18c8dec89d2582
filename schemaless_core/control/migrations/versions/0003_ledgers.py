"""Ledgers: counts by the hour, notes, and which batch of each writer was the last."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "ledger_count",
        sa.Column("ledger", sa.String(64), primary_key=True),
        sa.Column("name", sa.String(190), primary_key=True),
        sa.Column("hour", sa.String(16), primary_key=True),
        sa.Column("total", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "ledger_note",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("ledger", sa.String(64), nullable=False),
        sa.Column("at", sa.String(32), nullable=False),
        sa.Column("body", sa.Text, nullable=False),
    )
    op.create_index("ledger_note_ledger", "ledger_note", ["ledger", "id"])
    op.create_table(
        "ledger_writer",
        sa.Column("writer", sa.String(64), primary_key=True),
        sa.Column("batch", sa.BigInteger, nullable=False),
        sa.Column("at", sa.String(32), nullable=False),
    )


def downgrade() -> None:
    op.drop_index("ledger_note_ledger", "ledger_note")
    for name in ("ledger_writer", "ledger_note", "ledger_count"):
        op.drop_table(name)
