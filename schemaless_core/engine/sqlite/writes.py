"""Puts on SQLite: the same steps as on MySQL, inside one write transaction of the file."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from schemaless_core.cell.answers import ANY
from schemaless_core.cell.standing import Gate
from schemaless_core.cell.stored import NewCell
from schemaless_core.engine.base import RowSeen, Stored
from schemaless_core.engine.sqlite.file import to_microseconds
from schemaless_core.engine.sqlite.purging import purged_up_to
from schemaless_core.engine.sqlite.reads import find, find_latest, head_of
from schemaless_core.errors import CellPurged

INSERT = """\
INSERT INTO cell (shard, added_id, row_key, column_name, ref_key, body, created_at)
SELECT shard, next_added_id, ?1, ?2, ?3, kept(?2, ?4), MAX(?5, last_created_at) FROM shard_state WHERE shard = ?6"""

ADVANCE = """\
UPDATE shard_state SET next_added_id = next_added_id + 1, last_created_at = MAX(?, last_created_at) WHERE shard = ?"""

LAST_CREATED_AT = "SELECT last_created_at FROM shard_state WHERE shard = ?"
INSERT_NEW = """\
INSERT INTO cell (shard, added_id, row_key, column_name, ref_key, body, created_at)
 VALUES (?1, ?2, ?3, ?4, ?5, kept(?4, ?6), ?7)
 ON CONFLICT (shard, row_key, column_name, ref_key) DO NOTHING"""
ADVANCE_BY = "UPDATE shard_state SET next_added_id = ?, last_created_at = ? WHERE shard = ?"

MOVED = "SELECT 1 FROM cell WHERE shard = ? AND row_key = ? AND added_id > ? LIMIT 1"


def put(
    connection: sqlite3.Connection, gate: Gate, cell: NewCell, expect_latest: Any, clock: Callable[[], datetime]
) -> Stored:
    """Store one cell, or find what stands in its way. The caller holds the file's write lock."""
    head = head_of(connection, gate.shard)
    gate.check_write(head.state)
    if found := find(connection, gate.shard, cell.row_key, cell.column_name, cell.ref_key):
        return Stored(False, None, found)
    if (up_to := purged_up_to(connection, gate.shard, cell[:3])) is not None:
        return Stored(False, None, None, up_to)
    if expect_latest is not ANY:
        latest = find_latest(connection, gate.shard, cell.row_key, cell.column_name)
        if (latest.ref_key if latest else None) != expect_latest:
            return Stored(False, None, latest)
    now = to_microseconds(clock())
    connection.execute(INSERT, (*cell, now, gate.shard))
    connection.execute(ADVANCE, (now, gate.shard))
    return Stored(True, head.head + 1, None)


def put_batch(
    connection: sqlite3.Connection, gate: Gate, cells: Sequence[NewCell], clock: Callable[[], datetime]
) -> list[Stored]:
    """Store cells of one shard by one look at its head; the unique key meets those that are there. The same caller."""
    head = head_of(connection, gate.shard)
    gate.check_write(head.state)
    (last_created_at,) = connection.execute(LAST_CREATED_AT, (gate.shard,)).fetchone()
    created_at = max(to_microseconds(clock()), last_created_at)
    next_added_id, stored = head.head + 1, list[Stored]()
    for cell in cells:
        if (up_to := purged_up_to(connection, gate.shard, cell[:3])) is not None:
            there = find(connection, gate.shard, *cell[:3])
            stored.append(Stored(False, None, there, None if there else up_to))
        elif connection.execute(INSERT_NEW, (gate.shard, next_added_id, *cell, created_at)).rowcount:
            stored.append(Stored(True, next_added_id, None))
            next_added_id += 1
        else:
            stored.append(Stored(False, None, find(connection, gate.shard, *cell[:3])))
    if next_added_id > head.head + 1:
        connection.execute(ADVANCE_BY, (next_added_id, created_at, gate.shard))
    return stored


def put_together(
    connection: sqlite3.Connection,
    gate: Gate,
    cells: Sequence[NewCell],
    seen: RowSeen,
    clock: Callable[[], datetime],
) -> range:
    """Store all cells if the row is as it was seen and no key is taken, else none. The same caller."""
    head = head_of(connection, gate.shard)
    gate.check_write(head.state)
    for cell in cells:
        if (up_to := purged_up_to(connection, gate.shard, cell[:3])) is not None:
            raise CellPurged(cell[:3], up_to)
    is_moved = connection.execute(MOVED, (gate.shard, seen.row_key, seen.added_id)).fetchone() is not None
    if is_moved or any(find(connection, gate.shard, *cell[:3]) for cell in cells):
        return range(0)
    put_batch(connection, gate, cells, clock)
    return range(head.head + 1, head.head + 1 + len(cells))
