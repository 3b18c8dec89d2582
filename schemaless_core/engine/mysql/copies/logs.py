"""Copies of logs: pages by multi-row INSERTs, with the added ids and times that the cells have."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from hashlib import sha256

from schemaless_core.cell.stored import StoredCell
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import LogSlice
from schemaless_core.engine.bodies import MARK_NUMBER
from schemaless_core.engine.copies import CellRecord, CopySeen, LogSum, RecordPart, Rows
from schemaless_core.engine.mysql.copies.rows import ROWS_PER_STATEMENT, CopyRows, sent
from schemaless_core.engine.mysql.copies.tables import TABLES
from schemaless_core.engine.mysql.wire.connection import DeadlineConnection, quoted
from schemaless_core.engine.purged import page_end
from schemaless_core.failpoints import reach

#: Of cells in one INSERT.
BYTES_PER_STATEMENT = 1024 * 1024
INSERT = "INSERT INTO {cell} (added_id, row_key, column_name, ref_key, body, created_at) VALUES "
PURGED = "INSERT INTO {purged} (shard, added_id, at) VALUES ROWS ON DUPLICATE KEY UPDATE added_id = {purged}.added_id"
MOVE_HEAD = "UPDATE {state} SET next_added_id = %s WHERE shard = %s"
CUT_CELLS = "DELETE FROM {cell} WHERE added_id > %s"
CUT_PURGED = "DELETE FROM {purged} WHERE shard = %s AND added_id > %s"
CUT = "UPDATE {state} SET next_added_id = %s, epoch = %s WHERE shard = %s"
DELETE_CELLS = "DELETE FROM {cell} WHERE added_id BETWEEN %s AND %s"
DELETE_PURGED = "DELETE FROM {purged} WHERE shard = %s AND added_id BETWEEN %s AND %s"
# Of all that a cell has: a copy is the same log, not only the same cells. Not every MySQL has MD5.
SUM = f"""\
SELECT COUNT(*), COALESCE(SUM(IF(ASCII(c.body) = {MARK_NUMBER}, 0, CAST(CONV(LEFT(SHA2(CONCAT(
 c.added_id, _binary'\\0', c.row_key, c.column_name, _binary'\\0', c.ref_key, _binary'\\0',
 c.created_at, c.body), 256), 16), 16, 10) AS UNSIGNED))), 0),
 (SELECT COUNT(*) FROM {{purged}} WHERE shard = %s AND added_id BETWEEN %s AND %s),
 COALESCE(SUM(ASCII(c.body) = {MARK_NUMBER}), 0)
 FROM {{cell}} c WHERE c.added_id BETWEEN %s AND %s"""
# Compressed bodies, of which the server cannot sum what they say: what is hashed of each, in two parts.
COMPRESSED = f"""\
SELECT c.added_id, CONCAT(c.added_id, _binary'\\0', c.row_key, c.column_name, _binary'\\0', c.ref_key, _binary'\\0',
 c.created_at), c.body
 FROM {{cell}} c WHERE c.added_id BETWEEN %s AND %s AND ASCII(c.body) = {MARK_NUMBER} ORDER BY c.added_id LIMIT %s"""
#: Of them at once.
CELLS_PER_PAGE = 2_000


class CopiedLogs(CopyRows):
    """The verbs about cells."""

    def write(
        self, shard: int, claim: int, after: int, epoch: int, page: LogSlice, deadline: Deadline
    ) -> CopySeen | None:
        def insert(connection: DeadlineConnection) -> int:
            self._insert(connection, shard, _portions(map(self._stored_row, page.cells)), page.purged)
            return page_end(page, after)

        return self._written(shard, claim, after, epoch, insert, deadline)

    def row_values(self, cells: Sequence[CellRecord]) -> list[bytes]:
        return list(_portions(map(self._row_of_record, cells)))

    def write_records(
        self, shard: int, claim: int, after: int, epoch: int, part: RecordPart, deadline: Deadline
    ) -> CopySeen | None:
        def insert(connection: DeadlineConnection) -> int:
            self._insert(connection, shard, part.values, part.purged)
            return part.last

        return self._written(shard, claim, after, epoch, insert, deadline)

    def _written(
        self,
        shard: int,
        claim: int,
        after: int,
        epoch: int,
        insert: Callable[[DeadlineConnection], int],
        deadline: Deadline,
    ) -> CopySeen | None:
        """`insert` says where the copy ends then."""

        def write(connection: DeadlineConnection) -> CopySeen | None:
            with self._held(connection, shard) as seen:
                if (
                    seen is None
                    or (seen.epoch, seen.head) != (epoch, after)
                    or not self._may(connection, shard, seen, claim)
                ):
                    return seen
                end = insert(connection)
                self._do(connection, MOVE_HEAD, (end + 1, shard))
                reach("copies.written")
            return seen._replace(head=end)

        return self._sessions.write(write, deadline)

    def cut(
        self,
        shard: int,
        claim: int,
        before: CopySeen,
        epoch: int,
        last: int,
        deadline: Deadline,
        history: Rows = (),
    ) -> CopySeen | None:
        def cut(connection: DeadlineConnection) -> CopySeen | None:
            with self._held(connection, shard) as seen:
                if seen != before or not self._may(connection, shard, seen, claim):
                    return seen
                head = min(seen.head, last)
                self._do(connection, self._of(CUT_CELLS, shard), (head,))
                self._do(connection, CUT_PURGED, (shard, head))
                if history:
                    table = TABLES["shard_epoch"]
                    self._do(connection, table.delete, (shard,))
                    self._fill(connection, table.insert, table.update, history)
                    reach("copies.history_written")
                self._do(connection, CUT, (head + 1, epoch, shard))
            return CopySeen(epoch, "MOVED", head)

        return self._sessions.write(cut, deadline)

    def replace(self, shard: int, claim: int, first: int, page: LogSlice, last: int, deadline: Deadline) -> None:
        def replace(connection: DeadlineConnection) -> None:
            with self._held(connection, shard) as seen:
                if self._may(connection, shard, seen, claim):
                    self._do(connection, self._of(DELETE_CELLS, shard), (first, last))
                    self._do(connection, DELETE_PURGED, (shard, first, last))
                    self._insert(connection, shard, _portions(map(self._stored_row, page.cells)), page.purged)

        self._sessions.write(replace, deadline)

    def sum(self, shard: int, first: int, last: int, deadline: Deadline) -> LogSum:
        def add(connection: DeadlineConnection) -> LogSum:
            (found,) = self._rows(connection, self._of(SUM, shard), (shard, first, last, first, last))
            cells, total, purged, compressed = map(int, found)
            if compressed:
                total += self._sum_of_compressed(connection, shard, first, last)
            return LogSum(cells, total, purged)

        return self._sessions.run(add, deadline)

    def _sum_of_compressed(self, connection: DeadlineConnection, shard: int, first: int, last: int) -> int:
        """The same sum of what compressed bodies say."""
        total = 0
        while page := self._rows(connection, self._of(COMPRESSED, shard), (first, last, CELLS_PER_PAGE)):
            for _added_id, beside, body in page:
                total += int.from_bytes(sha256(beside + self.names.bodies.plain(body)).digest()[:8], "big")
            first = page[-1][0] + 1
        return total

    def _stored_row(self, cell: StoredCell) -> bytes:
        created_at = cell.created_at.replace(tzinfo=None).isoformat(" ").encode()
        return self._row_of_record(CellRecord(*cell[:5], created_at))

    def _row_of_record(self, cell: CellRecord) -> bytes:
        """As this server keeps bodies, whatever its source did."""
        added_id, row_key, column_name, ref_key, body, created_at = cell
        return b"(%d,_binary'%s',_binary'%s',%d,_binary'%s','%s')" % (
            added_id,
            quoted(row_key),
            quoted(column_name),
            ref_key,
            quoted(self.names.bodies.kept_body(column_name, body)),
            quoted(created_at),
        )

    def _insert(
        self, connection: DeadlineConnection, shard: int, portions: Iterable[bytes], purged: Collection[int]
    ) -> None:
        head = self._of(INSERT, shard).encode()
        for values in portions:
            sent(connection, head + values)
        ids = sorted(purged)
        for first in range(0, len(ids), ROWS_PER_STATEMENT):
            rows = ", ".join(
                f"({int(shard)}, {int(added_id)}, UTC_TIMESTAMP(6))"
                for added_id in ids[first : first + ROWS_PER_STATEMENT]
            )
            self._do(connection, PURGED.replace("ROWS", rows))


def _portions(rows: Iterable[bytes]) -> Iterator[bytes]:
    """As many as one statement takes: of small cells thousands, of the largest one."""
    group: list[bytes] = []
    size = 0
    for row in rows:
        if group and size + len(row) > BYTES_PER_STATEMENT:
            yield b",".join(group)
            group, size = [], 0
        group.append(row)
        size += len(row)
    if group:
        yield b",".join(group)
