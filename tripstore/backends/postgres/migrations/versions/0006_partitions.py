"""Which partitions capture knows, by oid; and the breaches: when rows may have come, gone or changed unseen."""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"

_TABLES = """
CREATE TABLE tripstore.partition (
    oid oid PRIMARY KEY,
    root oid NOT NULL,
    name text NOT NULL,
    clones oid[] NOT NULL,
    filenode oid
);
CREATE TABLE tripstore.breach (
    number int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    what text NOT NULL
);
"""


def upgrade() -> None:
    op.execute(_TABLES)


def downgrade() -> None:
    op.execute("DROP TABLE tripstore.partition, tripstore.breach")
