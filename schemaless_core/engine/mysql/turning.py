"""Bodies of a log in another form: read, made anew here, and put in place of the same bytes.

No counter row is taken: no id is given, no writer waits. A statement changes bytes that are still as they were read.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple

from schemaless_core.cell.standing import Gate, ShardState
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import BYTES_PER_BATCH
from schemaless_core.engine.mending import check_mend
from schemaless_core.engine.mysql.counted import STATE, CounterVerbs
from schemaless_core.engine.mysql.wire.connection import DeadlineConnection, binary
from schemaless_core.engine.mysql.wire.transactions import transact
from schemaless_core.engine.turning import Turned
from schemaless_core.errors import missing_shard
from schemaless_core.failpoints import reach

READ = """\
SELECT added_id, column_name, body FROM {cell} WHERE added_id > %s AND added_id <= %s ORDER BY added_id LIMIT %s"""
SET_BODIES = """\
UPDATE {cell} SET body = CASE added_id NEW_BODIES END
 WHERE added_id IN (ADDED_IDS) AND SHA2(body, 256) = CASE added_id DIGESTS END
  AND EXISTS (SELECT 1 FROM {state} WHERE GATE)"""


class _Change(NamedTuple):
    added_id: int
    before: bytes
    after: bytes


class MySQLTurning(CounterVerbs):
    """A `Turning`."""

    def look(self, shard: int, after: int, last: int, limit: int, deadline: Deadline) -> Turned:
        changes, reached = self._read(shard, after, last, limit, deadline)
        return _turned(len(changes), changes, reached)

    def turn(self, gate: Gate, after: int, last: int, limit: int, deadline: Deadline) -> Turned:
        changes, reached = self._read(gate.shard, after, last, limit, deadline)
        if not changes:
            return _turned(0, changes, reached)

        def change(connection: DeadlineConnection) -> Turned:
            look = self._bound(connection, gate, STATE, (gate.shard,))
            reach("turning.before_send")
            reply = transact(connection, [self._statement(connection, gate, changes)], deadline, look)
            reach("turning.answered")
            if not reply.rows:
                raise missing_shard(gate.shard)
            if not reply.changed:  # all of them changed meanwhile, or the shard refused
                check_mend(gate, ShardState(*reply.rows[0]))
            return _turned(reply.changed, changes, reached)

        return self._sessions.write(change, deadline)

    def _read(self, shard: int, after: int, last: int, limit: int, deadline: Deadline) -> tuple[list[_Change], int]:
        """What of the next cells is to be changed, and the added id that this look came to."""

        def read(connection: DeadlineConnection) -> tuple[Sequence[tuple[int, bytes, bytes]], bool]:
            connection.row_bytes_left = BYTES_PER_BATCH
            with connection.cursor() as cursor:
                cursor.execute(self.names.sql(READ, shard), (after, last, limit))
                rows = cursor.fetchall()
            return rows, connection.is_cut or len(rows) == limit

        rows, is_cut = self._sessions.run(read, deadline)
        bodies = self.names.bodies
        made = (_Change(added_id, body, bodies.anew(name, body)) for added_id, name, body in rows)
        changes, size, reached = list[_Change](), 0, rows[-1][0] if is_cut else last
        for each in made:
            if each.after != each.before:
                changes.append(each)
            size += len(each.after)
            if size >= BYTES_PER_BATCH:  # plain bodies may be many times as large
                reached = min(reached, each.added_id)
                break
        return changes, reached

    def _statement(self, connection: DeadlineConnection, gate: Gate, changes: Sequence[_Change]) -> bytes:
        statement = self._bound(connection, gate, SET_BODIES, gate.identity)
        ids = b", ".join(b"%d" % each.added_id for each in changes)
        digests = b" ".join(
            b"WHEN %d THEN '%s'" % (each.added_id, sha256(each.before).hexdigest().encode()) for each in changes
        )
        bodies = b" ".join(b"WHEN %d THEN %s" % (each.added_id, binary(each.after)) for each in changes)
        # Bodies last: they may hold any word.
        return statement.replace(b"ADDED_IDS", ids, 1).replace(b"DIGESTS", digests, 1).replace(b"NEW_BODIES", bodies, 1)


def _turned(cells: int, changes: Sequence[_Change], reached: int) -> Turned:
    return Turned(cells, sum(len(each.before) for each in changes), sum(len(each.after) for each in changes), reached)
