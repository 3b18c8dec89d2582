"""Deleted pairs are found by their values, too: index queries ask for them."""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.execute("CREATE INDEX pair_value ON tripstore.pair (lookup, value)")


def downgrade() -> None:
    op.execute("DROP INDEX tripstore.pair_value")
