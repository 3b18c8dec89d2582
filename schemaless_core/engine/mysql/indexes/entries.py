"""The entries of index versions: upserts that only move forward, queries, scans, repair.

Writes take no counter row, as they must not wait for puts: the shards' states are read behind them. A caller that finds
another epoch there than its own repeats the call at the new place. Every write may be repeated. A few shards share a
transaction, because a commit costs the disk once; the server runs each packet to its end whatever becomes of the
client. All writers take shards and keys in ascending order, so that they rarely deadlock; a deadlocked packet is sent
again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from pymysql import err

from schemaless_core.cell.answers import Scalar
from schemaless_core.cell.standing import ShardState
from schemaless_core.deadline import Deadline
from schemaless_core.engine import index_sql
from schemaless_core.engine.base import (
    BYTES_PER_BATCH,
    EntryQuery,
    EntrySighting,
    EntryWrite,
    IndexTable,
    StoredEntry,
)
from schemaless_core.engine.mysql.indexes.natives import DIALECT
from schemaless_core.engine.mysql.names import Names
from schemaless_core.engine.mysql.reads import heads_from, heads_statement
from schemaless_core.engine.mysql.wire.connection import DeadlineConnection, bound, literal
from schemaless_core.engine.mysql.wire.transactions import send, transact
from schemaless_core.engine.mysql.wire.translation import is_missing
from schemaless_core.errors import IndexMissing, missing_shard
from schemaless_core.failpoints import reach

W = TypeVar("W")

UPSERT = "INSERT INTO {table} ({columns}) VALUES ROWS ON DUPLICATE KEY UPDATE {assignments}"
FIND = "SELECT {columns} FROM {table} WHERE {conditions} ORDER BY {order} LIMIT %s"
FIND_AT = "SELECT {columns} FROM {table} WHERE {keys}"
SCAN = "SELECT {columns} FROM {table} WHERE {after} ORDER BY {shard_field}, row_key LIMIT %s"
REMOVE = "DELETE FROM {table} WHERE {unchanged}"

#: Shards whose entries one transaction writes, and so locks while its commit is under way.
SHARDS_PER_TRANSACTION = 16
ROWS_PER_STATEMENT = 500
#: A transaction is one packet, and the doctor asks servers to take twice as much as a batch of cells.
BYTES_PER_STATEMENT = BYTES_PER_BATCH // SHARDS_PER_TRANSACTION
ENTRIES_PER_REMOVAL = 200
#: Keys in one SELECT.
ENTRIES_PER_STATEMENT = 200


def put_entries(
    connection: DeadlineConnection,
    names: Names,
    table: IndexTable,
    entries: Mapping[int, Sequence[EntryWrite]],
    deadline: Deadline,
) -> dict[int, ShardState]:
    """Write entries of many shards; of each shard what it said of itself no earlier than that."""
    if not entries:
        return {}
    statements = [
        upsert for shard in sorted(entries) for upsert in _upserts(connection, names, table, shard, entries[shard])
    ]
    *others, last = _fitting(statements, connection.packet_bytes_max / 2) or [[]]
    reach("entries.before_send")
    with _of_index(connection, table.name):
        for group in others:
            transact(connection, group, deadline)
        seen = transact(connection, last, deadline, heads_statement(names, entries.keys()).encode())
    reach("entries.answered")
    return _states(seen.rows, entries)


def _fitting(statements: Sequence[bytes], bytes_max: float) -> list[list[bytes]]:
    """Statements of one transaction each, as the server takes them in one packet."""
    groups: list[list[bytes]] = []
    size = 0
    for statement in statements:
        size += len(statement)
        if not groups or len(groups[-1]) == SHARDS_PER_TRANSACTION or size > bytes_max:
            groups.append([])
            size = len(statement)
        groups[-1].append(statement)
    return groups


def find_entries(
    connection: DeadlineConnection, names: Names, table: IndexTable, shard: int, query: EntryQuery
) -> tuple[ShardState, list[StoredEntry]]:
    """Return live entries of one shard value, in the query's order."""
    return _read(connection, names, table, shard, _find(connection, names, table, shard, query))


