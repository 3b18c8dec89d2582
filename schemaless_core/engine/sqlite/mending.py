"""Repair of cells on SQLite: the same as on MySQL, inside one write transaction of the file."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from schemaless_core.cell.standing import Gate
from schemaless_core.cell.stored import NewCell, StoredCell
from schemaless_core.deadline import Deadline
from schemaless_core.engine.mending import (
    IDS_PER_LOOK,
    BodyChange,
    Filled,
    Lack,
    Mended,
    MendLine,
    MendNote,
    check_mend,
    gaps,
)
from schemaless_core.engine.sqlite.file import SQLiteFile, from_microseconds, to_microseconds
from schemaless_core.engine.sqlite.purging import note_not_erased, purged_up_to
from schemaless_core.engine.sqlite.reads import find, head_of
from schemaless_core.failpoints import reach

LINE = """\
INSERT INTO mended (shard, added_id, action, row_key, column_name, ref_key, old_body, new_body, job, who, host, at)
 VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
SET_BODY = "UPDATE cell SET body = ? WHERE shard = ? AND added_id = ?"
DELETE = "DELETE FROM cell WHERE shard = ? AND added_id = ?"
PASS = "INSERT INTO purged (shard, added_id, at) VALUES (?, ?, ?)"
INSERT = """\
INSERT INTO cell (shard, added_id, row_key, column_name, ref_key, body, created_at) VALUES (?, ?, ?, ?, ?, ?, ?)"""
ADVANCE = """\
UPDATE shard_state SET next_added_id = ?, last_created_at = MAX(?, last_created_at) WHERE shard = ?"""

RAISE_COUNTER = """\
UPDATE shard_state SET next_added_id = MAX(next_added_id, c.last + 1), last_created_at = MAX(last_created_at, c.at)
 FROM (SELECT MAX(added_id) AS last, MAX(created_at) AS at FROM cell WHERE shard = ? AND added_id > ?) c
 WHERE shard = ? AND c.last IS NOT NULL"""
RAISE_TIME = "UPDATE cell SET created_at = ? WHERE shard = ? AND added_id = ?"
RAISE_LAST = "UPDATE shard_state SET last_created_at = MAX(last_created_at, ?) WHERE shard = ?"

IS_TAKEN = """\
SELECT EXISTS (SELECT 1 FROM cell WHERE shard = ? AND added_id = ?)
 OR EXISTS (SELECT 1 FROM purged WHERE shard = ? AND added_id = ?)"""
LAST_CREATED = "SELECT MAX(?, last_created_at) FROM shard_state WHERE shard = ?"

IDS = """\
SELECT added_id FROM cell WHERE shard = ? AND added_id > ? AND added_id <= ?
UNION SELECT added_id FROM purged WHERE shard = ? AND added_id > ? AND added_id <= ? ORDER BY added_id"""
TOUCHED = "SELECT 1 FROM mended WHERE row_key = ? AND old_body IS NOT NULL LIMIT 1"
PURGED_OF = "SELECT row_key, column_name, ref_key FROM mended WHERE row_key = ? AND action = 'purge' ORDER BY id"
_LINE = "shard, added_id, action, row_key, column_name, ref_key, old_body, new_body, job, who, host, at"
LINES = f"SELECT {_LINE} FROM mended WHERE ? IS NULL OR job = ? ORDER BY id DESC LIMIT ?"
OF_ROW = f"SELECT {_LINE} FROM mended WHERE row_key = ? AND shard = ? ORDER BY id"


