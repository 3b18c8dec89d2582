"""How far the reverse mirror is, said by Postgres itself: a row for each shard, which goes back when Postgres does.

The rows are made when their shards are claimed.
"""

from __future__ import annotations

from alembic import op

revision = "0008"
down_revision = "0007"

_TABLE = """
CREATE TABLE tripstore.applied (
    shard int PRIMARY KEY,
    epoch bigint NOT NULL,
    added_id bigint NOT NULL,
    timeline bigint NOT NULL
) WITH (fillfactor = 50)
"""


def upgrade() -> None:
    op.execute(_TABLE)


def downgrade() -> None:
    op.execute("DROP TABLE tripstore.applied")
