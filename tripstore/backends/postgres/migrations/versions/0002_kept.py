"""Where rows start whose deletion was ignored, and looked-up pairs that were deleted."""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"

_TABLES = """
CREATE TABLE tripstore.kept (
    row_key uuid NOT NULL,
    column_name text COLLATE "C" NOT NULL,
    n bigint NOT NULL,
    ref_key bigint NOT NULL,
    PRIMARY KEY (row_key, column_name, n)
);
CREATE TABLE tripstore.pair (
    lookup text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    value text COLLATE "C" NOT NULL,
    PRIMARY KEY (lookup, key)
);
"""


def upgrade() -> None:
    op.execute(_TABLES)


def downgrade() -> None:
    op.execute("DROP TABLE tripstore.kept, tripstore.pair")
