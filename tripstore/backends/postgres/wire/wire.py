"""`LegacyConnection`: one asynchronous connection to Postgres, whose every answer comes before the call's deadline.

The driver's synchronous calls wait as long as the server likes; here the waiting is ours, per connection, so that
neither a stopped server nor another user of the driver in this process holds a call.
"""

from __future__ import annotations

import math
import os
import select
import time
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import psycopg2
from psycopg2 import extensions

from schemaless_core.deadline import Deadline
from tripstore.backends.postgres.errors import LegacyUnavailable
from tripstore.backends.postgres.wire.translation import SERVER, Again, translate

Row = tuple[Any, ...]

#: Waits of a busy call until it is asked which session is in its way.
SLOW_SECONDS = 0.3
#: A plan is for tables as large as they were when it was made: one made for a few rows reads them all. ANALYZE ends
#: such a plan, but may come late or never.
PLAN_SECONDS = 10.0

_NO_SUCH_STATEMENT = "26000"
_NOT_SUPPORTED = "0A000"
#: The function of the server that finds a prepared statement whose answer would have other types than it had.
_REVALIDATION = "RevalidateCachedQuery"


class DeadlinePassed(LegacyUnavailable):
    """No answer came in time; the connection is half-way through it and of no more use."""

    def __init__(self, in_the_way: str | None) -> None:
        who = f"; in the way: {in_the_way}" if in_the_way else ""
        hint = "Repeat the call, or give it a longer deadline with using(deadline=…)."
        super().__init__(f"{SERVER} did not answer within the deadline{who}.", hint=hint)


class Prepared:
    """A statement that each connection plans once: a plan costs more than most reads by key.

    The types are those of its first parameters; of others Postgres finds them itself. Equal statements have one name,
    wherever they are made: a connection has each once.
    """

    def __init__(self, types: str, text: str) -> None:
        self.types = types
        self.text = text
        self.name = "tripstore_" + blake2b(f"{types} {text}".encode(), digest_size=12).hexdigest()


class LegacyConnection:
    """Sends one packet per call of `rows` and waits for its answer."""

    def __init__(self, deadline: Deadline, **arguments: Any) -> None:
        self.deadline = deadline
        #: Called once per call that waits long; None: not at all.
        self.when_slow: Callable[[], None] | None = None
        #: What the role's sessions have before ours is pinned.
        self.search_path = ""
        #: The session that was found to hold what this call waits for.
        self.in_the_way: str | None = None
        self._prepared: set[str] = set()
        #: Whether the server has statements that are not in `_prepared`: all go together.
        self._has_outdated = False
        #: When plans are old.
        self._replan_at = time.monotonic() + PLAN_SECONDS
        self._reads = self._writes = select.poll()
        self._connection: extensions.connection = psycopg2.connect(async_=1, **arguments)
        try:
            self._finish_connecting()
            self._reads, self._writes = self._pollers()
            self._cursor = self._connection.cursor()
            #: The server's process as it was told when we connected; a pooler makes one up.
            self.pid = self._connection.info.backend_pid
        except BaseException:
            self.close()
            raise

    @property
    def server_version(self) -> int:
        return self._connection.server_version

    @property
    def info(self) -> extensions.ConnectionInfo:
        """Where it goes to."""
        return self._connection.info

    @property
    def is_idle(self) -> bool:
        """Whether no transaction is open."""
        return self._connection.info.transaction_status == extensions.TRANSACTION_STATUS_IDLE

    @property
    def is_broken(self) -> bool:
        return bool(self._connection.closed)

    def rows(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] | None = None) -> list[Row]:
        """Send statements as one packet and return the last one's rows. Statements without BEGIN commit together.

        Raises our errors, and `Again` when the transaction lost against another.
        """
        try:
            self._cursor.execute(sql, parameters)
            self._wait()
            return self._cursor.fetchall() if self._cursor.description is not None else []
        except psycopg2.Error as error:
            if _is_outdated(error):
                self._prepared, self._has_outdated = set(), True
                raise Again("a table was altered after statements were prepared") from error
            raise translate(error, self.in_the_way) from error

    def execute(self, statement: Prepared, arguments: str) -> list[Row]:
        """Run a prepared statement. Arguments are SQL, quoted."""
        return self.rows(self.call(statement, arguments))

    def call(self, statement: Prepared, arguments: str = "") -> str:
        """A prepared statement's EXECUTE, to stand in a packet; its first use on a connection prepares it before."""
        if statement.name not in self._prepared:
            self._prepare(statement)
        execute = f"EXECUTE {statement.name}({arguments})" if arguments else f"EXECUTE {statement.name}"
        if (now := time.monotonic()) < self._replan_at:
            return execute
        self._replan_at = now + PLAN_SECONDS
        return f"DISCARD PLANS; {execute}"

    def _prepare(self, statement: Prepared) -> None:
        if self._has_outdated:
            self.rows("DEALLOCATE ALL")
            self._has_outdated = False
        head = f"({statement.types})" if statement.types else ""
        self.rows(f"PREPARE {statement.name}{head} AS {statement.text}")
        self._prepared.add(statement.name)

    def close(self) -> None:
        self._connection.close()

    def abandon(self) -> None:
        """In a forked child: let go of the parent's socket without a word to the server."""
        null = os.open(os.devnull, os.O_RDWR)
        try:
            os.dup2(null, self._connection.fileno())
        except psycopg2.Error:  # it is closed
            pass
        finally:
            os.close(null)

    def _finish_connecting(self) -> None:
        """The addresses of a host are tried one after the other, each on a socket of its own."""
        while (state := self._connection.poll()) != extensions.POLL_OK:
            poller = select.poll()
            poller.register(
                self._connection.fileno(), select.POLLIN if state == extensions.POLL_READ else select.POLLOUT
            )
            self._sleep(poller, math.inf)

    def _pollers(self) -> tuple[select.poll, select.poll]:
        reads, writes = select.poll(), select.poll()
        reads.register(self._connection.fileno(), select.POLLIN)
        writes.register(self._connection.fileno(), select.POLLIN | select.POLLOUT)
        return reads, writes

    def _wait(self) -> None:
        poll = self._connection.poll
        if (state := poll()) == extensions.POLL_OK:
            return
        slow_at = time.monotonic() + SLOW_SECONDS if self.when_slow is not None else math.inf
        while state != extensions.POLL_OK:
            poller = self._reads if state == extensions.POLL_READ else self._writes
            if not self._sleep(poller, slow_at) and time.monotonic() >= slow_at:
                slow_at = math.inf
                if self.when_slow is not None:
                    self.when_slow()
                    self.when_slow = None
            state = poll()

    def _sleep(self, poller: select.poll, until: float) -> bool:
        """Wait for the socket; False when the moment came first. The deadline ends the call."""
        remaining = self.deadline.remaining_seconds()
        if remaining <= 0:
            raise DeadlinePassed(self.in_the_way)
        seconds = min(remaining, max(until - time.monotonic(), 0.0))
        return bool(poller.poll(math.ceil(seconds * 1000)))


def _is_outdated(error: psycopg2.Error) -> bool:
    """Whether a prepared statement is of no more use as it is; prepared anew it may be."""
    if error.pgcode == _NOT_SUPPORTED:  # of triggers of the company's, too
        return error.diag.source_function == _REVALIDATION
    return error.pgcode == _NO_SUCH_STATEMENT
