"""Purged keys on SQLite: the same as on MySQL, inside the file's write transaction. A put looks each key up."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from schemaless_core.cell.standing import Gate
from schemaless_core.deadline import Deadline
from schemaless_core.engine.mending import check_mend
from schemaless_core.engine.purging import (
    IDS_PER_LOOK,
    KeptKey,
    Key,
    PurgedKey,
    RowTraces,
    RowVersions,
    Superseded,
    Unerased,
)
from schemaless_core.engine.sqlite.file import SQLiteFile, to_microseconds
from schemaless_core.engine.sqlite.reads import head_of, stored_cell
from schemaless_core.failpoints import reach

PURGED_UP_TO = """\
SELECT MAX(ref_key) FROM purged_key WHERE shard = ? AND row_key = ? AND column_name IN (x'', ?) AND ref_key >= ?"""
KEEP = """\
INSERT INTO purged_key (shard, row_key, column_name, ref_key, at) VALUES (?, ?, ?, ?, ?)
 ON CONFLICT (shard, row_key, column_name) DO UPDATE SET ref_key = MAX(ref_key, excluded.ref_key), is_erased = 0"""
_CELL = "added_id, row_key, column_name, ref_key, plain(body), created_at"
VERSIONS = f"SELECT {_CELL} FROM cell WHERE shard = ? AND row_key = ? ORDER BY column_name, ref_key LIMIT ?"
SUPERSEDED = f"""\
SELECT {_CELL} FROM cell c WHERE shard = ? AND added_id > ? AND added_id <= ? AND column_name IN (NAMES)
 AND EXISTS (SELECT 1 FROM cell n WHERE n.shard = c.shard AND n.row_key = c.row_key
  AND n.column_name = c.column_name AND n.ref_key > c.ref_key)
 ORDER BY added_id LIMIT ?"""
WHOLE_ROWS = """\
SELECT shard, row_key FROM purged_key WHERE column_name = x'' AND (shard, row_key) > (?, ?)
 ORDER BY shard, row_key LIMIT ?"""
UNERASED = """\
SELECT row_key, column_name, ref_key FROM purged_key WHERE shard = ? AND NOT is_erased AND column_name <> x''
 ORDER BY row_key, column_name LIMIT ?"""
LAST_LINE = "SELECT COALESCE(MAX(id), 0) FROM mended"
KEPT = """\
SELECT row_key, column_name, ref_key, is_erased FROM purged_key
 WHERE shard = ? AND (row_key, column_name) > (?, ?) ORDER BY row_key, column_name LIMIT ?"""
_ITS_BODIES = """\
shard = ? AND row_key = ? AND (old_body IS NOT NULL OR new_body IS NOT NULL)
  AND (? = x'' OR (column_name = ? AND action = 'purge' AND ref_key <= ?))"""
ERASE = f"UPDATE mended SET old_body = NULL, new_body = NULL WHERE {_ITS_BODIES} AND (? IS NULL OR id <= ?)"
ERASED = f"""\
UPDATE purged_key SET is_erased = 1 WHERE shard = ? AND row_key = ? AND column_name = ?
 AND NOT EXISTS (SELECT 1 FROM mended WHERE {_ITS_BODIES})"""
NOT_ERASED = "UPDATE purged_key SET is_erased = 0 WHERE shard = ? AND row_key = ? AND column_name IN (x'', ?)"
NO_SECOND = "DELETE FROM second_copy WHERE number IN (SELECT number FROM buffered WHERE row_key = ?)"
#: Tables beside shards that have something of a row.
TRACES = ("buffered", "buffer_conflict", "index_error")


class SQLitePurging:
    """The verbs of a purge on one file."""

    def __init__(self, file: SQLiteFile, clock: Callable[[], datetime]) -> None:
        self._file = file
        self._clock = clock

    def is_known(self, deadline: Deadline) -> bool:
        return True  # each put looks

    def keep(self, gate: Gate, keys: Sequence[PurgedKey], deadline: Deadline) -> None:
        reach("purging.before_send")
        with self._file.write(deadline) as connection:
            check_mend(gate, head_of(connection, gate.shard).state)
            now = to_microseconds(self._clock())
            connection.executemany(KEEP, [(gate.shard, *key, now) for key in keys])
        reach("purging.answered")

    def among(self, shard: int, keys: Sequence[Key], deadline: Deadline) -> dict[Key, int]:
        with self._file.read(deadline) as connection:
            found = ((key, purged_up_to(connection, shard, key)) for key in keys)
            return {key: up_to for key, up_to in found if up_to is not None}

    def kept(self, shard: int, after: PurgedKey | None, limit: int, deadline: Deadline) -> list[KeptKey]:
        row_key, name = (b"", b"") if after is None else after[:2]
        with self._file.read(deadline) as connection:
            found = connection.execute(KEPT, (shard, row_key, name, limit))
            return [KeptKey(PurgedKey(*row[:3]), bool(row[3])) for row in found]

    def versions(self, shard: int, row_key: bytes, limit: int, deadline: Deadline) -> RowVersions:
        with self._file.read(deadline) as connection:
            cells = [stored_cell(row) for row in connection.execute(VERSIONS, (shard, row_key, limit))]
            return RowVersions(head_of(connection, shard).state, cells)

    def superseded(
        self, shard: int, columns: Sequence[bytes], after: int, last: int, limit: int, deadline: Deadline
    ) -> Superseded:
        end = min(last, after + IDS_PER_LOOK)
        statement = SUPERSEDED.replace("NAMES", ", ".join("?" * len(columns)))
        with self._file.read(deadline) as connection:
            found = connection.execute(statement, (shard, after, end, *columns, limit))
            cells = [stored_cell(row) for row in found]
            reached = cells[-1].added_id if len(cells) == limit else end
            return Superseded(head_of(connection, shard).state, cells, reached)

    def whole_rows(self, after: tuple[int, bytes], limit: int, deadline: Deadline) -> list[tuple[int, bytes]]:
        with self._file.read(deadline) as connection:
            try:
                return connection.execute(WHOLE_ROWS, (*after, limit)).fetchall()
            except sqlite3.OperationalError as error:
                if "no such table" not in str(error):
                    raise
                return []  # a file of an earlier version

    def unerased(self, shard: int, limit: int, deadline: Deadline) -> Unerased:
        with self._file.read(deadline) as connection:
            keys = [PurgedKey(*row) for row in connection.execute(UNERASED, (shard, limit))]
            (last,) = connection.execute(LAST_LINE).fetchone()
            return Unerased(keys, head_of(connection, shard).state.epoch, last)

    def erase(self, gate: Gate, keys: Sequence[PurgedKey], deadline: Deadline, last_line: int | None = None) -> None:
        with self._file.write(deadline) as connection:
            check_mend(gate, head_of(connection, gate.shard).state)
            for row_key, name, ref_key in keys:
                its = (gate.shard, row_key, name, name, ref_key)
                connection.execute(ERASE, (*its, last_line, last_line))
                connection.execute(ERASED, (gate.shard, row_key, name, *its))

    def forget(self, row_keys: Sequence[bytes], deadline: Deadline) -> RowTraces:
        with self._file.write(deadline) as connection:
            before = _traces(connection, row_keys)
            each = [(row_key,) for row_key in row_keys]
            for statement in (NO_SECOND, *(f"DELETE FROM {table} WHERE row_key = ?" for table in TRACES)):
                connection.executemany(statement, each)
            return before

    def forget_in_copies(self, rows: Mapping[int, Sequence[bytes]], deadline: Deadline) -> int:
        return 0  # no shard of a file moves

    def traces(self, row_keys: Sequence[bytes], deadline: Deadline) -> RowTraces:
        with self._file.read(deadline) as connection:
            return _traces(connection, row_keys)


def purged_up_to(connection: sqlite3.Connection, shard: int, key: Key) -> int | None:
    """Up to which ref key the column of a key was purged; None: the key was not."""
    row_key, column_name, ref_key = key
    try:
        found = connection.execute(PURGED_UP_TO, (shard, row_key, column_name, ref_key)).fetchone()
    except sqlite3.OperationalError as error:
        if "no such table" not in str(error):
            raise
        return None  # a file of an earlier version, in which nothing was purged
    up_to: int | None = found[0]
    return up_to


def note_not_erased(connection: sqlite3.Connection, shard: int, row_key: bytes, column_name: bytes) -> None:
    """A line has a body again, of a column that may have been purged."""
    try:
        connection.execute(NOT_ERASED, (shard, row_key, column_name))
    except sqlite3.OperationalError as error:
        if "no such table" not in str(error):
            raise


def _traces(connection: sqlite3.Connection, row_keys: Sequence[bytes]) -> RowTraces:
    def count(table: str) -> int:
        statement = f"SELECT COUNT(*) FROM {table} WHERE row_key = ?"
        return sum(connection.execute(statement, (row_key,)).fetchone()[0] for row_key in row_keys)

    return RowTraces(*map(count, TRACES))
