"""The pool of connections to one server: last in, first out, bounded, fair.

SQLAlchemy's pool costs 6 µs to lend and take back, twice that on a busy machine, beside a read of 250; this a tenth.
What it bounds are sessions on the server: one that a call gave up keeps its place until the server has ended it. Some
places are never given to writes, so that reads go on beside commits that wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from pymysql import err

from schemaless_core.config import PoolConfig
from schemaless_core.deadline import Deadline
from schemaless_core.engine.mysql.wire.abandoned import Abandoned, AbandonedSession
from schemaless_core.engine.mysql.wire.connection import DeadlineConnection
from schemaless_core.engine.mysql.wire.permits import NoPermit, Permits


class AllAbandoned(NoPermit):
    """Every place that the call might have is taken by a session that a call before it gave up."""


class Pool:
    """Lends connections to threads; opens them on demand and keeps the idle ones."""

    def __init__(
        self,
        config: PoolConfig,
        connect: Callable[[Deadline], DeadlineConnection],
        counted: Callable[[int], None] = lambda count: None,
    ) -> None:
        self._kept = config.size
        self._connect = connect
        self._idle: list[DeadlineConnection] = []
        self._is_closed = False
        self._places = config.places
        self._write_places = config.write_places
        #: A call that holds one takes an idle connection or opens one.
        self._permits = Permits(self._places)
        #: A write holds one of these as well.
        self._write_permits = Permits(self._write_places)
        self.abandoned = Abandoned(connect, self._ended, counted)

    def lend(self, deadline: Deadline, pool_seconds: float, *, is_write: bool = False) -> DeadlineConnection:
        """Return an idle connection that is not stale, or a new one; raise `NoPermit` after `pool_seconds`.

        Waiting for the pool has that time-out of its own and leaves the deadline alone; opening is part of the call.
        """
        seconds = deadline.patience(pool_seconds) if deadline.is_in_all else pool_seconds
        waited_seconds = self._take(seconds, is_write)
        try:
            if waited_seconds:
                deadline.extend(waited_seconds)
            connection = self._fit_idle(is_write) or self._connect(deadline)
            connection.is_writing = is_write
            return connection
        except BaseException:
            self._give(is_write)
            raise

    def _take(self, seconds: float, is_write: bool) -> float:
        """Take a place and return the seconds waited for it."""
        if self.abandoned.sessions:
            self._refuse_abandoned(is_write)
        if not is_write:
            return self._permits.take(seconds)
        waited_seconds = self._write_permits.take(seconds)
        try:
            return waited_seconds + self._permits.take(max(0.0, seconds - waited_seconds))
        except BaseException:
            self._write_permits.give()
            raise

    def _refuse_abandoned(self, is_write: bool) -> None:
        self.abandoned.watch()
        abandoned = self.abandoned
        if abandoned.count >= self._places or (is_write and abandoned.writes >= self._write_places):
            raise AllAbandoned

    def _give(self, is_write: bool) -> None:
        try:
            self._permits.give()
        finally:
            if is_write:
                self._write_permits.give()

    def _fit_idle(self, is_write: bool) -> DeadlineConnection | None:
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            if not (connection.is_stale or (is_write and connection.logs_statements)):  # a new one may log rows
                return connection
            connection.forget()

    def take_back(self, connection: DeadlineConnection) -> None:
        """Keep a connection that is fit for the next call."""
        is_write = connection.is_writing  # the next call may have it before this one has given its place back
        try:
            if not self._is_closed and len(self._idle) < self._kept:
                self._idle.append(connection)
            else:
                connection.forget()
        finally:
            self._give(is_write)
        if self._is_closed:  # closed between the look and the append
            self.close()

    def drop(self, connection: DeadlineConnection) -> None:
        """Close a connection that broke: its session is gone."""
        try:
            connection.forget()
        finally:
            self._give(connection.is_writing)

    def abandon(self, connection: DeadlineConnection) -> None:
        """Close a connection whose session may go on: it keeps its place until the server has ended it."""
        number, is_write = connection.session_number, connection.is_writing
        session = AbandonedSession(connection.server, number, is_write, time.monotonic())
        try:
            connection.forget()
        finally:
            self.abandoned.add(session)

    def _ended(self, session: AbandonedSession) -> None:
        self._give(session.is_write)

    def forget_idle(self) -> None:
        """Close what is not lent, without a word."""
        while self._idle:
            with suppress(IndexError):  # another thread took the last
                self._idle.pop().forget()

    def close(self) -> None:
        """Close what is not lent, and the rest when it comes back; a server that is still there is told."""
        self._is_closed = True
        self.abandoned.close()
        while self._idle:
            with suppress(IndexError, err.Error, OSError):
                self._idle.pop().close()
