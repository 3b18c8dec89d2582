"""`LegacyDatabase`: pooled connections to Postgres, lent to one verb at a time. No call outlives its deadline.

Safe to share by threads and to inherit by forks. Whatever the driver raises leaves as one of our errors.
"""

from __future__ import annotations

import logging
import os
import random
import time
import weakref
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import psycopg2

from schemaless_core import metrics
from schemaless_core.deadline import Deadline
from schemaless_core.engine.mysql.wire.permits import NoPermit, Permits
from schemaless_core.errors import SchemalessError, StoreClosed
from tripstore.backends.postgres.errors import LegacyRefused, LegacyUnavailable
from tripstore.backends.postgres.wire.connections import MEANING, wanted
from tripstore.backends.postgres.wire.pooler import narrowed
from tripstore.backends.postgres.wire.session import WantedSettings, prepare_session
from tripstore.backends.postgres.wire.settings import LegacySettings
from tripstore.backends.postgres.wire.translation import (
    SERVER,
    Again,
    ConnectionLost,
    translate_connect,
)
from tripstore.backends.postgres.wire.wire import DeadlinePassed, LegacyConnection

logger = logging.getLogger(__name__)
T = TypeVar("T")

#: The longest pause before a transaction that lost against another is repeated.
AGAIN_PAUSE_SECONDS = 0.01
#: How long a look at the session in the way may take, beside the call that waits.
LOOK_SECONDS = 0.25
#: Postgres itself notices a client that has gone since this version.
_CHECKS_CLIENTS = 140000

_CHECK_CLIENTS = {"client_connection_check_interval": "1000"}
_IN_THE_WAY = """\
SELECT pid, application_name, state FROM pg_catalog.pg_stat_activity
WHERE pid = ANY(pg_catalog.pg_blocking_pids(%s)) ORDER BY pid"""


