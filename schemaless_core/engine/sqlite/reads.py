"""Reads on SQLite, inside one snapshot of the file."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from schemaless_core.cell.children import FACTS
from schemaless_core.cell.page_bytes import bound
from schemaless_core.cell.standing import ShardHead, ShardState
from schemaless_core.cell.stored import NewCell, StoredCell, Version
from schemaless_core.engine.base import BucketSum, EpochOpening, HashedCell, LogSlice
from schemaless_core.engine.kinds import ColumnKind, kinds_of
from schemaless_core.engine.mending import PURGED_PER_LOOK
from schemaless_core.engine.purged import has_gap, with_purged
from schemaless_core.engine.sqlite.file import from_microseconds
from schemaless_core.errors import SchemaMissing


class CutCells(NamedTuple):
    """Cells of a page, and whether there are more than it has room for."""

    cells: list[StoredCell]
    is_cut: bool


_CELL = "added_id, row_key, column_name, ref_key, plain(body), created_at"

FIND = f"SELECT {_CELL} FROM cell WHERE shard = ? AND row_key = ? AND column_name = ? AND ref_key = ?"
FIND_LATEST = f"""\
SELECT {_CELL} FROM cell WHERE shard = ? AND row_key = ? AND column_name = ? ORDER BY ref_key DESC LIMIT 1"""
ROW = f"""\
SELECT {_CELL}, MAX(ref_key) FROM cell WHERE shard = ? AND row_key = ? GROUP BY column_name"""
NEWEST = f"""\
SELECT {_CELL} FROM cell WHERE shard = ? AND row_key = ? AND column_name = ? ORDER BY ref_key DESC LIMIT ?"""
BEFORE = NEWEST.replace("ORDER BY", "AND ref_key < ? ORDER BY")
LOG = f"SELECT {_CELL} FROM cell WHERE shard = ? AND added_id > ? ORDER BY added_id LIMIT ?"
PURGED = "SELECT added_id FROM purged WHERE shard = ? AND added_id > ? AND added_id <= ? ORDER BY added_id LIMIT ?"
FIRST_CREATED_AT = "SELECT MIN(added_id) FROM cell WHERE shard = ? AND created_at >= ?"
EPOCHS = "SELECT epoch, first_added_id, opened_at, why FROM shard_epoch WHERE shard = ? ORDER BY epoch"
HEAD = "SELECT epoch, authority_epoch, state, next_added_id FROM shard_state WHERE shard = ?"
ALL_HEADS = "SELECT shard, epoch, authority_epoch, state, next_added_id FROM shard_state"
HEADS_SINCE = f"{ALL_HEADS} WHERE last_created_at > ?"
AHEAD = "SELECT COUNT(*), MAX(last_created_at) FROM shard_state WHERE last_created_at > ?"
SCAN = f"""\
SELECT {_CELL}, MAX(ref_key) FROM cell WHERE shard = ? COLUMNS AND row_key IN
 (SELECT DISTINCT row_key FROM cell WHERE shard = ? AND (? IS NULL OR row_key > ?) COLUMNS ORDER BY row_key LIMIT ?)
 GROUP BY row_key, column_name ORDER BY row_key, column_name"""
SCAN_VERSIONS = """\
SELECT row_key, column_name, ref_key, plain(body) FROM cell WHERE shard = ? AND row_key > ? COLUMNS
 ORDER BY row_key, column_name, ref_key LIMIT ?"""
_LATEST = """\
SELECT row_key, column_name, MAX(ref_key) AS ref_key, body FROM cell WHERE shard = ? COLUMNS
 GROUP BY row_key, column_name FAMILY"""
# Facts but those below a tombstone: they went with their parent.
_FACTS = """\
SELECT row_key, column_name, ref_key, body FROM cell LEFT JOIN
  (SELECT row_key, column_name, MAX(ref_key) AS ended FROM cell WHERE shard = ? AND body = x'6e756c6c' COLUMNS
   GROUP BY row_key, column_name) USING (row_key, column_name)
 WHERE shard = ? COLUMNS AND (ended IS NULL OR ref_key >= ended)"""
_CHECKSUM = """\
SELECT bucket_of(row_key) AS bucket, COUNT(*), sum_text(cell_hash(row_key, column_name, ref_key, plain(body)))
 FROM ({cells}) GROUP BY bucket ORDER BY bucket"""
_DIGESTS = """\
SELECT row_key, column_name, ref_key, cell_hash(row_key, column_name, ref_key, plain(body))
 FROM ({cells}) WHERE bucket_of(row_key) IN (BUCKETS)"""
HIGHEST = f"""\
SELECT {_CELL} FROM cell WHERE shard = ? AND row_key = ? AND column_name = ? AND ref_key BETWEEN ? AND ?
 ORDER BY ref_key DESC LIMIT 1"""
TOMBSTONE = f"""\
SELECT {_CELL} FROM cell WHERE shard = ? AND row_key = ? AND column_name = ? AND body = x'6e756c6c'
 ORDER BY ref_key DESC LIMIT 1"""


def head_of(connection: sqlite3.Connection, shard: int) -> ShardHead:
    found = connection.execute(HEAD, (shard,)).fetchone()
    if found is None:
        raise SchemaMissing(f"Shard {shard} is not in this file.", hint="Run `tripstore schema apply`.")
    return ShardHead(ShardState(*found[:3]), found[3] - 1)


def heads(connection: sqlite3.Connection) -> dict[int, ShardHead]:
    return _heads_from(connection.execute(ALL_HEADS))


def ahead(connection: sqlite3.Connection, moment: int) -> tuple[int, datetime | None]:
    """How many shards have a time after this moment, and the latest of them."""
    count, latest = connection.execute(AHEAD, (moment,)).fetchone()
    return count, None if latest is None else from_microseconds(latest)


def heads_since(connection: sqlite3.Connection, microseconds: int) -> dict[int, ShardHead]:
    return _heads_from(connection.execute(HEADS_SINCE, (microseconds,)))


def _heads_from(rows: Iterable[tuple[Any, ...]]) -> dict[int, ShardHead]:
    return {
        shard: ShardHead(ShardState(epoch, authority_epoch, state), next_added_id - 1)
        for shard, epoch, authority_epoch, state, next_added_id in rows
    }


def find(
    connection: sqlite3.Connection, shard: int, row_key: bytes, column_name: bytes, ref_key: int
) -> StoredCell | None:
    return _one(connection.execute(FIND, (shard, row_key, column_name, ref_key)))


def find_latest(connection: sqlite3.Connection, shard: int, row_key: bytes, column_name: bytes) -> StoredCell | None:
    return _one(connection.execute(FIND_LATEST, (shard, row_key, column_name)))


def find_before(
    connection: sqlite3.Connection, shard: int, row_key: bytes, column_name: bytes, ref_key: int
) -> StoredCell | None:
    return _one(connection.execute(BEFORE, (shard, row_key, column_name, ref_key, 1)))


def is_alone(connection: sqlite3.Connection, shard: int, cell: NewCell) -> bool:
    """Whether it is there, byte for byte, and its column has no other version."""
    row_key, column_name, ref_key, body = cell
    latest = find_latest(connection, shard, row_key, column_name)
    if latest is None or latest.ref_key != ref_key or latest.body != body:
        return False
    return find_before(connection, shard, row_key, column_name, ref_key) is None


def row(
    connection: sqlite3.Connection, shard: int, row_key: bytes, columns: Sequence[bytes] | None
) -> list[StoredCell]:
    cells = _all(connection.execute(ROW, (shard, row_key)))
    wanted = None if columns is None else frozenset(columns)  # of many names a list is looked through for each cell
    return [cell for cell in cells if wanted is None or cell.column_name in wanted]


def history(
    connection: sqlite3.Connection, shard: int, row_key: bytes, column_name: bytes, before: int | None, limit: int
) -> CutCells:
    if before is None:
        return _portion(connection.execute(NEWEST, (shard, row_key, column_name, limit)))
    return _portion(connection.execute(BEFORE, (shard, row_key, column_name, before, limit)))


def log_slice(connection: sqlite3.Connection, shard: int, start: int, limit: int, left: int | None = None) -> LogSlice:
    """`left`: bytes of bodies that it may bring, one cell at least."""
    portion = _portion(connection.execute(LOG, (shard, start, limit)), left)
    found = LogSlice(head_of(connection, shard), portion.cells)
    if not has_gap(start, found, len(portion.cells) if portion.is_cut else limit):
        return found
    try:
        purged = connection.execute(PURGED, (shard, start, found.head.head, PURGED_PER_LOOK)).fetchall()
    except sqlite3.OperationalError as error:
        if "no such table" not in str(error):
            raise
        return found  # a file of an earlier version, where nothing was ever purged
    return with_purged(found, [added_id for (added_id,) in purged])


def first_created_at(connection: sqlite3.Connection, shard: int, microseconds: int) -> int:
    (found,) = connection.execute(FIRST_CREATED_AT, (shard, microseconds)).fetchone()
    return int(found) if found is not None else head_of(connection, shard).head + 1


def epochs(connection: sqlite3.Connection, shard: int) -> list[EpochOpening]:
    return [
        EpochOpening(epoch, first_added_id, from_microseconds(opened_at), why)
        for epoch, first_added_id, opened_at, why in connection.execute(EPOCHS, (shard,))
    ]


def find_highest(
    connection: sqlite3.Connection, shard: int, row_key: bytes, column_name: bytes, low: int, high: int
) -> StoredCell | None:
    return _one(connection.execute(HIGHEST, (shard, row_key, column_name, low, high)))


def find_tombstone(connection: sqlite3.Connection, shard: int, row_key: bytes, column_name: bytes) -> StoredCell | None:
    return _one(connection.execute(TOMBSTONE, (shard, row_key, column_name)))


def find_newest(
    connection: sqlite3.Connection, shard: int, row_key: bytes, column_name: bytes, limit: int
) -> list[StoredCell]:
    return _all(connection.execute(NEWEST, (shard, row_key, column_name, limit)))


def scan(
    connection: sqlite3.Connection, shard: int, after: bytes | None, limit: int, columns: Sequence[bytes] | None
) -> CutCells:
    (kind,) = kinds_of(columns, {})
    statement, chosen = SCAN.replace("COLUMNS", kind.condition("?")), kind.names
    return _portion(connection.execute(statement, (shard, *chosen, shard, after, after, *chosen, limit)))


def scan_versions(
    connection: sqlite3.Connection, shard: int, after: bytes | None, limit: int, columns: Sequence[bytes] | None
) -> tuple[list[Version], bool]:
    """As many as a page has room for, and whether there are more; the file is not read further."""
    (kind,) = kinds_of(columns, {})
    statement = SCAN_VERSIONS.replace("COLUMNS", kind.condition("?"))
    room, found = bound(), list[Version]()
    for row in connection.execute(statement, (shard, after or b"", *kind.names, limit)):
        if found and room <= 0:
            return found, True
        found.append(Version(*row))
        room -= len(found[-1].body)
    return found, False


def checksum(connection: sqlite3.Connection, shard: int, kinds: Sequence[ColumnKind]) -> list[BucketSum]:
    cells, totals = Counter[int](), Counter[int]()
    for kind in kinds:
        for number, count, total in connection.execute(*_of_kind(_CHECKSUM, kind, shard)):
            cells[number] += count
            totals[number] += int(total)
    return [BucketSum(number, cells[number], totals[number]) for number in sorted(cells)]


def digests(
    connection: sqlite3.Connection, shard: int, buckets: Collection[int], kinds: Sequence[ColumnKind]
) -> list[HashedCell]:
    statement = _DIGESTS.replace("BUCKETS", ", ".join(map(str, sorted(buckets))) or "NULL")
    return [
        HashedCell(row_key, column_name, ref_key, int(hashed))
        for kind in kinds
        for row_key, column_name, ref_key, hashed in connection.execute(*_of_kind(statement, kind, shard))
    ]


def _of_kind(statement: str, kind: ColumnKind, shard: int) -> tuple[str, tuple[Any, ...]]:
    """A statement over the latest cells of some columns, and its parameters."""
    cells = _FACTS if kind.bits == FACTS else _LATEST.replace("FAMILY", kind.family)
    values = (shard, *kind.names) * cells.count("COLUMNS")
    return statement.format(cells=cells.replace("COLUMNS", kind.condition("?"))), values


def _one(rows: Iterable[tuple[Any, ...]]) -> StoredCell | None:
    return next((stored_cell(found) for found in rows), None)


def _all(rows: Iterable[tuple[Any, ...]]) -> list[StoredCell]:
    return [stored_cell(found) for found in rows]


def _portion(rows: Iterable[tuple[Any, ...]], left: int | None = None) -> CutCells:
    """As many as a page has room for; the file is not read further."""
    room, cells = bound() if left is None else left, list[StoredCell]()
    for found in rows:
        if cells and room <= 0:
            return CutCells(cells, is_cut=True)
        cells.append(stored_cell(found))
        room -= len(cells[-1].body)
    return CutCells(cells, is_cut=False)


def stored_cell(found: tuple[Any, ...]) -> StoredCell:
    added_id, row_key, column_name, ref_key, body, created_at = found[:6]
    return StoredCell(added_id, row_key, column_name, ref_key, body, from_microseconds(created_at))
