"""The buffer of one file: the same as on MySQL, inside one write transaction of the file."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from schemaless_core.cell.page_bytes import bound, fitting
from schemaless_core.cell.standing import Gate
from schemaless_core.cell.stored import NewCell
from schemaless_core.deadline import Deadline
from schemaless_core.engine.buffers import (
    NOT_PASSED,
    SECOND_SECONDS,
    BufferConflict,
    BufferedCell,
    BufferedPage,
    BufferSize,
    CellKeyBytes,
    Offered,
)
from schemaless_core.engine.sqlite.file import SQLiteFile, from_microseconds, to_microseconds
from schemaless_core.engine.sqlite.reads import head_of
from schemaless_core.failpoints import reach

KEEP = """\
INSERT INTO buffered (shard, row_key, column_name, ref_key, body, kept_at) VALUES (?, ?, ?, ?, ?, ?)
 ON CONFLICT (row_key, column_name, ref_key) DO NOTHING"""
BODY = "SELECT body FROM buffered WHERE row_key = ? AND column_name = ? AND ref_key = ?"
SECOND = """\
INSERT INTO second_copy (number, kept_at) SELECT number, ? FROM buffered
 WHERE row_key = ? AND column_name = ? AND ref_key = ? ON CONFLICT DO NOTHING"""
_IS_SECOND = "EXISTS (SELECT 1 FROM second_copy s WHERE s.number = buffered.number)"
_CELL = "number, shard, row_key, column_name, ref_key, body, kept_at"
FIRST = "SELECT number, LENGTH(body) FROM buffered ORDER BY number LIMIT ?"
FIRST_OF = "SELECT number, LENGTH(body) FROM buffered WHERE shard = ? AND number > ? ORDER BY number LIMIT ?"
THIS = f"SELECT {_CELL}, {_IS_SECOND} FROM buffered WHERE number = ?"
FIND = f"SELECT {_CELL} FROM buffered WHERE row_key = ? AND column_name = ? AND ref_key = ?"
# SQLite takes the other columns from the row that has the maximum.
LATEST = """\
SELECT row_key, column_name, MAX(ref_key), body FROM buffered WHERE row_key = ? GROUP BY column_name"""
HISTORY = """\
SELECT row_key, column_name, ref_key, body FROM buffered
 WHERE row_key = ?1 AND column_name = ?2 AND (?3 IS NULL OR ref_key < ?3) ORDER BY ref_key DESC LIMIT ?4"""
NOTE = f"""\
INSERT INTO buffer_conflict ({_CELL}, stored_body, found_at) SELECT {_CELL}, ?, ? FROM buffered WHERE number = ?
 ON CONFLICT DO NOTHING"""
REMOVE = f"DELETE FROM buffered WHERE number = ? AND NOT {_IS_SECOND}"
REMOVE_KEPT = "DELETE FROM buffered WHERE number = ?"
REMOVE_SECOND = "DELETE FROM second_copy WHERE number = ?"
SHARDS = "SELECT DISTINCT shard FROM buffered ORDER BY shard"
COLUMNS = "SELECT DISTINCT column_name FROM buffered ORDER BY column_name"
SIZE = """\
SELECT COUNT(*), COALESCE(SUM(LENGTH(body)), 0), MIN(kept_at), (SELECT COUNT(*) FROM buffer_conflict),
 (SELECT COUNT(*) FROM second_copy s JOIN buffered b ON b.number = s.number WHERE s.kept_at > ?) FROM buffered"""
CONFLICTS = f"SELECT {_CELL}, stored_body, found_at FROM buffer_conflict ORDER BY number LIMIT ?"
CLOSE = "DELETE FROM buffer_conflict WHERE number = ?"


class SQLiteBuffers:
    """The `BufferTables` of one file."""

    def __init__(self, file: SQLiteFile, clock: Callable[[], datetime]) -> None:
        self._file = file
        self._clock = clock

    def keep(
        self, gate: Gate, cells: Sequence[Offered], deadline: Deadline, *, are_second: bool = False
    ) -> list[bytes | None]:
        reach("buffer.before_send")
        now = to_microseconds(self._clock())
        others: list[bytes | None] = []
        with self._file.write(deadline) as connection:
            gate.check_write(head_of(connection, gate.shard).state)
            for shard, cell in cells:
                connection.execute(KEEP, (shard, *cell, now))
                (body,) = connection.execute(BODY, cell[:3]).fetchone()
                if are_second and body == cell.body:
                    connection.execute(SECOND, (now, *cell[:3]))
                others.append(None if body == cell.body else body)
        reach("buffer.answered")
        return others

    def waiting(
        self,
        shards: Collection[int] | None,
        limit: int,
        body_bytes: int,
        deadline: Deadline,
        after: Mapping[int, int] = NOT_PASSED,
    ) -> list[BufferedCell]:
        with self._file.read(deadline) as connection:
            asked: list[tuple[str, tuple[int, ...]]] = [(FIRST, (limit,))]
            if shards is not None:
                asked = [(FIRST_OF, (shard, after.get(shard, 0), limit)) for shard in shards]
            first = sorted(each for statement, values in asked for each in connection.execute(statement, values))
            fit = first[: fitting((size for _number, size in first), body_bytes)]
            return [_cell(connection.execute(THIS, (number,)).fetchone()) for number, _size in fit]

    def find(self, keys: Collection[CellKeyBytes], deadline: Deadline) -> list[NewCell]:
        with self._file.read(deadline) as connection:
            rows = sorted(row for key in keys for row in connection.execute(FIND, key))
            return [_cell((*row, False)).cell for row in rows]

    def latest(self, row_keys: Collection[bytes], deadline: Deadline) -> list[NewCell]:
        with self._file.read(deadline) as connection:
            return [NewCell(*row) for row_key in row_keys for row in connection.execute(LATEST, (row_key,))]

    def history(
        self, row_key: bytes, column_name: bytes, before: int | None, limit: int, deadline: Deadline
    ) -> BufferedPage:
        cells, room = list[NewCell](), bound()
        with self._file.read(deadline) as connection:
            for row in connection.execute(HISTORY, (row_key, column_name, before, limit)):
                if cells and room <= 0:
                    return BufferedPage(cells, cells[-1].ref_key)
                cells.append(NewCell(*row))
                room -= len(cells[-1].body)
        return BufferedPage(cells)

    def settle(
        self,
        there: Sequence[int],
        conflicts: Mapping[int, bytes],
        deadline: Deadline,
        *,
        second: Collection[int] = (),
    ) -> None:
        now = to_microseconds(self._clock())
        with self._file.write(deadline) as connection:
            connection.executemany(NOTE, [(stored, now, number) for number, stored in conflicts.items()])
            connection.executemany(REMOVE, [(number,) for number in there if number not in second])
            kept = [(number,) for number in (*conflicts, *(number for number in there if number in second))]
            for statement in (REMOVE_KEPT, REMOVE_SECOND):
                connection.executemany(statement, kept)

    def shards(self, deadline: Deadline) -> list[int]:
        return [shard for (shard,) in self._rows(SHARDS, (), deadline)]

    def columns(self, deadline: Deadline) -> set[str]:
        return {name.decode() for (name,) in self._rows(COLUMNS, (), deadline)}

    def size(self, deadline: Deadline) -> BufferSize:
        young = to_microseconds(self._clock() - timedelta(seconds=SECOND_SECONDS))
        ((cells, size, oldest_at, conflicts, seconds),) = self._rows(SIZE, (young,), deadline)
        return BufferSize(cells, size, None if oldest_at is None else from_microseconds(oldest_at), conflicts, seconds)

    def conflicts(self, limit: int, deadline: Deadline) -> list[BufferConflict]:
        return [
            BufferConflict(_cell((*row, False)), stored, from_microseconds(found_at))
            for *row, stored, found_at in self._rows(CONFLICTS, (limit,), deadline)
        ]

    def close_conflicts(self, numbers: Sequence[int], deadline: Deadline) -> int:
        with self._file.write(deadline) as connection:
            return connection.executemany(CLOSE, [(number,) for number in numbers]).rowcount

    def _rows(self, statement: str, values: tuple[Any, ...], deadline: Deadline) -> list[tuple[Any, ...]]:
        with self._file.read(deadline) as connection:
            return connection.execute(statement, values).fetchall()


def _cell(row: Sequence[Any]) -> BufferedCell:
    number, shard, row_key, column_name, ref_key, body, kept_at, is_second = row
    cell = NewCell(row_key, column_name, ref_key, body)
    return BufferedCell(number, shard, cell, from_microseconds(kept_at), bool(is_second))
