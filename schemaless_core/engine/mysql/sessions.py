"""Connections to one server: leased for a call, safe to share by threads and to inherit by forks."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable
from typing import TypeVar

from pymysql import err

from schemaless_core import metrics
from schemaless_core.config import PoolConfig
from schemaless_core.deadline import Deadline
from schemaless_core.engine.mysql.connection import DeadlineConnection, Login, connect
from schemaless_core.engine.mysql.permits import NoPermit
from schemaless_core.engine.mysql.pool import Pool
from schemaless_core.engine.mysql.translation import translate, translate_connect
from schemaless_core.errors import ConnectionBroken, NodeUnavailable, SchemalessError

T = TypeVar("T")


class Sessions:
    """Connections to one server, lent for one call each. The cells' statements go through the driver itself."""

    def __init__(self, node: str, login: Login, pool: PoolConfig) -> None:
        self._node = node
        self._login = login
        self._pool_config = pool
        self._pool = Pool(pool)
        _ALL.add(self)

    def run(self, verb: Callable[[DeadlineConnection], T], deadline: Deadline) -> T:
        """Run a verb on a connection; once more on a new one when the pooled one turns out to be dead.

        Every verb may be repeated: a put that had happened answers "found" the second time.
        """
        pool = self._pool
        try:
            return self._once(pool, verb, deadline)
        except ConnectionBroken:
            if deadline.is_over:
                raise
        metrics.call_repeated("connection_broken")
        pool.forget_idle()  # the server went away: all of them are dead
        return self._once(pool, verb, deadline)

    def _once(self, pool: Pool, verb: Callable[[DeadlineConnection], T], deadline: Deadline) -> T:
        """Lend a connection to a verb. After an error it is rolled back, or thrown away."""
        is_fit = False
        connection = self._lent(pool, deadline)
        try:
            connection.deadline = deadline
            answer = verb(connection)
            is_fit = True
            return answer
        except SchemalessError:
            is_fit = True  # a refusal, told from answers that were read to their end
            raise
        except (err.Error, OSError) as error:
            ours = translate(error, self._node, deadline)
            is_fit = not (isinstance(ours, ConnectionBroken) or deadline.is_over) and _rolled_back(connection)
            raise ours from error
        finally:
            # Half-way through an answer nobody knows what the next bytes mean: such a connection is not fit.
            connection.deadline = None
            connection.last_used = time.monotonic()
            (pool.take_back if is_fit else pool.drop)(connection)

    def close(self) -> None:
        self._pool.close()

    def abandon(self) -> None:
        """Start anew in a forked child: the parent's sockets are the parent's, so ours are closed without a word."""
        self._pool.forget_idle()
        self._pool = Pool(self._pool_config)

    def _lent(self, pool: Pool, deadline: Deadline) -> DeadlineConnection:
        try:
            return pool.lend(deadline, self._login.deadlines.pool_seconds, lambda: connect(self._login, deadline))
        except NoPermit as error:
            hint = "Raise pool.size, or share the datastore by fewer threads."
            raise NodeUnavailable(
                self._node, "all its connections are in use", hint=hint, trips_breaker=False
            ) from error
        except (err.Error, OSError) as error:
            raise translate_connect(error, self._node, deadline) from error


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