class SQLiteMending:
    """The verbs of repair on one file."""

    def __init__(self, file: SQLiteFile, clock: Callable[[], datetime]) -> None:
        self._file = file
        self._clock = clock

    def holes(self, shard: int, after: int, limit: int, deadline: Deadline) -> list[int]:
        with self._file.read(deadline) as connection:
            end = min(head_of(connection, shard).head, after + IDS_PER_LOOK)
            ids = connection.execute(IDS, (shard, after, end, shard, after, end))
            return gaps([added_id for (added_id,) in ids], after, end)[:limit]

    def put_beside(self, gate: Gate, lacks: Sequence[Lack], note: MendNote, deadline: Deadline) -> list[Filled | None]:
        reach("mending.before_send")
        with self._file.write(deadline) as connection:
            check_mend(gate, head_of(connection, gate.shard).state)
            filled = [self._put_beside(connection, gate.shard, lack, note) for lack in lacks]
        reach("mending.answered")
        return filled

    def change(self, gate: Gate, changes: Sequence[BodyChange], note: MendNote, deadline: Deadline) -> list[bool]:
        reach("mending.before_send")
        with self._file.write(deadline) as connection:
            check_mend(gate, head_of(connection, gate.shard).state)
            done = [self._change(connection, gate.shard, change, note) for change in changes]
        reach("mending.answered")
        return done

    def close_hole(self, gate: Gate, hole: int, note: MendNote, deadline: Deadline) -> bool:
        reach("mending.before_send")
        with self._file.write(deadline) as connection:
            check_mend(gate, head_of(connection, gate.shard).state)
            if not _is_hole(connection, gate.shard, hole):
                return False
            self._close(connection, gate.shard, hole, note)
        reach("mending.answered")
        return True

    def raise_counter(self, gate: Gate, head: int, deadline: Deadline) -> None:
        with self._file.write(deadline) as connection:
            check_mend(gate, head_of(connection, gate.shard).state)
            connection.execute(RAISE_COUNTER, (gate.shard, head, gate.shard))

    def raise_time(self, gate: Gate, cell: StoredCell, moment: datetime, deadline: Deadline) -> None:
        microseconds = to_microseconds(moment)
        with self._file.write(deadline) as connection:
            check_mend(gate, head_of(connection, gate.shard).state)
            found = find(connection, gate.shard, *cell[1:4])
            if found == cell:
                connection.execute(RAISE_TIME, (microseconds, gate.shard, cell.added_id))
                connection.execute(RAISE_LAST, (microseconds, gate.shard))

    def of_row(self, shard: int, row_key: bytes, deadline: Deadline) -> list[MendLine]:
        with self._file.read(deadline) as connection:
            return [_line(found) for found in connection.execute(OF_ROW, (row_key, shard))]

    def purged(self, row_keys: Sequence[bytes], deadline: Deadline) -> list[tuple[bytes, bytes, int]]:
        with self._file.read(deadline) as connection:
            return [key for row_key in row_keys for key in connection.execute(PURGED_OF, (row_key,))]

    def touched(self, row_keys: Sequence[bytes], deadline: Deadline) -> set[bytes]:
        with self._file.read(deadline) as connection:
            return {row_key for row_key in row_keys if connection.execute(TOUCHED, (row_key,)).fetchone() is not None}

    def lines(self, job: str | None, limit: int, deadline: Deadline) -> list[MendLine]:
        with self._file.read(deadline) as connection:
            return [_line(found) for found in connection.execute(LINES, (job, job, limit))]

    def _put_beside(self, connection: sqlite3.Connection, shard: int, lack: Lack, note: MendNote) -> Filled | None:
        key, body = lack.cell[:3], lack.cell.body
        if (found := find(connection, shard, *key)) is not None:
            return Filled(False, found)
        if purged_up_to(connection, shard, key) is not None:
            return None
        if not _is_hole(connection, shard, lack.hole):
            return None
        added_id = head_of(connection, shard).head + 1
        self._line(connection, shard, added_id, Mended.PUT, key, None, body, note)
        self._insert(connection, shard, added_id, lack.cell)
        self._close(connection, shard, lack.hole, note)
        stored = find(connection, shard, *key)
        assert stored is not None
        return Filled(True, stored)

    def _change(self, connection: sqlite3.Connection, shard: int, change: BodyChange, note: MendNote) -> bool:
        stored, body = change
        if not self._is_there(connection, shard, stored):
            return False
        self._line(connection, shard, stored.added_id, change.action, stored[1:4], stored.body, body, note)
        note_not_erased(connection, shard, stored.row_key, stored.column_name)
        if body is None:
            connection.execute(PASS, (shard, stored.added_id, self._now()))
            connection.execute(DELETE, (shard, stored.added_id))
        else:
            connection.execute(SET_BODY, (body, shard, stored.added_id))
        return True

    def _is_there(self, connection: sqlite3.Connection, shard: int, stored: StoredCell) -> bool:
        found = find(connection, shard, *stored[1:4])
        return found is not None and found[:5] == stored[:5]

    def _insert(self, connection: sqlite3.Connection, shard: int, added_id: int, cell: NewCell) -> None:
        (created_at,) = connection.execute(LAST_CREATED, (self._now(), shard)).fetchone()
        connection.execute(ADVANCE, (added_id + 1, created_at, shard))
        connection.execute(INSERT, (shard, added_id, *cell, created_at))

    def _close(self, connection: sqlite3.Connection, shard: int, hole: int, note: MendNote) -> None:
        self._line(connection, shard, hole, Mended.CLOSE, (None, None, None), None, None, note)
        connection.execute(PASS, (shard, hole, self._now()))

    def _line(
        self,
        connection: sqlite3.Connection,
        shard: int,
        added_id: int,
        action: Mended,
        key: tuple[bytes | None, bytes | None, int | None],
        old_body: bytes | None,
        new_body: bytes | None,
        note: MendNote,
    ) -> None:
        values = (shard, added_id, action.value, *key, old_body, new_body, *note, self._now())
        connection.execute(LINE, values)

    def _now(self) -> int:
        return to_microseconds(self._clock())


def _is_hole(connection: sqlite3.Connection, shard: int, hole: int) -> bool:
    if hole > head_of(connection, shard).head:
        return False
    (is_taken,) = connection.execute(IS_TAKEN, (shard, hole, shard, hole)).fetchone()
    return not is_taken


def _line(found: tuple[Any, ...]) -> MendLine:
    shard, added_id, action, *cell, job, who, host, at = found
    row_key, column_name, ref_key, old_body, new_body = cell
    moment, note = from_microseconds(at), MendNote(job, who, host)
    return MendLine(shard, added_id, Mended(action), row_key, column_name, ref_key, old_body, new_body, note, moment)
