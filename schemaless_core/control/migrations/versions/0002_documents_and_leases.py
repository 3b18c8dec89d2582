"""Documents with compare-and-set, and what the workers of triggers agree on: groups, leases, workers, their leader."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.mysql import MEDIUMTEXT

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "document",
        sa.Column("name", sa.String(128), primary_key=True),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("body", sa.Text().with_variant(MEDIUMTEXT(), "mysql", "mariadb"), nullable=False),
    )
    op.create_table(
        "trigger_group",
        sa.Column("name", sa.String(128), primary_key=True),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("start", sa.String(64), nullable=False),
        sa.Column("parked_allowed", sa.Integer, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "trigger_lease",
        sa.Column("group_name", sa.String(128), primary_key=True),
        sa.Column("shard", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("owner", sa.String(128), nullable=True),
        sa.Column("heir", sa.String(128), nullable=True),
        sa.Column("fence", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "trigger_worker",
        sa.Column("worker", sa.String(128), primary_key=True),
        sa.Column("host", sa.String(128), nullable=False),
        sa.Column("pid", sa.Integer, nullable=False),
        sa.Column("group_names", sa.Text, nullable=False),
        sa.Column("counter", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "trigger_leader",
        sa.Column("seat", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("owner", sa.String(128), nullable=True),
        sa.Column("term", sa.BigInteger, nullable=False),
        sa.Column("counter", sa.BigInteger, nullable=False),
    )


def downgrade() -> None:
    for name in ("trigger_leader", "trigger_worker", "trigger_lease", "trigger_group", "document"):
        op.drop_table(name)
