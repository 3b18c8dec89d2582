"""`MySQLCopies`: copies of shards, and how one becomes the shard."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from schemaless_core.deadline import Deadline
from schemaless_core.engine.copies import CopySeen
from schemaless_core.engine.mysql import schema
from schemaless_core.engine.mysql.authority import transact_patiently
from schemaless_core.engine.mysql.copies.beside import CopiedBeside
from schemaless_core.engine.mysql.copies.entries import CopiedEntries
from schemaless_core.engine.mysql.copies.logs import CopiedLogs
from schemaless_core.engine.mysql.copies.records import CopiedRecords
from schemaless_core.engine.mysql.copies.sums import CopiedSums
from schemaless_core.engine.mysql.copies.tables import FORGET
from schemaless_core.engine.mysql.copies.waiting import CopiedWaiting
from schemaless_core.engine.mysql.wire.connection import DeadlineConnection, bound
from schemaless_core.engine.mysql.wire.transactions import transact
from schemaless_core.engine.primacy import Opening
from schemaless_core.errors import NodeUnavailable
from schemaless_core.failpoints import reach

MAKE = """\
INSERT INTO {state} (shard, epoch, authority_epoch, state, next_added_id, last_created_at)
 VALUES (%s, 0, 0, 'MOVED', 1, '1970-01-01') ON DUPLICATE KEY UPDATE shard = VALUES(shard)"""
# The claim is a line of the history before all epochs; it goes when the copy arrives.
LATEST_EPOCH = "SELECT COALESCE(MAX(epoch), 0) FROM {history} WHERE shard = %s"
CLAIM = """\
INSERT INTO {history} (shard, epoch, first_added_id, opened_at, why)
 VALUES (%s, 0, %s, UTC_TIMESTAMP(6), 'claimed by a mover')
 ON DUPLICATE KEY UPDATE first_added_id = VALUES(first_added_id)"""
UNCLAIM = """\
DELETE FROM {history} WHERE shard = %s AND epoch = 0
 AND EXISTS (SELECT 1 FROM {state} s WHERE s.shard = %s AND s.state <> 'MOVED')"""
LEAVE = "UPDATE {state} SET state = 'GOING' WHERE shard = %s AND epoch = %s AND state IN ('RW', 'COPY')"
CLOSE = "UPDATE {state} SET state = 'MOVED' WHERE shard = %s AND epoch <= %s AND state <> 'MOVED'"
# A promotion fences a server under its lock, and leaves it read-only. A copy is no shard that it could fence.
TAKE = "SELECT GET_LOCK(%s, 1)"
GIVE_BACK = "SELECT RELEASE_LOCK(%s)"
ARRIVE = """\
UPDATE {state} SET epoch = %s, state = 'COMES'
 WHERE shard = %s AND state = 'MOVED' AND epoch = %s AND next_added_id = %s
 AND CAST(@@GLOBAL.read_only AS CHAR) IN ('0', 'OFF')
 AND IS_USED_LOCK(%s) = CONNECTION_ID()
 AND EXISTS (SELECT 1 FROM {history} WHERE shard = %s AND epoch = %s)"""
# A copy of no epoch never arrives, and a mover that goes on with it begins by a cut.
OF_NO_EPOCH = "UPDATE {state} SET epoch = 0 WHERE shard = %s"
EMPTY = "UPDATE {state} SET next_added_id = 1 WHERE shard = %s AND state = 'MOVED' AND epoch = 0"
NO_PURGED = "DELETE FROM {purged} WHERE shard = %s"
DROP = "DROP DATABASE IF EXISTS {database}"
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


class MySQLCopies(CopiedLogs, CopiedRecords, CopiedWaiting, CopiedBeside, CopiedSums, CopiedEntries):
    """A `CopyTables`."""

    def look(self, shard: int, deadline: Deadline) -> CopySeen | None:
        return self._sessions.run(lambda connection: self._look(connection, shard), deadline)

    def prepare(self, shard: int, claim: int, epoch: int, deadline: Deadline) -> None:
        def make(connection: DeadlineConnection) -> None:
            with self._kept_there(connection, shard):
                schema.create_tables(connection, self.names, shard)
                self._do(connection, MAKE, (shard,))
                with self._held(connection, shard) as seen:
                    ((latest,),) = self._rows(connection, LATEST_EPOCH, (shard,))
                    if seen is not None and seen.state == "MOVED" and latest <= epoch:
                        self._do(connection, CLAIM, (shard, claim))

        self._sessions.write(make, deadline)

    def drop(self, shard: int, claim: int, deadline: Deadline) -> bool:
        def drop(connection: DeadlineConnection) -> bool:
            with self._kept_there(connection, shard):
                if not self._is_given_up(connection, shard, claim):
                    return False
                reach("copies.given_up")
                self._do(connection, DROP.format(database=self.names.database(shard)))
                self._do(connection, EMPTY, (shard,))
            return True

        return self._sessions.write(drop, deadline)

    def _is_given_up(self, connection: DeadlineConnection, shard: int, claim: int) -> bool:
        """A mover that wrote to the copy until now writes to it no more. False: it is no copy."""
        with self._held(connection, shard) as seen:
            if seen is None or seen.state != "MOVED":
                return False
            self._do(connection, CLAIM, (shard, claim))
            for statement in (OF_NO_EPOCH, NO_PURGED, *FORGET):
                self._do(connection, statement, (shard,))
        return True

    @contextmanager
    def _kept_there(self, connection: DeadlineConnection, shard: int) -> Iterator[None]:
        """No mover claims a copy whose tables are being dropped, however long a process sleeps in between."""
        lock = f"tripstore {self.names.datastore} copy {shard}"
        ((is_taken,),) = self._rows(connection, TAKE, (lock,))
        if not is_taken:
            reason = f"another process makes or drops the copy of shard {shard}"
            raise NodeUnavailable(connection.node, reason, trips_breaker=False)
        try:
            yield
        finally:
            self._rows(connection, GIVE_BACK, (lock,))

    def claims(self, shard: int, claim: int, deadline: Deadline) -> bool:
        return self._sessions.run(
            lambda connection: self._may(connection, shard, self._look(connection, shard), claim), deadline
        )

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
