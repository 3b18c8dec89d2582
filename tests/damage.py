"""Damage done to the shards of a datastore behind its back: what no code of ours would ever do."""

from __future__ import annotations

from typing import Any

from schemaless_core import Cell, Datastore
from schemaless_core.deadline import Deadline
from schemaless_core.engine.mysql.node import MySQLNode
from schemaless_core.engine.sqlite.node import SQLiteNode

SECONDS = 20.0


def execute(store: Datastore, shard: int, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    """Run SQL on the server of a shard; `{cell}`, `{state}` and so on stand for its tables, `%s` for values.

    `{of}` is a condition that leaves only the shard's rows, where a table holds those of others, too.
    """
    node = store.clusters[store._places.get(shard, Deadline(SECONDS)).cluster].primary.node
    if isinstance(node, SQLiteNode):
        tables = {"cell": "cell", "state": "shard_state", "purged": "purged", "mended": "mended"}
        tables |= {"offset": "trigger_offset", "call": "trigger_call", "of": f"shard = {shard}"}
        with node._file.write(Deadline(SECONDS)) as connection:
            return connection.execute(statement.format(**tables).replace("%s", "?"), values).fetchall()
    assert isinstance(node, MySQLNode)
    names = node._names
    of = "TRUE" if "{cell}" in statement else f"shard = {shard}"
    tables = {"cell": names.cell(shard), "state": names.shard_state, "purged": names.purged, "mended": names.mended}
    tables |= {"offset": names.trigger_offset, "call": f"{names.meta}.trigger_call", "of": of}

    def run(connection: Any) -> list[tuple[Any, ...]]:
        with connection.cursor() as cursor:
            cursor.execute(statement.format(**tables), values)
            return list(cursor.fetchall())

    return node._sessions.run(run, Deadline(SECONDS))


def spoil(store: Datastore, cell: Cell, body: bytes) -> None:
    """Other bytes under the key of a cell."""
    key = (cell.row_key.bytes, cell.column_name.encode(), cell.ref_key)
    where = "{of} AND row_key = %s AND column_name = %s AND ref_key = %s"
    execute(store, store.shard_of(cell.row_key), f"UPDATE {{cell}} SET body = %s WHERE {where}", body, *key)


def lose(store: Datastore, cell: Cell) -> int:
    """A cell is gone and leaves a hole; the added id that it had."""
    key = (cell.row_key.bytes, cell.column_name.encode(), cell.ref_key)
    where = "{of} AND row_key = %s AND column_name = %s AND ref_key = %s"
    shard = store.shard_of(cell.row_key)
    ((added_id,),) = execute(store, shard, f"SELECT added_id FROM {{cell}} WHERE {where}", *key)
    execute(store, shard, f"DELETE FROM {{cell}} WHERE {where}", *key)
    return int(added_id)
