"""Which row had a legacy id: of a deleted one its cell says so."""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.execute("CREATE INDEX cell_legacy_id ON tripstore.cell (body) WHERE column_name = '_LEGACY_ID'")


def downgrade() -> None:
    op.execute("DROP INDEX tripstore.cell_legacy_id")
