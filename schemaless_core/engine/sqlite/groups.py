"""`SQLiteGroups`: offsets and parked cells in the file of a cluster."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from schemaless_core.cell.answers import ANY
from schemaless_core.cell.standing import Gate, ShardHead, ShardState
from schemaless_core.cell.stored import NewCell, StoredCell
from schemaless_core.deadline import Deadline
from schemaless_core.engine.groups import (
    Beyond,
    CallNote,
    ClaimSeen,
    GroupStart,
    GroupStep,
    Offset,
    OffsetSeen,
    ParkedCell,
    ParkedKey,
    ParkedRow,
    Settling,
)
from schemaless_core.engine.sqlite.file import SQLiteFile, from_microseconds, to_microseconds
from schemaless_core.engine.sqlite.reads import find, heads
from schemaless_core.engine.sqlite.writes import put
from schemaless_core.errors import SchemaMissing, StaleEpoch
from schemaless_core.failpoints import reach

BEGIN = """\
INSERT INTO trigger_offset (group_name, shard, epoch, added_id, fence, updated_at)
 SELECT ?, shard, epoch, ?, 0, ? FROM shard_state WHERE shard = ? ON CONFLICT DO NOTHING"""
CLAIM = """\
UPDATE trigger_offset SET fence = MAX(fence, ?), updated_at = ? WHERE group_name = ? AND shard = ?"""
FIND_ALL = "SELECT shard, epoch, added_id, fence FROM trigger_offset WHERE group_name = ?"
FIND_BEYOND = """\
SELECT o.group_name, o.shard, o.epoch, o.added_id, s.next_added_id - 1
 FROM trigger_offset o JOIN shard_state s USING (shard)
 WHERE s.state <> 'MOVED' AND (o.epoch > s.epoch OR o.epoch = s.epoch AND o.added_id >= s.next_added_id)
 ORDER BY o.group_name, o.shard"""
ADVANCE = """\
UPDATE trigger_offset SET epoch = ?, added_id = ?, updated_at = ?
 WHERE group_name = ? AND shard = ? AND fence = ? AND (epoch < ? OR epoch = ? AND added_id <= ?)"""
PARK = """\
INSERT INTO trigger_parked (group_name, shard, added_id, row_key, column_name, ref_key, attempts, is_waiting, error,
  parked_at, next_attempt_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"""
RESET = """\
UPDATE trigger_offset SET fence = fence + 1, epoch = ?, added_id = ?, updated_at = ?
 WHERE group_name = ? AND shard = ?"""
LIST = """\
SELECT shard, added_id, row_key, column_name, ref_key, attempts, is_waiting, error, parked_at, next_attempt_at,
  next_attempt_at <= ? FROM trigger_parked
 WHERE group_name = ? AND (? IS NULL OR shard = ?) ORDER BY shard, added_id LIMIT ?"""
KEYS = "SELECT shard, added_id, row_key FROM trigger_parked WHERE group_name = ?"
COUNT = "SELECT COUNT(*) FROM trigger_parked WHERE group_name = ? AND is_waiting = 0"
DUE = "SELECT DISTINCT shard FROM trigger_parked WHERE group_name = ? AND is_waiting = 0 AND next_attempt_at <= ?"
NEXT_OF_ROW = """\
UPDATE trigger_parked SET is_waiting = 0, next_attempt_at = ?
 WHERE group_name = ? AND shard = ? AND is_waiting = 1 AND added_id =
 (SELECT MIN(added_id) FROM trigger_parked WHERE group_name = ? AND shard = ? AND row_key = ?)"""
_FENCED = "EXISTS (SELECT 1 FROM trigger_offset WHERE group_name = ? AND shard = ? AND fence = ?)"
SETTLE = f"DELETE FROM trigger_parked WHERE group_name = ? AND shard = ? AND added_id = ? AND {_FENCED}"
POSTPONE = f"""\
UPDATE trigger_parked SET attempts = ?, is_waiting = ?, error = ?, next_attempt_at = ?
 WHERE group_name = ? AND shard = ? AND added_id = ? AND {_FENCED}"""
RETRY = """\
UPDATE trigger_parked SET next_attempt_at = ?
 WHERE group_name = ? AND (? IS NULL OR shard = ?) AND (? IS NULL OR added_id = ?)"""

# A count of claims begins anew where the offset moved since the last one.
CLAIMED = """\
INSERT INTO trigger_call (group_name, shard, epoch, added_id, claims, called_epoch, called_id, calls)
 SELECT group_name, shard, epoch, added_id, 1, 0, 0, 0 FROM trigger_offset WHERE group_name = ? AND shard = ?
 ON CONFLICT DO UPDATE SET epoch = excluded.epoch, added_id = excluded.added_id, claims =
  CASE WHEN epoch = excluded.epoch AND added_id = excluded.added_id THEN claims + 1 ELSE 1 END"""
CALLS = "SELECT shard, claims, called_epoch, called_id, calls FROM trigger_call WHERE group_name = ?"
CALLED = f"""\
UPDATE trigger_call SET called_epoch = ?, called_id = ?, calls = ? WHERE group_name = ? AND shard = ? AND {_FENCED}"""

IS_PARKED = "SELECT COUNT(*) FROM trigger_parked WHERE group_name = ? AND shard = ? AND added_id = ?"

_ALL = 1 << 30


class SQLiteGroups:
    """The tables of groups in one file."""

    def __init__(self, file: SQLiteFile, clock: Callable[[], datetime]) -> None:
        self._file = file
        self._clock = clock

    def begin(self, group: str, start: GroupStart, deadline: Deadline) -> None:
        with self._file.write(deadline) as connection:
            for shard, head in heads(connection).items():
                if isinstance(start, Mapping):
                    if shard in start:
                        connection.execute(BEGIN, (group, start[shard], self._now(), shard))
                else:
                    connection.execute(BEGIN, (group, head.head if start == "now" else 0, self._now(), shard))

    def claim(self, group: str, fences: Mapping[int, int], deadline: Deadline) -> dict[int, OffsetSeen]:
        with self._file.write(deadline) as connection:
            for shard, fence in fences.items():
                connection.execute(CLAIM, (fence, self._now(), group, shard))
            return _seen(connection, group, fences)

    def find(self, group: str, shards: Collection[int], deadline: Deadline) -> dict[int, OffsetSeen]:
        with self._file.read(deadline) as connection:
            return _seen(connection, group, shards)

    def find_all(self, group: str, deadline: Deadline) -> dict[int, Offset]:
        with self._file.read(deadline) as connection:
            return _offsets(connection, group)

    def find_beyond(self, deadline: Deadline) -> list[Beyond]:
        with self._file.read(deadline) as connection:
            return [Beyond(*found) for found in connection.execute(FIND_BEYOND)]

    def advance(self, group: str, steps: Mapping[int, GroupStep], deadline: Deadline) -> dict[int, OffsetSeen]:
        reach("offsets.before_send")
        with self._file.write(deadline) as connection:
            for shard, step in steps.items():
                self._moved(connection, group, shard, step)
            seen = _seen(connection, group, steps)
        reach("offsets.advanced")
        return seen

    def note_claims(self, group: str, shards: Collection[int], deadline: Deadline) -> dict[int, ClaimSeen]:
        wanted = set(shards)
        # Until `schema apply` makes the table, no claim is counted.
        with suppress(SchemaMissing), self._file.write(deadline) as connection:
            connection.executemany(CLAIMED, [(group, shard) for shard in sorted(wanted)])
            found = connection.execute(CALLS, (group,)).fetchall()
            return {shard: ClaimSeen(claims, CallNote(*call)) for shard, claims, *call in found if shard in wanted}
        return {}

    def note_call(self, group: str, shard: int, fence: int, call: CallNote, deadline: Deadline) -> None:
        with self._file.write(deadline) as connection:
            connection.execute(CALLED, (*call, group, shard, group, shard, fence))

    def put_and_advance(
        self, gate: Gate, group: str, cells: Sequence[NewCell], step: GroupStep, deadline: Deadline
    ) -> tuple[OffsetSeen, list[StoredCell]]:
        reach("joined.before_send")
        with self._file.write(deadline) as connection:
            before = _offsets(connection, group).get(gate.shard)
            is_new = before is not None and before[:2] < (step.epoch, step.added_id)
            is_admitted = is_new and _is_free(connection, gate.shard, cells) and _admits(connection, gate)
            if is_admitted and self._moved(connection, group, gate.shard, step):
                self._put(connection, gate, cells)
            seen = _seen(connection, group, [gate.shard])[gate.shard]
            stored = _stored(connection, gate.shard, cells)
        reach("joined.answered")
        return seen, stored

    def reset(self, group: str, to: Mapping[int, tuple[int, int]], deadline: Deadline) -> None:
        with self._file.write(deadline) as connection:
            for shard, (epoch, added_id) in to.items():
                connection.execute(RESET, (epoch, added_id, self._now(), group, shard))

    def remove(self, group: str, deadline: Deadline) -> None:
        with self._file.write(deadline) as connection:
            connection.execute("DELETE FROM trigger_offset WHERE group_name = ?", (group,))
            connection.execute("DELETE FROM trigger_parked WHERE group_name = ?", (group,))
        # A file of an earlier version has noted no calls.
        with suppress(SchemaMissing), self._file.write(deadline) as connection:
            connection.execute("DELETE FROM trigger_call WHERE group_name = ?", (group,))

    def parked(self, group: str, shard: int | None, limit: int, deadline: Deadline) -> list[ParkedRow]:
        with self._file.read(deadline) as connection:
            return [_row(found) for found in connection.execute(LIST, (self._now(), group, shard, shard, limit))]

    def parked_of(self, group: str, shards: Collection[int], deadline: Deadline) -> list[ParkedRow]:
        wanted = set(shards)
        return [row for row in self.parked(group, None, _ALL, deadline) if row.shard in wanted]

    def parked_keys(self, group: str, shards: Collection[int], deadline: Deadline) -> list[ParkedKey]:
        wanted = set(shards)
        with self._file.read(deadline) as connection:
            return [ParkedKey._make(found) for found in connection.execute(KEYS, (group,)) if found[0] in wanted]

    def count_parked(self, group: str, deadline: Deadline) -> int:
        with self._file.read(deadline) as connection:
            (found,) = connection.execute(COUNT, (group,)).fetchone()
            return int(found)

    def due(self, group: str, deadline: Deadline) -> set[int]:
        with self._file.read(deadline) as connection:
            return {int(shard) for (shard,) in connection.execute(DUE, (group, self._now()))}

    def settle(self, group: str, shard: int, settling: Settling, deadline: Deadline) -> None:
        with self._file.write(deadline) as connection:
            self._settled(connection, group, shard, settling)

    def put_and_settle(
        self, gate: Gate, group: str, cells: Sequence[NewCell], settling: Settling, deadline: Deadline
    ) -> tuple[bool, list[StoredCell]]:
        reach("joined.before_send")
        with self._file.write(deadline) as connection:
            is_admitted = _is_free(connection, gate.shard, cells) and _admits(connection, gate)
            if is_admitted and self._settled(connection, group, gate.shard, settling):
                self._put(connection, gate, cells)
            (is_there,) = connection.execute(IS_PARKED, (group, gate.shard, settling.added_id)).fetchone()
            stored = _stored(connection, gate.shard, cells)
        reach("joined.answered")
        return bool(is_there), stored

    def _settled(self, connection: sqlite3.Connection, group: str, shard: int, settling: Settling) -> bool:
        """Forget a parked cell if the fence is the newest; the next of its row comes to its head."""
        if heads(connection)[shard].state.epoch != settling.shard_epoch:
            return False
        place, fenced = (group, shard, settling.added_id), (group, shard, settling.fence)
        if not connection.execute(SETTLE, (*place, *fenced)).rowcount:
            return False
        row = (group, shard, group, shard, settling.row_key)
        connection.execute(NEXT_OF_ROW, (self._now(), *row))
        return True

    def _put(self, connection: sqlite3.Connection, gate: Gate, cells: Sequence[NewCell]) -> None:
        for cell in cells:
            put(connection, gate, cell, ANY, self._clock)

    def postpone(self, group: str, shard: int, fence: int, cell: ParkedCell, deadline: Deadline) -> None:
        news = (cell.attempts, int(cell.is_waiting), cell.error, self._later(cell.retry_in_seconds))
        with self._file.write(deadline) as connection:
            connection.execute(POSTPONE, (*news, group, shard, cell.added_id, group, shard, fence))

    def retry(self, group: str, shard: int | None, added_id: int | None, deadline: Deadline) -> int:
        with self._file.write(deadline) as connection:
            return connection.execute(RETRY, (self._now(), group, shard, shard, added_id, added_id)).rowcount

    def _moved(self, connection: sqlite3.Connection, group: str, shard: int, step: GroupStep) -> bool:
        """Move an offset and park cells with it, if the fence is the newest."""
        if heads(connection)[shard].state.epoch != step.shard_epoch:
            return False
        to = (step.epoch, step.added_id)
        fenced = (group, shard, step.fence, step.epoch, *to)
        if not connection.execute(ADVANCE, (*to, self._now(), *fenced)).rowcount:
            return False
        for parked in step.parked:
            connection.execute(PARK, self._parked_values(group, shard, parked))
        return True

    def _parked_values(self, group: str, shard: int, cell: ParkedCell) -> tuple[object, ...]:
        key = (cell.added_id, cell.row_key, cell.column_name, cell.ref_key)
        times = (self._now(), self._later(cell.retry_in_seconds))
        return (group, shard, *key, cell.attempts, int(cell.is_waiting), cell.error, *times)

    def _now(self) -> int:
        return to_microseconds(self._clock())

    def _later(self, seconds: float) -> int:
        return self._now() + int(seconds * 1_000_000)


def _is_free(connection: sqlite3.Connection, shard: int, cells: Sequence[NewCell]) -> bool:
    """Whether no other body is stored under the cells' keys."""
    bodies = {cell[:3]: cell.body for cell in cells}
    return all(there.body == bodies[there[1:4]] for there in _stored(connection, shard, cells))


def _stored(connection: sqlite3.Connection, shard: int, cells: Sequence[NewCell]) -> list[StoredCell]:
    return [there for cell in cells if (there := find(connection, shard, *cell[:3])) is not None]


def _admits(connection: sqlite3.Connection, gate: Gate) -> bool:
    try:
        gate.check_write(heads(connection)[gate.shard].state)
    except (StaleEpoch, KeyError):
        return False
    return True


def _offsets(connection: sqlite3.Connection, group: str) -> dict[int, Offset]:
    return {shard: Offset(*found) for shard, *found in connection.execute(FIND_ALL, (group,))}


def _seen(connection: sqlite3.Connection, group: str, shards: Collection[int]) -> dict[int, OffsetSeen]:
    offsets, found = _offsets(connection, group), heads(connection)
    absent = ShardHead(ShardState(0, 0, "MOVED"), 0)
    return {
        shard: OffsetSeen(found.get(shard, absent).state, offsets.get(shard), found.get(shard, absent).head)
        for shard in shards
    }


def _row(found: tuple[Any, ...]) -> ParkedRow:
    *cell, is_waiting, error, parked_at, next_attempt_at, is_due = found
    times = (from_microseconds(parked_at), from_microseconds(next_attempt_at))
    return ParkedRow._make((*cell, bool(is_waiting), error, *times, bool(is_due)))
