"""Users and cities get UUIDs: other companies' systems know them by these. Trips still have none."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

#: Tables and the names of their UUIDs.
NAMES = (("users", "user_uuid"), ("cities", "city_uuid"))


def upgrade() -> None:
    for table, name in NAMES:
        op.add_column(table, sa.Column(name, sa.Uuid, nullable=True))
        # The default first: rows that come from now on have one, and none is left when the others are filled.
        op.alter_column(table, name, server_default=sa.text("gen_random_uuid()"))
        op.execute(f"UPDATE {table} SET {name} = gen_random_uuid() WHERE {name} IS NULL")
        op.alter_column(table, name, nullable=False)
        op.create_index(f"uq_{table}_{name}", table, [name], unique=True)


def downgrade() -> None:
    for table, name in NAMES:
        op.drop_column(table, name)