def find_entries_at(
    connection: DeadlineConnection, names: Names, table: IndexTable, keys: Mapping[int, Sequence[tuple[Scalar, bytes]]]
) -> dict[int, EntrySighting]:
    """Return what stands under these keys, dead or alive, of many shards in one packet."""
    return _read_many(connection, names, table, keys, _at)


def find_first_entries(
    connection: DeadlineConnection, names: Names, table: IndexTable, values: Mapping[int, Sequence[Scalar]]
) -> dict[int, EntrySighting]:
    """Return the first live entry of each of these shard values, of many shards in one packet."""
    return _read_many(connection, names, table, values, _firsts)


def find_entries_of(
    connection: DeadlineConnection, names: Names, table: IndexTable, row_keys: Mapping[int, Sequence[bytes]]
) -> dict[int, EntrySighting]:
    """Return all entries of these rows, of many shards in one packet: each reads the whole table of a shard."""
    return _read_many(connection, names, table, row_keys, _of_rows)


def _read_many(
    connection: DeadlineConnection,
    names: Names,
    table: IndexTable,
    wanted: Mapping[int, Sequence[W]],
    select: Callable[[DeadlineConnection, Names, IndexTable, int, Sequence[W]], bytes],
) -> dict[int, EntrySighting]:
    statements = [
        (shard, select(connection, names, table, shard, some[first : first + ENTRIES_PER_STATEMENT]))
        for shard, some in wanted.items()
        for first in range(0, len(some), ENTRIES_PER_STATEMENT)
    ]
    if not statements:
        return {}
    entries: dict[int, list[StoredEntry]] = {shard: [] for shard, _statement in statements}
    look = heads_statement(names, entries.keys()).encode()
    packet = b"; ".join([*(statement for _shard, statement in statements), look])
    with _of_index(connection, table.name), send(connection, packet) as cursor:
        for shard, _statement in statements:
            entries[shard] += [index_sql.entry_of(table, row, DIALECT) for row in cursor.fetchall()]
            cursor.nextset()
        states = _states(cursor.fetchall(), entries)
    return {shard: EntrySighting(states[shard], found) for shard, found in entries.items()}


def scan_entries(
    connection: DeadlineConnection,
    names: Names,
    table: IndexTable,
    shard: int,
    after: tuple[Scalar, bytes] | None,
    limit: int,
) -> tuple[ShardState, list[StoredEntry]]:
    """Return all entries of a shard in key order, dead ones included."""
    place = index_sql.after_key(table, after, DIALECT)
    statement = SCAN.format(
        columns=", ".join(index_sql.columns(table)),
        table=names.index(shard, table.name),
        after=place.text,
        shard_field=index_sql.field_columns(table)[0],
    )
    return _read(connection, names, table, shard, bound(connection, statement, (*place.values, limit)))


def remove_entries(
    connection: DeadlineConnection,
    names: Names,
    table: IndexTable,
    shard: int,
    entries: Sequence[StoredEntry],
    deadline: Deadline,
) -> tuple[ShardState, int]:
    """Remove entries whose ref keys are still these; return how many were removed."""
    removed = 0
    with _of_index(connection, table.name):
        for first in range(0, len(entries), ENTRIES_PER_REMOVAL):
            unchanged = index_sql.unchanged(table, entries[first : first + ENTRIES_PER_REMOVAL], DIALECT, "<=>")
            statement = REMOVE.format(table=names.index(shard, table.name), unchanged=unchanged.text)
            removed += transact(connection, [bound(connection, statement, unchanged.values)], deadline).changed
        seen = transact(connection, [], deadline, heads_statement(names, [shard]).encode())
    return _states(seen.rows, [shard])[shard], removed


