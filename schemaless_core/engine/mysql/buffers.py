"""The buffer of one MySQL or MariaDB server: cells for shards of others.

A packet that keeps cells takes the counter row of one of this server's own shards first, and inserts only if that
admits the writer. A hand-over changes all counter rows of a server by one statement, so it comes before or after.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from pymysql import err

from schemaless_core import metrics
from schemaless_core.cell.page_bytes import fitting
from schemaless_core.cell.standing import Gate, ShardState
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
from schemaless_core.engine.mysql.names import Names
from schemaless_core.engine.mysql.rows import utc, values_of
from schemaless_core.engine.mysql.wire.connection import DeadlineConnection, binary, bound
from schemaless_core.engine.mysql.wire.sessions import Sessions
from schemaless_core.engine.mysql.wire.transactions import TRIES, send, transact
from schemaless_core.engine.mysql.wire.translation import is_deadlock
from schemaless_core.engine.mysql.writes import condition_of
from schemaless_core.errors import SchemaMissing, missing_shard
from schemaless_core.failpoints import reach

T = TypeVar("T")

TAKE_COUNTER = "SELECT epoch, authority_epoch, {status_held} FROM {state} WHERE shard = %s FOR UPDATE"
KEEP = """\
INSERT INTO {buffered} (shard, row_key, column_name, ref_key, body, body_bytes, kept_at)
WITH w (n, shard, row_key, column_name, ref_key, body) AS (VALUES ROWS)
SELECT w.shard, w.row_key, w.column_name, w.ref_key, w.body, LENGTH(w.body), UTC_TIMESTAMP(6)
 FROM w WHERE EXISTS (SELECT 1 FROM {state} WHERE GATE) ORDER BY w.n
ON DUPLICATE KEY UPDATE ref_key = {buffered}.ref_key"""
# One cell, as most puts have, takes its counter row by the insert itself. A count of 0 says that something stands in
# its way, and the packet of several says what.
KEEP_ONE = """\
INSERT INTO {buffered} (shard, row_key, column_name, ref_key, body, body_bytes, kept_at)
SELECT VALUES OF ONE, UTC_TIMESTAMP(6) FROM {state} WHERE GATE FOR UPDATE
ON DUPLICATE KEY UPDATE ref_key = {buffered}.ref_key"""
# Of what the statement before inserted, in its transaction. To a client that is gone the count is another one: then it
# is not marked, and nobody is told that it is.
SECOND_ONE = """\
INSERT INTO {second} (number, kept_at) SELECT LAST_INSERT_ID(), UTC_TIMESTAMP(6) FROM DUAL WHERE ROW_COUNT() = 1"""
SECOND = """\
INSERT INTO {second} (number, kept_at)
WITH w (row_key, column_name, ref_key, digest) AS (VALUES ROWS)
SELECT b.number, UTC_TIMESTAMP(6) FROM w JOIN {buffered} b
 ON b.row_key = w.row_key AND b.column_name = w.column_name AND b.ref_key = w.ref_key
 WHERE SHA2(b.body, 256) = w.digest AND EXISTS (SELECT 1 FROM {state} WHERE GATE)
ON DUPLICATE KEY UPDATE number = {second}.number"""
# What stands under the keys, by digests: the bodies themselves would travel twice.
LOOK = """\
SELECT row_key, column_name, ref_key, SHA2(body, 256) FROM {buffered} WHERE (row_key, column_name, ref_key) IN (KEYS)"""

_CELL = "number, shard, row_key, column_name, ref_key, body, kept_at"
FIRST = "SELECT number, body_bytes FROM {buffered} ORDER BY number LIMIT %s"
FIRST_OF = "(SELECT number, body_bytes FROM {buffered} WHERE shard = %s AND number > %s ORDER BY number LIMIT %s)"
_IS_SECOND = "EXISTS (SELECT 1 FROM {second} s WHERE s.number = {buffered}.number)"
THESE = f"SELECT {_CELL}, {_IS_SECOND} FROM {{buffered}} WHERE number IN %s ORDER BY number"
FIND = """\
SELECT row_key, column_name, ref_key, body FROM {buffered} WHERE (row_key, column_name, ref_key) IN %s
 ORDER BY number"""
LATEST = """\
SELECT b.row_key, b.column_name, b.ref_key, b.body
 FROM (SELECT row_key, column_name, MAX(ref_key) AS ref_key FROM {buffered}
   WHERE row_key IN %s GROUP BY row_key, column_name) m
 JOIN {buffered} b ON b.row_key = m.row_key AND b.column_name = m.column_name AND b.ref_key = m.ref_key"""
VERSIONS = """\
SELECT ref_key, body_bytes FROM {buffered} FORCE INDEX (buffered_key)
 WHERE row_key = %s AND column_name = %s AND (%s IS NULL OR ref_key < %s) ORDER BY ref_key DESC LIMIT %s"""
NOTE = f"""\
INSERT INTO {{conflict}} ({_CELL}, stored_body, found_at)
WITH w (number, stored_body) AS (VALUES ROWS)
SELECT b.number, b.shard, b.row_key, b.column_name, b.ref_key, b.body, b.kept_at, w.stored_body, UTC_TIMESTAMP(6)
 FROM w JOIN {{buffered}} b ON b.number = w.number
