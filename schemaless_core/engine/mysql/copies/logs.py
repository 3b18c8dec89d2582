"""Copies of logs: pages by multi-row INSERTs, with the added ids and times that the cells have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from schemaless_core.cell.stored import StoredCell
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import BYTES_PER_BATCH, LogSlice
from schemaless_core.engine.copies import CopySeen, LogSum
from schemaless_core.engine.mysql.copies.rows import ROWS_PER_STATEMENT, CopyRows, sent
from schemaless_core.engine.mysql.rows import binary, quoted
from schemaless_core.engine.mysql.wire.connection import DeadlineConnection
from schemaless_core.engine.purged import page_end
from schemaless_core.failpoints import reach

INSERT = "INSERT INTO {cell} (added_id, row_key, column_name, ref_key, body, created_at) VALUES "
PURGED = "INSERT INTO {purged} (shard, added_id, at) VALUES ROWS ON DUPLICATE KEY UPDATE added_id = {purged}.added_id"
MOVE_HEAD = "UPDATE {state} SET next_added_id = %s WHERE shard = %s"
CUT_CELLS = "DELETE FROM {cell} WHERE added_id > %s"
CUT_PURGED = "DELETE FROM {purged} WHERE shard = %s AND added_id > %s"
CUT = "UPDATE {state} SET next_added_id = %s, epoch = %s WHERE shard = %s"
DELETE_CELLS = "DELETE FROM {cell} WHERE added_id BETWEEN %s AND %s"
DELETE_PURGED = "DELETE FROM {purged} WHERE shard = %s AND added_id BETWEEN %s AND %s"
# Of all that a cell has: a copy is the same log, not only the same cells. Not every MySQL has MD5.
SUM = """\
SELECT COUNT(*), COALESCE(SUM(CAST(CONV(LEFT(SHA2(CONCAT(
 c.added_id, _binary'\\0', c.row_key, c.column_name, _binary'\\0', c.ref_key, _binary'\\0',
 c.created_at, c.body), 256), 16), 16, 10) AS UNSIGNED)), 0),
 (SELECT COUNT(*) FROM {purged} WHERE shard = %s AND added_id BETWEEN %s AND %s)
 FROM {cell} c WHERE c.added_id BETWEEN %s AND %s"""


class CopiedLogs(CopyRows):
    """The verbs about cells."""

    def write(
        self, shard: int, claim: int, after: int, epoch: int, page: LogSlice, deadline: Deadline
    ) -> CopySeen | None:
        def write(connection: DeadlineConnection) -> CopySeen | None:
            with self._held(connection, shard) as seen:
                if (
                    seen is None
                    or (seen.epoch, seen.head) != (epoch, after)
                    or not self._may(connection, shard, seen, claim)
                ):
                    return seen
                self._insert(connection, shard, page)
                end = page_end(page, after)
                self._do(connection, MOVE_HEAD, (end + 1, shard))
                reach("copies.written")
            return seen._replace(head=end)

        return self._sessions.write(write, deadline)

    def cut(
        self, shard: int, claim: int, before: CopySeen, epoch: int, last: int, deadline: Deadline
    ) -> CopySeen | None:
        def cut(connection: DeadlineConnection) -> CopySeen | None:
            with self._held(connection, shard) as seen:
                if seen != before or not self._may(connection, shard, seen, claim):
                    return seen
                head = min(seen.head, last)
                self._do(connection, self._of(CUT_CELLS, shard), (head,))
                self._do(connection, CUT_PURGED, (shard, head))
                self._do(connection, CUT, (head + 1, epoch, shard))
            return CopySeen(epoch, "MOVED", head)

        return self._sessions.write(cut, deadline)

    def replace(self, shard: int, claim: int, first: int, page: LogSlice, last: int, deadline: Deadline) -> None:
        def replace(connection: DeadlineConnection) -> None:
            with self._held(connection, shard) as seen:
                if self._may(connection, shard, seen, claim):
                    self._do(connection, self._of(DELETE_CELLS, shard), (first, last))
                    self._do(connection, DELETE_PURGED, (shard, first, last))
                    self._insert(connection, shard, page)

        self._sessions.write(replace, deadline)

    def sum(self, shard: int, first: int, last: int, deadline: Deadline) -> LogSum:
        def add(connection: DeadlineConnection) -> LogSum:
            (found,) = self._rows(connection, self._of(SUM, shard), (shard, first, last, first, last))
            return LogSum(*map(int, found))

        return self._sessions.run(add, deadline)

    def _insert(self, connection: DeadlineConnection, shard: int, page: LogSlice) -> None:
        head = self._of(INSERT, shard).encode()
        for group in _portions(page.cells):
            sent(connection, head + b", ".join(group))
        purged = sorted(page.purged)
        for first in range(0, len(purged), ROWS_PER_STATEMENT):
            rows = ", ".join(
                f"({int(shard)}, {int(added_id)}, UTC_TIMESTAMP(6))"
                for added_id in purged[first : first + ROWS_PER_STATEMENT]
            )
            self._do(connection, PURGED.replace("ROWS", rows))


def _portions(cells: Sequence[StoredCell]) -> Iterator[list[bytes]]:
    group: list[bytes] = []
    size = 0
    for cell in cells:
        row = _row(cell)
        if group and (len(group) == ROWS_PER_STATEMENT or size + len(row) > BYTES_PER_BATCH):
            yield group
            group, size = [], 0
        group.append(row)
        size += len(row)
    if group:
        yield group


def _row(cell: StoredCell) -> bytes:
    created_at = cell.created_at.replace(tzinfo=None).isoformat(" ").encode()
    return b"(%d, %s, %s, %d, _binary'%s', '%s')" % (
        cell.added_id,
        binary(cell.row_key),
        binary(cell.column_name),
        cell.ref_key,
        quoted(cell.body),
        created_at,
    )
