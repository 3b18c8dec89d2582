"""What would make the diff of a shard cheap: an index on (shard, row key). Proposed only: each costs room."""

from __future__ import annotations

from psycopg2.extensions import connection as Connection  # noqa: N812

from tripstore.backends.postgres.cells.scan import shard_sql
from tripstore.backends.postgres.ddl.ddl import our_name
from tripstore.backends.postgres.ddl.relations import leaves
from tripstore.backends.postgres.layout.layout import Layout, quoted


def diff_indexes(connection: Connection, layout: Layout, shards: int) -> list[str]:
    """The statements, one for each table and lowest partition; the expression is the one that walks ask by."""
    columns = {(column.table, column.uuid) for column in layout.columns.values()}
    return [
        f"CREATE INDEX CONCURRENTLY {quoted(our_name('tripstore', leaf.name.name, 'shard'))} ON {leaf.name.sql} "
        f"(({shard_sql(quoted(uuid), shards)}), {quoted(uuid)})"
        for table, uuid in sorted(columns)
        for leaf in leaves(connection, table)
    ]