def _at(
    connection: DeadlineConnection, names: Names, table: IndexTable, shard: int, keys: Sequence[tuple[Scalar, bytes]]
) -> bytes:
    at = index_sql.at_keys(table, keys, DIALECT)
    columns = ", ".join(index_sql.columns(table))
    statement = FIND_AT.format(columns=columns, table=names.index(shard, table.name), keys=at.text)
    return bound(connection, statement, at.values)


def _of_rows(
    connection: DeadlineConnection, names: Names, table: IndexTable, shard: int, row_keys: Sequence[bytes]
) -> bytes:
    columns = ", ".join(index_sql.columns(table))
    statement = FIND_AT.format(columns=columns, table=names.index(shard, table.name), keys="row_key IN %s")
    return bound(connection, statement, (list(row_keys),))


def _firsts(
    connection: DeadlineConnection, names: Names, table: IndexTable, shard: int, values: Sequence[Scalar]
) -> bytes:
    return b" UNION ALL ".join(
        b"(%b)" % _find(connection, names, table, shard, EntryQuery(value, limit=1)) for value in values
    )


def _find(connection: DeadlineConnection, names: Names, table: IndexTable, shard: int, query: EntryQuery) -> bytes:
    conditions = index_sql.conditions(table, query, DIALECT)
    statement = FIND.format(
        columns=", ".join(index_sql.columns(table)),
        table=names.index(shard, table.name),
        conditions=conditions.text,
        order=index_sql.order(table, query),
    )
    return bound(connection, statement, (*conditions.values, query.limit))


def _upserts(
    connection: DeadlineConnection, names: Names, table: IndexTable, shard: int, entries: Sequence[EntryWrite]
) -> Iterator[bytes]:
    """The entries of a shard in key order, in as few statements as their size allows."""
    columns = index_sql.columns(table)
    template = UPSERT.format(
        table=names.index(shard, table.name),
        columns=", ".join(columns),
        assignments=index_sql.assignments(table, incoming=lambda column: f"VALUES({column})"),
    ).encode()
    rows = sorted((index_sql.row_of(table, entry, DIALECT) for entry in entries), key=lambda row: row[:2])
    for group in _cut(b"(%b)" % b", ".join([literal(connection, value) for value in row]) for row in rows):
        yield template.replace(b"VALUES ROWS", b"VALUES " + b", ".join(group))


def _cut(rows: Iterator[bytes]) -> Iterator[list[bytes]]:
    group: list[bytes] = []
    size = 0
    for row in rows:
        if group and (len(group) == ROWS_PER_STATEMENT or size + len(row) > BYTES_PER_STATEMENT):
            yield group
            group, size = [], 0
        group.append(row)
        size += len(row)
    if group:
        yield group


def _read(
    connection: DeadlineConnection, names: Names, table: IndexTable, shard: int, statement: bytes
) -> tuple[ShardState, list[StoredEntry]]:
    """Send a SELECT and the look at the shard's state behind it, as one packet."""
    look = heads_statement(names, [shard]).encode()
    with _of_index(connection, table.name), send(connection, statement + b"; " + look) as cursor:
        entries = [index_sql.entry_of(table, row, DIALECT) for row in cursor.fetchall()]
        cursor.nextset()
        state = _states(cursor.fetchall(), [shard])[shard]
    return state, entries


def _states(rows: Sequence[tuple[Any, ...]], shards: Collection[int]) -> dict[int, ShardState]:
    seen = heads_from(rows)
    for shard in shards:
        if shard not in seen:
            raise missing_shard(shard)
    return {shard: seen[shard].state for shard in shards}


@contextmanager
def _of_index(connection: DeadlineConnection, table_name: str) -> Iterator[None]:
    """What the server says of a table that is not there is said of the index version."""
    try:
        yield
    except err.Error as error:
        if not is_missing(error):
            raise
        connection.rollback()  # what the transaction did in the shards before
        raise IndexMissing(connection.node, table_name) from error
