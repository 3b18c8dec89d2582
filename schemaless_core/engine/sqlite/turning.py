"""Bodies of a log in another form, by one transaction of the file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from schemaless_core.cell.standing import Gate
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import BYTES_PER_BATCH
from schemaless_core.engine.mending import check_mend
from schemaless_core.engine.sqlite.file import SQLiteFile
from schemaless_core.engine.sqlite.reads import head_of
from schemaless_core.engine.turning import Turned
from schemaless_core.failpoints import reach

READ = """\
SELECT added_id, column_name, body FROM cell WHERE shard = ? AND added_id > ? AND added_id <= ?
 ORDER BY added_id LIMIT ?"""
SET_BODY = "UPDATE cell SET body = ? WHERE shard = ? AND added_id = ?"


class SQLiteTurning:
    """A `Turning`."""

    def __init__(self, file: SQLiteFile) -> None:
        self._file = file

    def look(self, shard: int, after: int, last: int, limit: int, deadline: Deadline) -> Turned:
        with self._file.read(deadline) as connection:
            return self._turned(connection, shard, after, last, limit, is_dry=True)

    def turn(self, gate: Gate, after: int, last: int, limit: int, deadline: Deadline) -> Turned:
        reach("turning.before_send")
        with self._file.write(deadline) as connection:
            check_mend(gate, head_of(connection, gate.shard).state)
            turned = self._turned(connection, gate.shard, after, last, limit, is_dry=False)
        reach("turning.answered")
        return turned

    def _turned(
        self, connection: sqlite3.Connection, shard: int, after: int, last: int, limit: int, *, is_dry: bool
    ) -> Turned:
        cells = before = now = size = seen = 0
        reached = after
        for added_id, stored, body in self._read(connection, shard, after, last, limit):
            reached, size, seen = added_id, size + len(body), seen + 1
            if body != stored:
                cells, before, now = cells + 1, before + len(stored), now + len(body)
                if not is_dry:
                    connection.execute(SET_BODY, (body, shard, added_id))
            if size >= BYTES_PER_BATCH:
                return Turned(cells, before, now, reached)
        return Turned(cells, before, now, reached if seen == limit else last)

    def _read(
        self, connection: sqlite3.Connection, shard: int, after: int, last: int, limit: int
    ) -> Iterator[tuple[int, bytes, bytes]]:
        """Added id, body as it is stored, and as it would be now."""
        rows = connection.execute(READ, (shard, after, last, limit)).fetchall()
        return ((added_id, body, self._file.bodies.anew(name, body)) for added_id, name, body in rows)
