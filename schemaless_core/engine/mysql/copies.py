"""Copies of shards, and how one becomes the shard: `CopyTables` on MySQL or MariaDB.

Whatever changes a copy holds its row, and looks first whether it is a copy: a process that was stopped changes nothing
of a shard that was opened meanwhile. Cells go by multi-row INSERTs with the added ids and times that they have.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from schemaless_core.cell.stored import StoredCell
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import BYTES_PER_BATCH, IndexTable, LogSlice
from schemaless_core.engine.copies import Beside, CopySeen, LogSum, Rows
from schemaless_core.engine.index_sql import columns
from schemaless_core.engine.mysql import beside_sql, schema
from schemaless_core.engine.mysql.authority import transact_patiently
from schemaless_core.engine.mysql.names import Names
from schemaless_core.engine.mysql.rows import binary, quoted
from schemaless_core.engine.mysql.wire.connection import DeadlineConnection
from schemaless_core.engine.mysql.wire.sessions import Sessions
from schemaless_core.engine.mysql.wire.transactions import bound, transact
from schemaless_core.engine.primacy import Opening
from schemaless_core.failpoints import reach

T = TypeVar("T")

LOOK = "SELECT epoch, state, CAST(next_added_id AS SIGNED) - 1 FROM {state} WHERE shard = %s"
HOLD = f"{LOOK} FOR UPDATE"
MAKE = """\
INSERT INTO {state} (shard, epoch, authority_epoch, state, next_added_id, last_created_at)
 VALUES (%s, 0, 0, 'MOVED', 1, '1970-01-01') ON DUPLICATE KEY UPDATE shard = VALUES(shard)"""
# The claim is a line of the history before all epochs; it goes when the copy arrives.
LATEST_EPOCH = "SELECT COALESCE(MAX(epoch), 0) FROM {history} WHERE shard = %s"
CLAIM = """\
INSERT INTO {history} (shard, epoch, first_added_id, opened_at, why)
 VALUES (%s, 0, %s, UTC_TIMESTAMP(6), 'claimed by a mover')
 ON DUPLICATE KEY UPDATE first_added_id = VALUES(first_added_id)"""
CLAIMED = "SELECT 1 FROM {history} WHERE shard = %s AND epoch = 0 AND first_added_id = %s"
UNCLAIM = """\
DELETE FROM {history} WHERE shard = %s AND epoch = 0
 AND EXISTS (SELECT 1 FROM {state} s WHERE s.shard = %s AND s.state <> 'MOVED')"""
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

BUCKETS = 1024
_BUCKET = f"CRC32(row_key) % {BUCKETS}"
ENTRY_SUMS = f"SELECT {_BUCKET} AS bucket, COUNT(*), SUM(CRC32(CONCAT_WS('|', HEXED))) FROM TABLE GROUP BY bucket"
ENTRIES = f"SELECT COLUMNS FROM TABLE WHERE {_BUCKET} IN (BUCKETS)"
DELETE_ENTRIES = f"DELETE FROM TABLE WHERE {_BUCKET} IN (BUCKETS)"

LEAVE = "UPDATE {state} SET state = 'GOING' WHERE shard = %s AND epoch = %s AND state IN ('RW', 'COPY')"
CLOSE = "UPDATE {state} SET state = 'MOVED' WHERE shard = %s AND epoch <= %s AND state <> 'MOVED'"
# A promotion fences a server under its lock, and leaves it read-only. A copy is no shard that it could fence.
TAKE = "SELECT GET_LOCK(%s, 1)"
GIVE_BACK = "SELECT RELEASE_LOCK(%s)"
ARRIVE = """\
UPDATE {state} SET epoch = %s, state = 'COMES'
 WHERE shard = %s AND state = 'MOVED' AND epoch = %s AND next_added_id = %s AND @@GLOBAL.read_only = 0
 AND IS_USED_LOCK(%s) = CONNECTION_ID()
 AND EXISTS (SELECT 1 FROM {history} WHERE shard = %s AND epoch = %s)"""
_MAY_OPEN = "shard = %s AND (state = 'COMES' AND epoch <= %s OR state IN ('GOING', 'RW', 'COPY') AND epoch < %s)"
OPEN = f"""\
UPDATE {{state}} SET epoch = %s, state = %s, authority_epoch = %s WHERE {_MAY_OPEN} AND authority_epoch <= %s"""
OPEN_AS_BEFORE = f"""\
UPDATE {{state}} SET epoch = %s, state = IF(state IN ('RW', 'COPY'), state, COALESCE((
  SELECT h.state FROM {{authority}} h WHERE h.shard = {{state}}.shard
  AND h.authority_epoch = {{state}}.authority_epoch AND h.state IN ('RW', 'COPY')
  ORDER BY h.first_added_id DESC, h.at DESC LIMIT 1), 'RW')) WHERE {_MAY_OPEN}"""
NOTE_EPOCH = """\
INSERT INTO {history} (shard, epoch, first_added_id, opened_at, why)
 SELECT shard, epoch, next_added_id, UTC_TIMESTAMP(6), %s FROM {state}
 WHERE shard = %s AND epoch = %s AND state IN ('RW', 'COPY') ON DUPLICATE KEY UPDATE epoch = {history}.epoch"""
NOTE_AUTHORITY = """\
INSERT INTO {authority} (shard, authority_epoch, state, first_added_id, at)
 SELECT shard, authority_epoch, state, next_added_id, UTC_TIMESTAMP(6) FROM {state}
 WHERE shard = %s AND state IN ('RW', 'COPY') ON DUPLICATE KEY UPDATE at = {authority}.at"""

#: Cells in one INSERT, and rows of what stands beside them.
ROWS_PER_STATEMENT = 500


class MySQLCopies:
    """A `CopyTables`."""

    def __init__(self, sessions: Sessions, names: Names) -> None:
        self._sessions = sessions
        self.names = names

    def look(self, shard: int, deadline: Deadline) -> CopySeen | None:
        return self._sessions.run(lambda connection: self._look(connection, shard), deadline)

    def prepare(self, shard: int, claim: int, epoch: int, deadline: Deadline) -> None:
        def make(connection: DeadlineConnection) -> None:
            schema.create_tables(connection, self.names, shard)
            self._do(connection, MAKE, (shard,))
            with self._held(connection, shard) as seen:
                ((latest,),) = self._rows(connection, LATEST_EPOCH, (shard,))
                if seen is not None and seen.state == "MOVED" and latest <= epoch:
                    self._do(connection, CLAIM, (shard, claim))

        self._sessions.write(make, deadline)

    # ---- the log -------------------------------------------------------------------------------------------------

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
                end = end_of(page, after)
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
            _send(connection, head + b", ".join(group))
        purged = sorted(page.purged)
        for first in range(0, len(purged), ROWS_PER_STATEMENT):
            rows = ", ".join(
                f"({int(shard)}, {int(added_id)}, UTC_TIMESTAMP(6))"
                for added_id in purged[first : first + ROWS_PER_STATEMENT]
            )
            self._do(connection, PURGED.replace("ROWS", rows))

    # ---- beside it -----------------------------------------------------------------------------------------------

    def beside(self, shard: int, mark: int, deadline: Deadline) -> Beside:
        def read(connection: DeadlineConnection) -> Beside:
            (row,) = self._rows(connection, beside_sql.ROW, (shard,))
            tables = {name: self._rows(connection, table.select, (shard,)) for name, table in beside_sql.TABLES.items()}
            mended = self._rows(connection, beside_sql.MENDED, (shard, mark))
            lines = [line[1:] for line in mended]
            return Beside(int(row[0]), row[1], tables, lines, max((line[0] for line in mended), default=mark))

        return self._sessions.run(read, deadline)

    def put_beside(self, shard: int, claim: int, beside: Beside, epoch: int, deadline: Deadline) -> bool:
        def put(connection: DeadlineConnection) -> bool:
            with self._held(connection, shard) as seen:
                if seen is None or not self._may(connection, shard, seen, claim):
                    return False
                for name, table in beside_sql.TABLES.items():
                    if table.delete:
                        self._do(connection, table.delete, (shard,))
                    self._fill(connection, table.insert, table.update, beside.tables[name])
                self._fill(connection, beside_sql.PUT_MENDED, beside_sql.SAME_TOKEN, beside.mended)
                values = (beside.authority_epoch, beside.last_created_at, shard)
                self._do(connection, beside_sql.TAKE_OVER, values)
                if epoch:
                    self._do(connection, beside_sql.MAY_ARRIVE, (shard, epoch, seen.head + 1))
            return True

        return self._sessions.write(put, deadline)

    def put_late(self, shard: int, offsets: Rows, deadline: Deadline) -> None:
        table = beside_sql.TABLES["trigger_offset"]
        self._sessions.write(
            lambda connection: self._fill(connection, table.insert, beside_sql.OFFSETS_STAY, offsets), deadline
        )

    def forget_beside(self, shard: int, epoch: int, deadline: Deadline) -> None:
        def forget(connection: DeadlineConnection) -> None:
            with self._held(connection, shard) as seen:
                if seen is not None and seen.state == "MOVED" and seen.epoch <= epoch:
                    for statement in beside_sql.FORGET:
                        self._do(connection, statement, (shard,))

        self._sessions.write(forget, deadline)

    def _fill(self, connection: DeadlineConnection, insert: str, update: str, rows: Rows) -> None:
        for first in range(0, len(rows), ROWS_PER_STATEMENT):
            _send(
                connection,
                self._filled(connection, self._of(insert), self._of(update), rows[first : first + ROWS_PER_STATEMENT]),
            )

    def _filled(self, connection: DeadlineConnection, insert: str, update: str, rows: Rows) -> bytes:
        places = f"({', '.join(['%s'] * len(rows[0]))})"
        listed = b", ".join(bound(connection, places, row) for row in rows)
        return b"%s VALUES %s %s" % (insert.encode(), listed, update.encode())

    # ---- entries of indexes --------------------------------------------------------------------------------------

    def entry_sums(self, shard: int, table: IndexTable, deadline: Deadline) -> dict[int, tuple[int, int]]:
        hexed = ", ".join(f"IFNULL(HEX(CAST({column} AS BINARY)), '-')" for column in columns(table))
        statement = self._of_entries(ENTRY_SUMS, shard, table).replace("HEXED", hexed)

        def add(connection: DeadlineConnection) -> dict[int, tuple[int, int]]:
            rows = self._rows(connection, statement)
            return {int(bucket): (int(count), int(total)) for bucket, count, total in rows}

        return self._sessions.run(add, deadline)

    def entries(self, shard: int, table: IndexTable, buckets: Collection[int], deadline: Deadline) -> Rows:
        statement = self._of_entries(ENTRIES, shard, table, buckets)
        return self._sessions.run(lambda connection: self._rows(connection, statement), deadline)

    def put_entries(
        self, shard: int, claim: int, table: IndexTable, buckets: Collection[int], rows: Rows, deadline: Deadline
    ) -> None:
        insert = f"INSERT INTO {self.names.index(shard, table.name)} ({', '.join(columns(table))})"

        def put(connection: DeadlineConnection) -> None:
            with self._held(connection, shard) as seen:
                if self._may(connection, shard, seen, claim):
                    self._do(connection, self._of_entries(DELETE_ENTRIES, shard, table, buckets))
                    self._fill(connection, insert, "", rows)

        self._sessions.write(put, deadline)

    def _of_entries(self, template: str, shard: int, table: IndexTable, buckets: Collection[int] = ()) -> str:
        statement = template.replace("TABLE", self.names.index(shard, table.name))
        statement = statement.replace("COLUMNS", ", ".join(columns(table)))
        return statement.replace("BUCKETS", ", ".join(str(int(bucket)) for bucket in sorted(buckets)))

    # ---- the shard -----------------------------------------------------------------------------------------------

    def leave(self, shard: int, epoch: int, deadline: Deadline) -> CopySeen | None:
        return self._changed(shard, [(LEAVE, (shard, epoch))], deadline)

    def close(self, shard: int, epoch: int, deadline: Deadline) -> None:
        self._changed(shard, [(CLOSE, (shard, epoch))], deadline)

    def open(self, shard: int, epoch: int, opening: Opening | None, why: str, deadline: Deadline) -> CopySeen | None:
        may = (shard, epoch, epoch)
        change: tuple[str, tuple[object, ...]]
        if opening is None:
            change = (OPEN_AS_BEFORE, (epoch, *may))
        else:
            how = (opening.status, opening.authority_epoch)
            change = (OPEN, (epoch, *how, *may, opening.authority_epoch))
        notes = [(NOTE_EPOCH, (why, shard, epoch)), (NOTE_AUTHORITY, (shard,))]
        return self._changed(shard, [change, *notes], deadline)

    def arrive(self, shard: int, epoch: int, copied_at: int, last: int, deadline: Deadline) -> CopySeen | None:
        lock = f"tripstore {self.names.datastore} primacy"

        def arrive(connection: DeadlineConnection) -> CopySeen | None:
            self._rows(connection, TAKE, (lock,))
            try:
                self._do(connection, ARRIVE, (epoch, shard, copied_at, last + 1, lock, shard, epoch))
                self._do(connection, UNCLAIM, (shard, shard))
            finally:
                self._rows(connection, GIVE_BACK, (lock,))
            return self._look(connection, shard)

        return self._sessions.write(arrive, deadline)

    def drop(self, shard: int, deadline: Deadline) -> bool:
        def drop(connection: DeadlineConnection) -> bool:
            with self._held(connection, shard) as seen:
                if seen is None or seen.state != "MOVED":
                    return False
                for statement in (*beside_sql.FORGET, *beside_sql.DROP):
                    self._do(connection, statement, (shard,))
            self._do(connection, f"DROP DATABASE IF EXISTS {self.names.database(shard)}")
            return True

        return self._sessions.write(drop, deadline)

    def _changed(
        self, shard: int, changes: Sequence[tuple[str, tuple[Any, ...]]], deadline: Deadline
    ) -> CopySeen | None:
        def change(connection: DeadlineConnection) -> CopySeen | None:
            statements = [bound(connection, self._of(statement), values) for statement, values in changes]
            if len(statements) == 1:
                transact(connection, statements, deadline)
            else:
                transact_patiently(connection, statements, deadline)
            return self._look(connection, shard)

        return self._sessions.write(change, deadline)

    # ---- connections ---------------------------------------------------------------------------------------------

    @contextmanager
    def _held(self, connection: DeadlineConnection, shard: int) -> Iterator[CopySeen | None]:
        """A transaction under the shard's row; it says nothing of the shard any more when the block fails."""
        connection.begin()
        try:
            found = self._rows(connection, HOLD, (shard,))
            yield CopySeen(int(found[0][0]), str(found[0][1]), int(found[0][2])) if found else None
        except BaseException:
            connection.rollback()
            raise
        connection.commit()

    def _may(self, connection: DeadlineConnection, shard: int, seen: CopySeen | None, claim: int) -> bool:
        """Whether it is a copy that this claim writes."""
        is_mine = self._rows(connection, CLAIMED, (shard, claim))
        return seen is not None and seen.state == "MOVED" and bool(is_mine)

    def _look(self, connection: DeadlineConnection, shard: int) -> CopySeen | None:
        found = self._rows(connection, LOOK, (shard,))
        return CopySeen(int(found[0][0]), str(found[0][1]), int(found[0][2])) if found else None

    def _rows(self, connection: DeadlineConnection, statement: str, values: tuple[Any, ...] = ()) -> Rows:
        with connection.cursor() as cursor:
            cursor.execute(self._of(statement), values or None)
            return cursor.fetchall()

    def _do(self, connection: DeadlineConnection, statement: str, values: tuple[Any, ...] = ()) -> None:
        with connection.cursor() as cursor:
            cursor.execute(self._of(statement), values or None)

    def _of(self, template: str, shard: int | None = None) -> str:
        if "{" not in template:
            return template
        filled = template if shard is None else template.replace("{cell}", self.names.cell(shard))
        return self.names.meta_sql(filled)


def end_of(page: LogSlice, after: int) -> int:
    """The last added id that a page leads to. Behind its cells, what was purged belongs to the next one."""
    return page.cells[-1].added_id if page.cells else max(page.purged, default=after)


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


def _send(connection: DeadlineConnection, statement: bytes) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)  # type: ignore[call-overload]  # PyMySQL takes bytes as they are; its stubs say str