ON DUPLICATE KEY UPDATE shard = {{conflict}}.shard"""
# Under the lock of its row: who makes it a second copy has that first.
REMOVE = f"DELETE FROM {{buffered}} WHERE number IN %s AND NOT {_IS_SECOND}"
REMOVE_KEPT = "DELETE FROM {buffered} WHERE number IN %s"
REMOVE_SECOND = "DELETE FROM {second} WHERE number IN %s"
SHARDS = "SELECT DISTINCT shard FROM {buffered} ORDER BY shard"
COLUMNS = "SELECT DISTINCT column_name FROM {buffered} ORDER BY column_name"
SIZE = """\
SELECT COUNT(*), COALESCE(SUM(body_bytes), 0), (SELECT kept_at FROM {buffered} ORDER BY number LIMIT 1),
 (SELECT COUNT(*) FROM {conflict}), YOUNG FROM {buffered}"""
YOUNG = f"""\
(SELECT COUNT(*) FROM {{second}} s JOIN {{buffered}} b ON b.number = s.number
 WHERE s.kept_at > UTC_TIMESTAMP(6) - INTERVAL {SECOND_SECONDS} SECOND)"""
CONFLICTS = f"SELECT {_CELL}, stored_body, found_at FROM {{conflict}} ORDER BY number LIMIT %s"
CLOSE = "DELETE FROM {conflict} WHERE number IN %s"


class MySQLBuffers:
    """The `BufferTables` of one server."""

    def __init__(self, sessions: Sessions, names: Names) -> None:
        self._sessions = sessions
        self.names = names

    def keep(
        self, gate: Gate, cells: Sequence[Offered], deadline: Deadline, *, are_second: bool = False
    ) -> list[bytes | None]:
        if len(cells) == 1 and self._sessions.write(
            lambda connection: self._is_kept(connection, gate, cells[0], deadline, is_second=are_second), deadline
        ):
            return [None]
        wanted = {cell[:3]: hashlib.sha256(cell.body).hexdigest() for _shard, cell in cells}
        while True:
            digests = self._sessions.write(
                lambda connection: self._keep(connection, gate, cells, deadline, are_second=are_second), deadline
            )
            others = {key for key, digest in wanted.items() if digests.get(key) != digest}
            found = {cell[:3]: cell.body for cell in self.find(others, deadline)}
            if others <= found.keys():
                bodies = [found[cell[:3]] if cell[:3] in others else cell.body for _shard, cell in cells]
                return [None if body == cell.body else body for body, (_shard, cell) in zip(bodies, cells, strict=True)]
            # What stood under a key was carried to its shard meanwhile. The cell of this call is not there yet.

    def _is_kept(
        self, connection: DeadlineConnection, gate: Gate, offered: Offered, deadline: Deadline, *, is_second: bool
    ) -> bool:
        """Whether nothing stood in the way of one cell."""
        packet = _packet_of_one(connection, self.names, gate, offered, is_second=is_second)
        return _sent(deadline, lambda: _is_inserted(connection, packet, is_second=is_second))

    def _keep(
        self,
        connection: DeadlineConnection,
        gate: Gate,
        cells: Sequence[Offered],
        deadline: Deadline,
        *,
        are_second: bool,
    ) -> dict[tuple[bytes, bytes, int], str]:
        """Return the digest of what stands under each key once the packet is through."""
        packet = _packet(connection, self.names, gate, cells, are_second=are_second)
        state, rows = _sent(deadline, lambda: _replies(connection, packet))
        if state is None:
            raise missing_shard(gate.shard)
        gate.check_write(state)
        return {(row_key, column_name, ref_key): digest for row_key, column_name, ref_key, digest in rows}

    def waiting(
        self,
        shards: Collection[int] | None,
        limit: int,
        body_bytes: int,
        deadline: Deadline,
        after: Mapping[int, int] = NOT_PASSED,
    ) -> list[BufferedCell]:
        if shards is None:
            first = self._rows(FIRST, (limit,), deadline)
        else:
            values = [value for shard in shards for value in (shard, after.get(shard, 0), limit)]
            statement = " UNION ALL ".join([self.names.meta_sql(FIRST_OF)] * len(shards))
            first = sorted(self._filled_rows(statement, tuple(values), deadline)) if shards else ()
        numbers = [number for number, _size in first[: fitting((size for _number, size in first), body_bytes)]]
        return [_cell(row) for row in self._known(THESE, (numbers,), deadline)] if numbers else []

    def find(self, keys: Collection[CellKeyBytes], deadline: Deadline) -> list[NewCell]:
        return [NewCell(*row) for row in self._rows(FIND, (sorted(keys),), deadline)] if keys else []

    def latest(self, row_keys: Collection[bytes], deadline: Deadline) -> list[NewCell]:
        return [NewCell(*row) for row in self._rows(LATEST, (sorted(row_keys),), deadline)] if row_keys else []

    def history(
        self, row_key: bytes, column_name: bytes, before: int | None, limit: int, deadline: Deadline
    ) -> BufferedPage:
        versions = self._rows(VERSIONS, (row_key, column_name, before, before, limit), deadline)
        room = fitting(size for _ref_key, size in versions)
        # What is carried to its shard between the two statements is found there: buffers are asked first.
        found = self.find([(row_key, column_name, ref_key) for ref_key, _size in versions[:room]], deadline)
        cut_at = versions[room - 1][0] if room < len(versions) else None
        return BufferedPage(sorted(found, key=lambda cell: -cell.ref_key), cut_at)

    def settle(
        self,
        there: Sequence[int],
        conflicts: Mapping[int, bytes],
        deadline: Deadline,
        *,
        second: Collection[int] = (),
    ) -> None:
        plain = [number for number in there if number not in second]
        kept = sorted({*conflicts, *(number for number in there if number in second)})

        def settle(connection: DeadlineConnection, removes: Sequence[tuple[str, Sequence[int]]]) -> None:
            statements = []
            if conflicts:
                rows = [b"%d, %s" % (number, binary(stored)) for number, stored in conflicts.items()]
                note = self.names.meta_sql(NOTE).encode()
                statements.append(note.replace(b"VALUES ROWS", values_of(connection, rows)))
            for remove, numbers in removes:
                if numbers:
                    statements.append(bound(connection, self.names.meta_sql(remove), (list(numbers),)))
            transact(connection, statements, deadline)

        if not there and not conflicts:
            return
        try:
            removes = ((REMOVE, plain), (REMOVE_KEPT, kept), (REMOVE_SECOND, kept))
            self._sessions.write(lambda connection: settle(connection, removes), deadline)
        except SchemaMissing:  # of a version without second copies
            gone = ((REMOVE_KEPT, sorted({*there, *conflicts})),)
            self._sessions.write(lambda connection: settle(connection, gone), deadline)

    def shards(self, deadline: Deadline) -> list[int]:
        return [shard for (shard,) in self._rows(SHARDS, (), deadline)]

    def columns(self, deadline: Deadline) -> set[str]:
        return {name.decode() for (name,) in self._rows(COLUMNS, (), deadline)}

    def size(self, deadline: Deadline) -> BufferSize:
        ((cells, size, oldest_at, conflicts, young),) = self._known(SIZE, (), deadline)
        return BufferSize(cells, int(size), None if oldest_at is None else utc(oldest_at), conflicts, int(young))

    def conflicts(self, limit: int, deadline: Deadline) -> list[BufferConflict]:
        return [
            BufferConflict(_cell((*row, False)), stored, utc(found_at))
            for *row, stored, found_at in self._rows(CONFLICTS, (limit,), deadline)
        ]

    def close_conflicts(self, numbers: Sequence[int], deadline: Deadline) -> int:
        if not numbers:
            return 0
        return self._sessions.write(lambda connection: self._close(connection, numbers, deadline), deadline)

    def _close(self, connection: DeadlineConnection, numbers: Sequence[int], deadline: Deadline) -> int:
        close = bound(connection, self.names.meta_sql(CLOSE), (list(numbers),))
        return transact(connection, [close], deadline).changed

    def _known(self, statement: str, values: tuple[Any, ...], deadline: Deadline) -> Sequence[tuple[Any, ...]]:
        """What a statement says that tells second copies; of a version before them it tells none."""
        try:
            return self._rows(statement.replace("YOUNG", YOUNG), values, deadline)
        except SchemaMissing:
            return self._rows(statement.replace("YOUNG", "0").replace(_IS_SECOND, "0"), values, deadline)

    def _rows(self, statement: str, values: tuple[Any, ...], deadline: Deadline) -> Sequence[tuple[Any, ...]]:
        return self._filled_rows(self.names.meta_sql(statement), values, deadline)

    def _filled_rows(self, statement: str, values: tuple[Any, ...], deadline: Deadline) -> Sequence[tuple[Any, ...]]:
        def read(connection: DeadlineConnection) -> Sequence[tuple[Any, ...]]:
            with connection.cursor() as cursor:
                cursor.execute(statement, values)
                return cursor.fetchall()

        return self._sessions.run(read, deadline)


def _sent(deadline: Deadline, packet: Callable[[], T]) -> T:
    """Run a packet, again after a deadlock."""
    reach("buffer.before_send")
    for attempt in range(1, TRIES + 1):
        try:
            answer = packet()
            break
        except err.Error as error:
            if not is_deadlock(error) or attempt == TRIES or deadline.is_over:
                raise
        metrics.call_repeated("deadlock")
    reach("buffer.answered")
    return answer


def _packet_of_one(
    connection: DeadlineConnection, names: Names, gate: Gate, offered: Offered, *, is_second: bool
) -> bytes:
    shard, cell = offered
    keys = (binary(cell.row_key), binary(cell.column_name), cell.ref_key)
    values = b"%d, %s, %s, %d, %s, %d" % (shard, *keys, binary(cell.body), len(cell.body))
    keep = bound(connection, _gated(names, KEEP_ONE, gate), gate.identity).replace(b"VALUES OF ONE", values, 1)
    statements = [f"{names.look}BEGIN".encode(), keep, b"COMMIT"]
    if is_second:
        statements.insert(2, names.meta_sql(SECOND_ONE).encode())
    return b"; ".join(statements)


def _is_inserted(connection: DeadlineConnection, packet: bytes, *, is_second: bool) -> bool:
    """Whether the packet inserted its cell, and marked it, as the replies to its inserts say."""
    with send(connection, packet) as cursor:
        counts = [cursor.rowcount]
        while cursor.nextset():
            counts.append(cursor.rowcount)
    return counts[-3:-1] == [1, 1] if is_second else counts[-2] == 1


def _packet(
    connection: DeadlineConnection, names: Names, gate: Gate, cells: Sequence[Offered], *, are_second: bool
) -> bytes:
    keys = [b"(%s, %s, %d)" % (binary(cell.row_key), binary(cell.column_name), cell.ref_key) for _shard, cell in cells]
    second = [_second(connection, names, gate, [cell for _shard, cell in cells])] if are_second else []
    statements = [
        f"{names.look}BEGIN".encode(),
        bound(connection, names.meta_sql(TAKE_COUNTER), (gate.shard,)),
        _insert(connection, names, gate, cells),
        names.meta_sql(LOOK).encode().replace(b"KEYS", b", ".join(keys)),
        *second,
        b"COMMIT",
    ]
    return b"; ".join(statements)


def _gated(names: Names, template: str, gate: Gate) -> str:
    return names.meta_sql(template).replace("GATE", condition_of(names, gate))


def _insert(connection: DeadlineConnection, names: Names, gate: Gate, cells: Sequence[Offered]) -> bytes:
    rows = [
        b"%d, %d, %s, %s, %d, %s"
        % (n, shard, binary(cell.row_key), binary(cell.column_name), cell.ref_key, binary(cell.body))
        for n, (shard, cell) in enumerate(cells)
    ]
    statement = bound(connection, _gated(names, KEEP, gate), gate.identity)
    return statement.replace(b"VALUES ROWS", values_of(connection, rows))


def _second(connection: DeadlineConnection, names: Names, gate: Gate, cells: Sequence[NewCell]) -> bytes:
    """Mark those that are kept, with these bodies, as second copies."""
    rows = [
        b"%s, %s, %d, '%s'"
        % (binary(cell.row_key), binary(cell.column_name), cell.ref_key, hashlib.sha256(cell.body).hexdigest().encode())
        for cell in cells
    ]
    statement = bound(connection, _gated(names, SECOND, gate), gate.identity)
    return statement.replace(b"VALUES ROWS", values_of(connection, rows))


def _replies(connection: DeadlineConnection, packet: bytes) -> tuple[ShardState | None, Sequence[tuple[Any, ...]]]:
    """Read the replies to their end: the state of the gate's shard, under its lock, and what stands under the keys."""
    with send(connection, packet) as cursor:
        while cursor.description is None:  # the first statement that answers with rows
            cursor.nextset()
        states = cursor.fetchall()
        cursor.nextset()
        cursor.nextset()
        rows = cursor.fetchall()
        while cursor.nextset():
            pass  # to the reply of COMMIT
    return (ShardState(*states[0]) if states else None), rows


def _cell(row: Sequence[Any]) -> BufferedCell:
    number, shard, row_key, column_name, ref_key, body, kept_at, is_second = row
    return BufferedCell(number, shard, NewCell(row_key, column_name, ref_key, body), utc(kept_at), bool(is_second))
