"""Our own tables in the company's database, all in one schema: metadata for alembic."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql as pg

from tripstore.backends.postgres.names import SCHEMA

metadata = sa.MetaData(schema=SCHEMA)

#: Every layout that capture ever wrote rows by; a change carries its number.
layout = sa.Table(
    "layout",
    metadata,
    sa.Column("number", sa.Integer, sa.Identity(), primary_key=True),
    sa.Column("digest", sa.Text, nullable=False, unique=True),
    sa.Column("document", sa.Text, nullable=False),
    sa.Column("installed_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
)


def _change_columns() -> list[sa.Column[object]]:
    return [
        sa.Column("row_key", pg.UUID, nullable=False),
        sa.Column("column_name", sa.Text, nullable=False),
        sa.Column("ref_key", sa.BigInteger, nullable=False),
        sa.Column("id", sa.BigInteger, nullable=False),
        sa.Column("xid", sa.Text().with_variant(_XID8(), "postgresql"), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("layout", sa.Integer),  # NULL: `row` is the canonical body itself
        sa.Column("row", sa.Text),  # NULL: a tombstone
        sa.Column("previous", sa.BigInteger),  # the ref key that this change replaced; NULL: none
        sa.Column("origin", sa.Text),
        sa.Column("application", sa.Text),  # who wrote: for `audit db`
        sa.Column("role", sa.Text),
    ]


class _XID8(sa.types.UserDefinedType[str]):
    cache_ok = True

    def get_col_spec(self, **_options: object) -> str:
        return "xid8"


#: Changes that no relay has delivered yet. The primary key is I2: one change per key.
queue = sa.Table(
    "queue",
    metadata,
    *_change_columns(),
    sa.Column("claimed_by", sa.Text),
    sa.Column("claimed_until", sa.DateTime(timezone=True)),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("parked", sa.Text),  # set aside, and why; NULL: to be delivered
    sa.Column("because", sa.Text),
    sa.Column("epoch", sa.BigInteger),  # of the authority, as the gate said when the change was made
    sa.PrimaryKeyConstraint("row_key", "column_name", "ref_key"),
    sa.Index("queue_id", "id"),
)
#: Delivered changes, partitioned by day.
log = sa.Table(
    "log",
    metadata,
    *_change_columns(),
    sa.Column("delivered_at", sa.DateTime(timezone=True)),
    sa.Column("epoch", sa.BigInteger),
)
#: The ref key of every deleted row's tombstone, for ever. `n` is 0 unless child rows change.
tomb = sa.Table(
    "tomb",
    metadata,
    sa.Column("row_key", pg.UUID, primary_key=True),
    sa.Column("column_name", sa.Text, primary_key=True),
    sa.Column("n", sa.BigInteger, primary_key=True),
    sa.Column("ref_key", sa.BigInteger, nullable=False),
)
#: Rows whose deletion is ignored, that were truncated, or that moved to another partition: where a next row of theirs
#: starts. No tombstone stands there.
#: Of facts n = 0 says so for all of them; one whose deletion is ignored stands under n = -1 - its number, too.
kept = sa.Table(
    "kept",
    metadata,
    sa.Column("row_key", pg.UUID, primary_key=True),
    sa.Column("column_name", sa.Text, primary_key=True),
    sa.Column("n", sa.BigInteger, primary_key=True),
    sa.Column("ref_key", sa.BigInteger, nullable=False),
)
#: Looked-up pairs that were deleted; changes that are not delivered yet may point to them.
pair = sa.Table(
    "pair",
    metadata,
    sa.Column("lookup", sa.Text, primary_key=True),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
    sa.Index("pair_value", "lookup", "value"),
)
#: Cells that the company's tables cannot hold: free columns, children before their parent, history put late.
cell = sa.Table(
    "cell",
    metadata,
    sa.Column("row_key", pg.UUID, primary_key=True),
    sa.Column("column_name", sa.Text, primary_key=True),
    sa.Column("ref_key", sa.BigInteger, primary_key=True),
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
    sa.Index("cell_column", "column_name", "row_key", "ref_key"),
    sa.Index("cell_legacy_id", "body", postgresql_where=sa.text("column_name = '_LEGACY_ID'")),
)
#: Dense ids of the emulated shard log, given when a reader asks.
numbered = sa.Table(
    "numbered",
    metadata,
    sa.Column("shard", sa.Integer, primary_key=True),
    sa.Column("added_id", sa.BigInteger, primary_key=True),
    sa.Column("row_key", pg.UUID, nullable=False),
    sa.Column("column_name", sa.Text, nullable=False),
    sa.Column("ref_key", sa.BigInteger, nullable=False),
    sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
    sa.UniqueConstraint("row_key", "column_name", "ref_key"),
)
#: One row: from when nothing is missed, by which layout, and what broke it.
capture = sa.Table(
    "capture",
    metadata,
    sa.Column("since", sa.DateTime(timezone=True)),
    sa.Column("layout", sa.Integer),
    sa.Column("broken", sa.Text),
)


def _authority_columns() -> list[sa.Column[object]]:
    return [
        sa.Column("backend", sa.Text, nullable=False),
        sa.Column("target", sa.Text),  # where a hand-over leads; NULL: the backend is open
        sa.Column("switch_id", sa.Text, nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.Column("who", sa.Text, nullable=False),
        sa.Column("timeline", sa.BigInteger),  # of the Postgres that gave it; NULL: it is not compared
    ]


#: Up to which cell of each shard Postgres has all of them, parked ones aside: what the reverse mirror has applied.
applied = sa.Table(
    "applied",
    metadata,
    sa.Column("shard", sa.Integer, primary_key=True),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("added_id", sa.BigInteger, nullable=False),
    sa.Column("timeline", sa.BigInteger, nullable=False),  # of the Postgres on which it was moved last
)
#: The one row that decides which backend is the authority.
authority = sa.Table("authority", metadata, sa.Column("epoch", sa.BigInteger, nullable=False), *_authority_columns())
#: What it was, at every epoch.
authority_history = sa.Table(
    "authority_history", metadata, sa.Column("epoch", sa.BigInteger, primary_key=True), *_authority_columns()
)
