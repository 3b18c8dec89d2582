"""Jobs in parts: which worker holds which, how far each is, its counts and findings, and what workers report."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.mysql import MEDIUMTEXT

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_LONG = sa.Text().with_variant(MEDIUMTEXT(), "mysql", "mariadb")


def upgrade() -> None:
    op.create_table(
        "job",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("id", sa.String(64), nullable=False, unique=True),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("spec", _LONG, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("is_detached", sa.Boolean, nullable=False),
        sa.Column("begun_ms", sa.BigInteger, nullable=False),
        sa.Column("ended_ms", sa.BigInteger, nullable=True),
        sa.Column("who", sa.String(128), nullable=False),
        sa.Column("host", sa.String(128), nullable=False),
        sa.Column("why", sa.Text, nullable=False),
        sa.Column("note", sa.Integer, nullable=True),
    )
    op.create_table(
        "job_part",
        sa.Column("job", sa.String(64), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("bounds", _LONG, nullable=False),
        sa.Column("checkpoint", _LONG, nullable=False),
        sa.Column("fence", sa.BigInteger, nullable=False),
        sa.Column("worker", sa.String(128), nullable=True),
        sa.Column("until_ms", sa.BigInteger, nullable=False),
        sa.Column("is_done", sa.Boolean, nullable=False),
        sa.Column("saved_ms", sa.BigInteger, nullable=True),
    )
    op.create_table(
        "job_count",
        sa.Column("job", sa.String(64), primary_key=True),
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("total", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "job_finding",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("job", sa.String(64), nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("is_open", sa.Boolean, nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("row_key", sa.String(36), nullable=True),
        sa.Column("column_name", sa.String(64), nullable=True),
        sa.Column("ref_key", sa.BigInteger, nullable=True),
        sa.Column("body", _LONG, nullable=False),
    )
    op.create_index("job_finding_job", "job_finding", ["job", "is_open", "id"])
    op.create_table(
        "job_worker",
        sa.Column("job", sa.String(64), primary_key=True),
        sa.Column("worker", sa.String(128), primary_key=True),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
    )


def downgrade() -> None:
    op.drop_index("job_finding_job", "job_finding")
    for name in ("job_worker", "job_finding", "job_count", "job_part", "job"):
        op.drop_table(name)
