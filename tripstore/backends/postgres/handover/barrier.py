"""`Barrier`: waits until no writer is inside and lets none in. Held by a connection of its own, in a transaction.

First the door, so that no new writer comes in while it waits, then the barrier. It does not wait for long: behind it
the company's writers wait, and a session that holds a row one of them wants would wait for ever.
"""

from __future__ import annotations

import threading
from contextlib import suppress

from schemaless_core.deadline import Deadline
from schemaless_core.errors import SchemalessError
from schemaless_core.failpoints import reach
from tripstore.backends.postgres.capture.functions.gate import BARRIER, DOOR, lock_class
from tripstore.backends.postgres.handover.authority import AuthorityRow
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.backends.postgres.wire.translation import Again, ConnectionLost, LockTimeout
from tripstore.backends.postgres.wire.wire import LegacyConnection, Row
from tripstore.handover.authority import Authority

#: Below Postgres' deadlock_timeout: no circle of waiting outlives it.
LOCK_SECONDS = 0.3
#: A writer that has been inside for so long will not be through within that.
OLD_SECONDS = 1.0

_INSIDE = f"""\
SELECT l.pid, COALESCE(NULLIF(a.application_name, ''), 'no name'), COALESCE(a.state, 'unknown'),
    date_part('epoch', clock_timestamp() - a.xact_start)
FROM pg_catalog.pg_locks AS l LEFT JOIN pg_catalog.pg_stat_activity AS a USING (pid)
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 AND l.objid IN ({BARRIER}, {DOOR})
AND l.classid = {{k}}::oid AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
GROUP BY 1, 2, 3, a.xact_start ORDER BY a.xact_start"""


class Barrier:
    """Each thread has one of its own. A forked child leaves it to the parent."""

    def __init__(self, database: LegacyDatabase, datastore: str) -> None:
        #: How long a hand-over may take. The server ends a holder that stopped, not long after.
        self.max_pause_seconds = 2.0
        self._database = database
        self._row = AuthorityRow(datastore, database.settings.synchronous_commit)
        k = lock_class(datastore)
        self._inside = _INSIDE.format(k=k & 0xFFFFFFFF)
        self._take = (
            f"BEGIN; SET LOCAL lock_timeout = '{LOCK_SECONDS * 1000:.0f}ms'; "
            f"SELECT pg_catalog.pg_advisory_xact_lock({k}, {DOOR}); "
            f"SELECT pg_catalog.pg_advisory_xact_lock({k}, {BARRIER})"
        )
        self._mine = threading.local()

    @property
    def in_the_way(self) -> str:
        """Why this thread did not get it, with the pids of the sessions that stay inside."""
        return getattr(self._mine, "in_the_way", "")

    @property
    def is_held(self) -> bool:
        """As far as this thread knows: another process may have ended it."""
        return self._connection is not None and not self._connection.is_idle

    def prepare(self) -> LegacyConnection:
        """Connect, while no caller waits yet: a server that is full is to cost no pause."""
        self.release()
        settings = self._database.settings
        hold_seconds = self.max_pause_seconds + settings.idle_transaction_seconds
        self._mine.connection = connection = self._database.connect_apart(
            f"{settings.application} barrier", idle_in_transaction_session_timeout=f"{hold_seconds * 1000:.0f}"
        )
        return connection

    def take(self) -> bool:
        """Wait for it, but not behind a writer that has been inside for long already."""
        self._mine.in_the_way = ""
        connection = self._connection
        if connection is None or not connection.is_idle:
            connection = self.prepare()
        connection.deadline = self._deadline()
        try:
            is_taken = self._is_taken(connection)
        except BaseException:
            self.release()
            raise
        if is_taken:
            reach("barrier.taken")
        elif not connection.is_idle:
            self.release()
        return is_taken

    def decide(self, closing: Authority, decided: Authority) -> bool:
        """Change the row where the barrier is held; with the commit the barrier goes. False: it was lost before."""
        connection = self._connection
        if connection is None or connection.is_idle:
            return False
        connection.deadline = self._deadline()
        try:
            return self._row.decide(connection, closing, decided)
        except ConnectionLost:  # before the commit, or with the answer
            return self._database.run(lambda other: self._row.was(other, decided), self._deadline())
        except Again:
            return False
        finally:
            self.release()

    def give_up(self) -> None:
        """It will not be taken: close a connection that holds nothing."""
        if not self.is_held:
            self.release()

    def release(self) -> None:
        """Let the writers in. A session that is gone had let them in before."""
        connection, self._mine.connection = self._connection, None
        if connection is not None:
            self._database.part_with(connection)

    @property
    def _connection(self) -> LegacyConnection | None:
        return getattr(self._mine, "connection", None)

    def _is_taken(self, connection: LegacyConnection) -> bool:
        # Without the right to see others' activity no writer's age is known: then the lock's limit is all there is.
        inside = connection.rows(self._inside)
        old = [row for row in inside if row[0] is None or (row[3] is not None and row[3] > OLD_SECONDS)]
        if old:
            self._mine.in_the_way = _named(old)
            return False
        try:
            connection.rows(self._take)
        except (LockTimeout, Again):
            with suppress(SchemalessError, Again):
                connection.rows("ROLLBACK")
                self._mine.in_the_way = _named(connection.rows(self._inside))
            return False
        return True

    def _deadline(self) -> Deadline:
        return Deadline(self._database.settings.deadlines.put_seconds)


def _named(found: list[Row]) -> str:
    """Those inside, the oldest first."""
    return ", ".join(_name(*row) for row in found)


def _name(pid: int | None, application: str, state: str, seconds: float | None) -> str:
    if pid is None:
        return "a prepared transaction"
    age = "" if seconds is None else f", for {seconds:.1f} s"
    return f"pid {pid} ({application}, {state}{age})"


def barrier_of(database: LegacyDatabase, datastore: str) -> Barrier:
    """The one of this process: the port that takes it and the port that decides are two on one database."""
    with _LOCK:
        found = database.companions.setdefault(f"barrier of {datastore}", Barrier(database, datastore))
    assert isinstance(found, Barrier)
    return found


_LOCK = threading.Lock()