class LegacyDatabase:
    """Connections to the company's database for cells."""

    def __init__(self, url: str, settings: LegacySettings | None = None) -> None:
        self.settings = settings or LegacySettings()
        self._url = url
        #: What others keep for as long as this is there, each under its name.
        self.companions: dict[str, object] = {}
        #: How many connections were made for the pool: after the next one it may be another server.
        self.connected_count = 0
        self._is_closed = False
        self._start()
        _ALL.add(self)

    @property
    def url(self) -> str:
        """Where it is, password included: for connections of another kind."""
        return self._url

    def run(self, verb: Callable[[LegacyConnection], T], deadline: Deadline) -> T:
        """Run a verb on a connection, again when the pooled one is dead or another transaction won.

        Every verb may be repeated from its start: a put that had happened finds its cell the second time.
        """
        is_renewed = False
        refused_by: str | None = None
        while True:
            try:
                return self._once(verb, deadline)
            except ConnectionLost:
                if is_renewed or deadline.is_over:
                    raise
                is_renewed = True
                metrics.call_repeated("connection_broken")
                logger.info("A connection to Postgres broke; new ones are made.", extra={"event": "legacy.reconnected"})
                self._forget_idle()  # the server went away: all of them are dead
            except Again as lost:
                if lost.constraint is not None and lost.constraint == refused_by:
                    raise _refused_by(lost) from lost
                refused_by = lost.constraint
                metrics.call_repeated("transaction_lost")
                if deadline.remaining_seconds() <= AGAIN_PAUSE_SECONDS + lost.pause_seconds:
                    hint = "Repeat the call, or give it a longer deadline with using(deadline=…)."
                    raise LegacyUnavailable(f"Others changed the same row all the time ({lost}).", hint=hint) from lost
                time.sleep(lost.pause_seconds + random.uniform(0, AGAIN_PAUSE_SECONDS))

    def connect_apart(self, application: str, **settings: str) -> LegacyConnection:
        """A connection beside the pool, for a lock held longer than a call. The caller gives it to `part_with`."""
        self._refuse_if_closed()
        connection = self._opened(Deadline(self.settings.deadlines.connect_seconds), application, **settings)
        connection.deadline = Deadline(self.settings.deadlines.put_seconds)
        self._open.add(connection)
        return connection

    def part_with(self, connection: LegacyConnection) -> None:
        """Close it, and so let go of what it holds."""
        self._drop(connection)

    def close(self) -> None:
        """Close what is not lent, and the rest when it comes back; refuse calls from now on."""
        self._is_closed = True
        self._forget_idle()

    def _start(self) -> None:
        self._idle: list[LegacyConnection] = []
        #: All that are open, lent ones too: a forked child must let go of every socket.
        self._open: set[LegacyConnection] = set()
        self._permits = Permits(self.settings.pool.size + self.settings.pool.overflow)

    def _once(self, verb: Callable[[LegacyConnection], T], deadline: Deadline) -> T:
        connection = self._lent(deadline)
        is_fit = False
        connection.deadline = deadline
        connection.when_slow = partial(self._look, connection)
        try:
            answer = verb(connection)
            is_fit = connection.is_idle
            return answer
        except (ConnectionLost, DeadlinePassed):
            raise
        except (SchemalessError, Again):
            is_fit = _rolled_back(connection)
            raise
        finally:
            # After anything else it is unknown what the next bytes mean: such a connection is not fit.
            connection.when_slow = connection.in_the_way = None
            self._take_back(connection, is_fit)

    def _lent(self, deadline: Deadline) -> LegacyConnection:
        self._refuse_if_closed()
        permits = self._permits
        try:
            seconds = self.settings.deadlines.pool_seconds
            waited_seconds = permits.take(deadline.patience(seconds) if deadline.is_in_all else seconds)
        except NoPermit as error:
            hint = "Raise the size of the pool, or share the store by fewer threads."
            raise LegacyUnavailable(f"All connections to {SERVER} are in use.", hint=hint) from error
        try:
            if waited_seconds:
                deadline.extend(waited_seconds)
            try:
                return self._idle.pop()
            except IndexError:
                return self._connect(deadline)
        except BaseException:
            permits.give()
            raise

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            raise StoreClosed(
                "legacy store", "Open another one; all stores that using() made of this one closed with it."
            )

    def _take_back(self, connection: LegacyConnection, is_fit: bool) -> None:
        if connection not in self._open:  # lent before a fork
            return
        if is_fit and not self._is_closed and len(self._idle) < self.settings.pool.size:
            self._idle.append(connection)
        else:
            self._drop(connection)
        self._permits.give()
        if self._is_closed:  # closed between the look and the append
            self._forget_idle()

    def _drop(self, connection: LegacyConnection) -> None:
        self._open.discard(connection)
        connection.close()

    def _forget_idle(self) -> None:
        while self._idle:
            try:
                self._drop(self._idle.pop())
            except IndexError:  # another thread took the last
                return

    def _connect(self, deadline: Deadline) -> LegacyConnection:
        limit = Deadline(min(self.settings.deadlines.connect_seconds, deadline.remaining_seconds()))
        connection = self._opened(limit)
        self.connected_count += 1
        self._open.add(connection)
        return connection

    def _opened(self, limit: Deadline, application: str = "", **more: str) -> LegacyConnection:
        needed = self._wanted(**more)
        try:
            connection = LegacyConnection(
                limit,
                dsn=self._url,
                application_name=application or self.settings.application,
                client_encoding=MEANING["client_encoding"],
                keepalives_idle=30,
                options=needed.options,
            )
        except DeadlinePassed as passed:
            hint = "Check legacy.postgres, and that the server answers."
            raise LegacyUnavailable(f"{SERVER} did not let us in before the deadline.", hint=hint) from passed
        except psycopg2.Error as error:
            raise translate_connect(error) from error
        try:
            checks = _CHECK_CLIENTS if connection.server_version >= _CHECKS_CLIENTS else {}
            needed = WantedSettings(needed.at_start, {**needed.then, **checks})
            url = narrowed(self._url, connection.info)
            session = prepare_session(connection.rows, connection.pid, needed, url, limit)
            connection.pid, connection.search_path = session
        except BaseException:
            connection.close()
            raise
        return connection

    def _wanted(self, **more: str) -> WantedSettings:
        settings = self.settings
        own = {
            "lock_timeout": _milliseconds(settings.lock_seconds),
            "statement_timeout": _milliseconds(settings.statement_seconds),
            "idle_in_transaction_session_timeout": _milliseconds(settings.idle_transaction_seconds),
            "default_transaction_isolation": "read committed",
            "default_transaction_read_only": "off",
            "plan_cache_mode": "force_generic_plan",
            "jit": "off",
        }
        return wanted(**own | more)

    def _look(self, waiting: LegacyConnection) -> None:
        """Ask, on a connection of its own, which session holds what a call waits for."""
        try:
            other = self._opened(Deadline(min(LOOK_SECONDS, waiting.deadline.remaining_seconds())))
        except SchemalessError:
            return
        try:
            found = other.rows(_IN_THE_WAY, (waiting.pid,))
        except (SchemalessError, Again):
            return
        finally:
            other.close()
        if found:
            waiting.in_the_way = ", ".join(f"pid {pid} ({name or 'no name'}, {state})" for pid, name, state in found)

    def _after_fork(self) -> None:
        for connection in list(self._open):
            connection.abandon()
        self._start()


def _rolled_back(connection: LegacyConnection) -> bool:
    """End a transaction that an error left open; a connection that does not manage is thrown away."""
    try:
        if not connection.is_idle:
            connection.rows("ROLLBACK")
    except (SchemalessError, Again):
        return False
    return connection.is_idle


def _refused_by(lost: Again) -> LegacyRefused:
    return LegacyRefused(
        f"{SERVER} refuses the write: {lost.reason}.",
        hint=f"Another row holds what constraint {lost.constraint} allows once.",
    )


def _milliseconds(seconds: float) -> str:
    return str(max(round(seconds * 1000), 1))


_ALL: weakref.WeakSet[LegacyDatabase] = weakref.WeakSet()


def _after_fork() -> None:
    for database in list(_ALL):
        database._after_fork()


os.register_at_fork(after_in_child=_after_fork)
