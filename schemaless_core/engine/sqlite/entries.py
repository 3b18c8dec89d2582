"""Index versions on SQLite: one table per version, with the shard as its first column."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from schemaless_core.cell.answers import Scalar
from schemaless_core.engine import index_sql
from schemaless_core.engine.base import EntryQuery, EntryWrite, IndexTable, StoredEntry
from schemaless_core.engine.sqlite.natives import COLUMN_TYPES, DIALECT
from schemaless_core.errors import IndexMissing

CREATE = """\
CREATE TABLE IF NOT EXISTS {table} (shard INTEGER NOT NULL, {columns}, PRIMARY KEY (shard, {shard_field}, row_key))
 WITHOUT ROWID"""
COLUMNS = "PRAGMA table_info({table})"
DROP = "DROP TABLE IF EXISTS {table}"
TABLES = "SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name = ?"
SHARDS = "SELECT shard FROM shard_state"
EMPTY = "DELETE FROM {table} WHERE shard = ?"
UPSERT = """\
INSERT INTO {table} (shard, {columns}) VALUES ({places})
 ON CONFLICT (shard, {shard_field}, row_key) DO UPDATE SET {assignments}"""
FIND = "SELECT {columns} FROM {table} WHERE shard = ? AND {conditions} ORDER BY {order} LIMIT ?"
FIND_AT = "SELECT {columns} FROM {table} WHERE shard = ? AND {keys}"
SCAN = "SELECT {columns} FROM {table} WHERE shard = ? AND {after} ORDER BY {shard_field}, row_key LIMIT ?"
REMOVE = "DELETE FROM {table} WHERE shard = ? AND ({unchanged})"


def create_index(connection: sqlite3.Connection, node: str, table: IndexTable) -> None:
    """Create the table of all shards of the file; refuse one that was there with other columns."""
    connection.execute(create_statement(table))
    check_columns(connection, node, table)


def create_statement(table: IndexTable) -> str:
    types = _types(table)
    shard_field = index_sql.field_columns(table)[0]
    required = {shard_field, "row_key", "ref_0", "dead"}
    columns = [f"{column} {kind}{' NOT NULL' if column in required else ''}" for column, kind in types.items()]
    return CREATE.format(table=table_of(table.name), columns=", ".join(columns), shard_field=shard_field)


def _types(table: IndexTable) -> dict[str, str]:
    fields = {
        column: COLUMN_TYPES[field.kind]
        for column, field in zip(index_sql.field_columns(table), table.fields, strict=True)
    }
    types = fields | {"row_key": "BLOB"}
    return {column: types.get(column, "INTEGER") for column in index_sql.columns(table)}


def check_columns(connection: sqlite3.Connection, node: str, table: IndexTable) -> None:
    wanted = {"shard": "INTEGER"} | _types(table)
    told = connection.execute(COLUMNS.format(table=table_of(table.name)))
    if {name: kind for _number, name, kind, *_rest in told} != wanted:
        raise index_sql.other_columns(node, table, table_of(table.name))


def drop_index(connection: sqlite3.Connection, table_name: str, shards: Sequence[int]) -> None:
    """Remove the entries of some shards; the table goes with the last of the file's shards."""
    if connection.execute(TABLES, (table_of(table_name),)).fetchone() == (0,):
        return
    if {shard for (shard,) in connection.execute(SHARDS)} <= set(shards):
        connection.execute(DROP.format(table=table_of(table_name)))
    else:
        connection.executemany(EMPTY.format(table=table_of(table_name)), [(shard,) for shard in shards])


def put_entries(connection: sqlite3.Connection, table: IndexTable, entries: Mapping[int, Sequence[EntryWrite]]) -> None:
    columns = index_sql.columns(table)
    statement = UPSERT.format(
        table=table_of(table.name),
        columns=", ".join(columns),
        places=", ".join("?" * (len(columns) + 1)),
        shard_field=columns[0],
        assignments=index_sql.assignments(table, incoming=lambda column: f"excluded.{column}"),
    )
    rows = ((shard, *index_sql.row_of(table, entry, DIALECT)) for shard in entries for entry in entries[shard])
    connection.executemany(statement, rows)


def find_entries(connection: sqlite3.Connection, table: IndexTable, shard: int, query: EntryQuery) -> list[StoredEntry]:
    conditions = index_sql.conditions(table, query, DIALECT)
    statement = FIND.format(
        columns=", ".join(index_sql.columns(table)),
        table=table_of(table.name),
        conditions=conditions.text,
        order=index_sql.order(table, query),
    )
    found = connection.execute(statement, (shard, *conditions.values, query.limit))
    return [index_sql.entry_of(table, row, DIALECT) for row in found]


def find_entries_at(
    connection: sqlite3.Connection, table: IndexTable, shard: int, keys: Sequence[tuple[Scalar, bytes]]
) -> list[StoredEntry]:
    columns = ", ".join(index_sql.columns(table))
    found: list[StoredEntry] = []
    for key in keys:
        at = index_sql.at_keys(table, [key], DIALECT)
        statement = FIND_AT.format(columns=columns, table=table_of(table.name), keys=at.text)
        stored = connection.execute(statement, (shard, *at.values))
        found += [index_sql.entry_of(table, row, DIALECT) for row in stored]
    return found


def find_entries_of(
    connection: sqlite3.Connection, table: IndexTable, shard: int, row_keys: Sequence[bytes]
) -> list[StoredEntry]:
    columns = ", ".join(index_sql.columns(table))
    statement = FIND_AT.format(columns=columns, table=table_of(table.name), keys="row_key = ?")
    found = (row for row_key in row_keys for row in connection.execute(statement, (shard, row_key)))
    return [index_sql.entry_of(table, row, DIALECT) for row in found]


def scan_entries(
    connection: sqlite3.Connection, table: IndexTable, shard: int, after: tuple[Scalar, bytes] | None, limit: int
) -> list[StoredEntry]:
    place = index_sql.after_key(table, after, DIALECT)
    statement = SCAN.format(
        columns=", ".join(index_sql.columns(table)),
        table=table_of(table.name),
        after=place.text,
        shard_field=index_sql.field_columns(table)[0],
    )
    found = connection.execute(statement, (shard, *place.values, limit))
    return [index_sql.entry_of(table, row, DIALECT) for row in found]


def remove_entries(
    connection: sqlite3.Connection, table: IndexTable, shard: int, entries: Sequence[StoredEntry]
) -> int:
    removed = 0
    for entry in entries:
        unchanged = index_sql.unchanged(table, [entry], DIALECT, "IS")
        statement = REMOVE.format(table=table_of(table.name), unchanged=unchanged.text)
        removed += connection.execute(statement, (shard, *unchanged.values)).rowcount
    return removed


def table_of(table_name: str) -> str:
    """SQLite keeps names that begin with its own to itself."""
    return f"index_{index_sql.checked_name(table_name)}"


@contextmanager
def of_index(node: str, table_name: str) -> Iterator[None]:
    """What SQLite says of a table that is not there is said of the index version."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if "no such table: index_" not in str(error):
            raise
        raise IndexMissing(node, table_name) from error
