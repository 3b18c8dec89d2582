"""How many rows the company's tables have: asked of Postgres itself, in the snapshot in which they are compared.

A plain `count(*)` of each table, which knows nothing of what a comparison leaves out. Both look at one moment, so
their numbers are the same however many writers there are.
"""

from __future__ import annotations

from collections.abc import Mapping

from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from tripstore.backends.postgres.cells.read.scan import shard_sql
from tripstore.backends.postgres.cells.rows import ColumnRows
from tripstore.backends.postgres.cells.sums.turns import Turns, count_by_turns


def rows_there(
    connection: Connection,
    tables: Mapping[str, ColumnRows],
    shards: range,
    shards_total: int,
    turns: Turns | None = None,
) -> dict[str, int]:
    """The rows of each table, by column. A row without a row key is of no shard, and counts with the first."""
    found = {}
    with connection.cursor() as cursor:
        for name, rows in tables.items():
            key = f"r.{rows.uuid}"
            where = f"{shard_sql(key, shards_total)} BETWEEN {shards.start} AND {shards.stop - 1}"
            if shards.start == 0:
                where = "true" if len(shards) == shards_total else f"{key} IS NULL OR {where}"
            there = f"FROM {rows.table} AS r WHERE {where}"
            if turns is not None:
                found[name] = count_by_turns(connection, f"SELECT {there}", turns)
                continue
            cursor.execute(f"SELECT pg_catalog.count(*) {there}")
            ((found[name],),) = cursor.fetchall()
    return found
