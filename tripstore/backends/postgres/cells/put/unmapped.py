"""`FreeCells`: puts of cells that live in tripstore.cell alone.

Writers of one column of a row take turns under an advisory lock, so that what a conditional put expects is exact. The
lock, the cell and its row in the queue are one packet and one transaction. What is read after the lock sees everything
that was committed before it was given.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple
from uuid import UUID

from schemaless_core.cell.answers import ANY
from schemaless_core.cell.cell import Cell
from schemaless_core.failpoints import reach
from tripstore.backends.postgres.cells.fence import NO_ROLE, LegacyStanding
from tripstore.backends.postgres.cells.rows import Found
from tripstore.backends.postgres.wire.wire import LegacyConnection

#: Advisory locks of one transaction: a server has room for 64 per connection, the company's included.
LOCKS_PER_BATCH = 48
CELLS_PER_BATCH = 500
BYTES_PER_BATCH = 4 * 1024 * 1024

_LOCK = "SELECT pg_catalog.pg_advisory_xact_lock({key})"
_LEFT = """\
SELECT pg_catalog.set_config('lock_timeout', GREATEST(1, {milliseconds} - 1000 * EXTRACT(epoch FROM
    pg_catalog.clock_timestamp() - pg_catalog.statement_timestamp()))::pg_catalog.int4::pg_catalog.text, true)"""
# Ids of the queue follow the order of the batch: they are the order of the log.
_PUT = """\
WITH given (n, row_key, column_name, ref_key, body) AS (VALUES {values}),
new AS (
    INSERT INTO tripstore.cell (row_key, column_name, ref_key, body)
    SELECT row_key, column_name, ref_key, body FROM given {condition} ORDER BY n
    ON CONFLICT DO NOTHING RETURNING row_key, column_name, ref_key
), queued AS (
    INSERT INTO {changes.table} (row_key, column_name, ref_key, row, {changes.columns})
    SELECT given.row_key, given.column_name, given.ref_key, convert_from(given.body, 'UTF8'), {changes.values}
    FROM given JOIN new USING (row_key, column_name, ref_key) ORDER BY given.n
)
SELECT given.n, new.row_key IS NOT NULL,
    stored.ref_key, NULL::int, NULL::pg_catalog.text, stored.body, stored.created_at
FROM given LEFT JOIN new USING (row_key, column_name, ref_key) LEFT JOIN LATERAL (
    SELECT c.ref_key, c.body, c.created_at FROM tripstore.cell AS c
    WHERE new.row_key IS NULL AND c.row_key = given.row_key AND c.column_name = given.column_name {which}
    ORDER BY c.ref_key = given.ref_key DESC, c.ref_key DESC LIMIT 1
) AS stored ON true ORDER BY given.n"""
_VALUE = "({n}, %s::pg_catalog.uuid, %s::pg_catalog.text, %s::bigint, %s::pg_catalog.bytea)"
_EXPECTED = """\
WHERE (SELECT max(c.ref_key) FROM tripstore.cell AS c WHERE c.row_key = given.row_key
       AND c.column_name = given.column_name) IS NOT DISTINCT FROM {expected}"""
_SAME_KEY = "AND c.ref_key = given.ref_key"

_STORE = """\
INSERT INTO tripstore.cell (row_key, column_name, ref_key, body) VALUES (%s::pg_catalog.uuid, %s, %s, %s);
INSERT INTO {changes.table} (row_key, column_name, ref_key, row, {changes.columns})
VALUES (%s::pg_catalog.uuid, %s, %s, %s, {changes.values})"""


class UnmappedCell(NamedTuple):
    """A checked cell with its canonical bytes."""

    cell: Cell
    data: bytes


class Put(NamedTuple):
    """What became of one cell: created, or what stands in its way (None: nothing, where something was expected)."""

    is_created: bool
    found: Found | None


def put(connection: LegacyConnection, new: UnmappedCell, standing: LegacyStanding, expect_latest: Any) -> Put:
    """Store a cell unless its key is taken or the column's latest cell is not the expected one."""
    condition, which = "", _SAME_KEY
    if expect_latest is not ANY:
        expected = "NULL" if expect_latest is None else f"'{expect_latest}'"
        condition, which = _EXPECTED.format(expected=f"{expected}::bigint"), ""
    return _put(connection, [new], standing, condition, which)[0]


def put_many(connection: LegacyConnection, cells: Sequence[UnmappedCell], standing: LegacyStanding) -> list[Put]:
    """Store cells of different keys as one transaction, in order."""
    return _put(connection, cells, standing, "", _SAME_KEY)


def store(connection: LegacyConnection, new: UnmappedCell, standing: LegacyStanding = NO_ROLE) -> None:
    """Store a cell of a mapped column beside its table, in the transaction of a caller that knows its key is free."""
    cell, data = new
    key = (str(cell.row_key), cell.column_name, cell.ref_key)
    connection.rows(_STORE.format(changes=standing.changes), (*key, data, *key, data.decode()))
    reach("put.stored")


def lock_sql(row_key: UUID, column_name: str = "") -> str:
    """Wait for one's turn at a column of a row until the transaction ends."""
    return _LOCK.format(key=_lock_key(row_key, column_name))


def locks_sql(row_keys: Iterable[UUID]) -> list[str]:
    """The same for many rows, in the one order that every process takes them in."""
    return [_LOCK.format(key=key) for key in sorted({_lock_key(row_key, "") for row_key in row_keys})]


def locks_within(row_keys: Iterable[UUID], *more: str, milliseconds: int) -> str:
    """The locks of many rows, and then more of them, in one packet that waits no longer than this in all.

    lock_timeout is of one lock; before each of them it is set to what is left since the packet came.
    """
    left = _LEFT.format(milliseconds=milliseconds)
    return "; ".join(f"{left}; {lock}" for lock in [*locks_sql(row_keys), *more])


def _put(
    connection: LegacyConnection, cells: Sequence[UnmappedCell], standing: LegacyStanding, condition: str, which: str
) -> list[Put]:
    # In one order for all callers: two batches never wait for each other.
    keys = sorted({_lock_key(new.cell.row_key, new.cell.column_name) for new in cells})
    values = ", ".join(_VALUE.format(n=n) for n in range(len(cells)))
    parameters: list[Any] = []
    for cell, data in cells:
        parameters += (str(cell.row_key), cell.column_name, str(cell.ref_key), data)
    put = _PUT.format(values=values, condition=condition, which=which, changes=standing.changes)
    statements = [*standing.enter(connection), *(_LOCK.format(key=key) for key in keys), put]
    return [
        Put(is_created, None if found[0] is None else Found(*found))
        for _n, is_created, *found in connection.rows("; ".join(statements), parameters)
    ]


def _lock_key(row_key: UUID, column_name: str) -> int:
    digest = blake2b(row_key.bytes + column_name.encode(), digest_size=8, person=b"tripstore").digest()
    return int.from_bytes(digest, "big", signed=True)
