"""The pool of connections to one server: leased for a call, safe to share by threads and to inherit by forks."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar, cast

from pymysql import err
from sqlalchemy import exc
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.pool import PoolProxiedConnection, QueuePool

from schemaless_core import metrics
from schemaless_core.config import PoolConfig
from schemaless_core.deadline import Deadline
from schemaless_core.engine.mysql.connection import DeadlineConnection, Login, connect
from schemaless_core.engine.mysql.translation import translate, translate_connect
from schemaless_core.errors import ConnectionBroken, NodeUnavailable, SchemalessError

T = TypeVar("T")

# The pool's creator takes no argument; the deadline of the call that makes it connect travels beside it.
_CALL_DEADLINE: ContextVar[Deadline] = ContextVar("call_deadline")


class Sessions:
    """Connections to one server. SQLAlchemy pools them; the cells' statements go through the driver itself."""

    def __init__(self, node: str, login: Login, pool: PoolConfig) -> None:
        self._node = node
        self._login = login
        self._pool_config = pool
        self._pool = self._new_pool()
        _ALL.add(self)

    def run(self, verb: Callable[[DeadlineConnection], T], deadline: Deadline) -> T:
        """Run a verb on a connection; once more on a new one when the pooled one turns out to be dead.

        Every verb may be repeated: a put that had happened answers "found" the second time.
        """
        pool = self._pool
        try:
            with self.lease(deadline) as connection:
                return verb(connection)
        except ConnectionBroken:
            if deadline.is_over:
                raise
        metrics.call_repeated("connection_broken")
        self._replace(pool)
        with self.lease(deadline) as connection:
            return verb(connection)

    @contextmanager
    def lease(self, deadline: Deadline) -> Iterator[DeadlineConnection]:
        """Lend a connection for one call. After an error it is rolled back, or thrown away."""
        lent = self._check_out(deadline)
        connection = cast(DeadlineConnection, lent.dbapi_connection)
        connection.deadline = deadline
        try:
            yield connection
        except (err.Error, OSError) as error:
            ours = translate(error, self._node, deadline)
            if isinstance(ours, ConnectionBroken) or deadline.is_over or not _rolled_back(connection):
                connection.forget()
                lent.invalidate()
            raise ours from error
        except SchemalessError:
            raise  # a refusal, told from answers that were read to their end
        except BaseException:
            # Half-way through an answer nobody knows what the next bytes mean.
            connection.forget()
            lent.invalidate()
            raise
        finally:
            connection.deadline = None
            connection.last_used = time.monotonic()
            lent.close()

    def close(self) -> None:
        self._pool.dispose()

    def abandon(self) -> None:
        """Start anew in a forked child: the parent's sockets are the parent's."""
        self._pool = self._new_pool()

    def _check_out(self, deadline: Deadline) -> PoolProxiedConnection:
        _CALL_DEADLINE.set(deadline)
        started = time.monotonic()
        try:
            lent = self._pool.connect()
            if not cast(DeadlineConnection, lent.dbapi_connection).is_new:
                # Waiting for the pool has a time-out of its own; opening a connection is part of the call.
                deadline.extend(time.monotonic() - started)
            while cast(DeadlineConnection, lent.dbapi_connection).is_stale:
                lent.invalidate()
                lent.close()
                lent = self._pool.connect()
            return lent
        except exc.TimeoutError as error:
            raise NodeUnavailable(
                self._node, "all its connections are in use", hint="Raise pool.size.", trips_breaker=False
            ) from error
        except (err.Error, OSError) as error:
            raise translate_connect(error, self._node, deadline) from error

    def _replace(self, pool: QueuePool) -> None:
        """Throw away every idle connection: the server went away, all of them are dead."""
        if self._pool is pool:  # else another thread has done it
            self._pool = self._new_pool()
            pool.dispose()

    def _new_pool(self) -> QueuePool:
        config = self._pool_config
        return QueuePool(
            self._connect,
            pool_size=config.size,
            max_overflow=config.overflow,
            timeout=self._login.deadlines.pool_seconds,
            use_lifo=True,
            reset_on_return=None,  # a ROLLBACK per call would cost a round trip; errors roll back themselves
        )

    def _connect(self) -> DBAPIConnection:
        return cast(DBAPIConnection, connect(self._login, _CALL_DEADLINE.get()))


def _rolled_back(connection: DeadlineConnection) -> bool:
    """End a transaction that an error left open: it may hold a counter row."""
    try:
        connection.rollback()
    except (err.Error, OSError):
        return False
    return True


_ALL: weakref.WeakSet[Sessions] = weakref.WeakSet()


def _abandon_all() -> None:
    for sessions in list(_ALL):
        sessions.abandon()


os.register_at_fork(after_in_child=_abandon_all)
