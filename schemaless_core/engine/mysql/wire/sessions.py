"""Connections to one server: leased for a call, safe to share by threads and to inherit by forks."""

from __future__ import annotations

import logging
import math
import os
import time
import weakref
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from pymysql import err

from schemaless_core import metrics
from schemaless_core.config import PoolConfig
from schemaless_core.deadline import Deadline
from schemaless_core.engine.mysql.wire.connection import ROWS_WANTED, DeadlineConnection, Login, connect
from schemaless_core.engine.mysql.wire.permits import NoPermit
from schemaless_core.engine.mysql.wire.pool import AllAbandoned, Pool
from schemaless_core.engine.mysql.wire.translation import translate, translate_connect
from schemaless_core.errors import ConnectionBroken, InvalidServer, NodeUnavailable, PacketTooLarge, SchemalessError

T = TypeVar("T")

logger = logging.getLogger(__name__)

#: What new sessions will have; that of a session stays.
_PACKET_BYTES = "SELECT @@GLOBAL.max_allowed_packet"
_SMALL_PACKETS = "the server's max_allowed_packet is too small for the largest bodies: they will be refused"
_LOOK = "Look what they wait for there (SHOW PROCESSLIST): a replica's acknowledgement, a lock, room on the disk."


class Sessions:
    """Connections to one server, lent for one call each. The cells' statements go through the driver itself."""

    def __init__(self, node: str, login: Login, pool: PoolConfig, packet_bytes: int = 0) -> None:
        self._node = node
        self._login = login
        #: The greatest packet that calls may send.
        self._packet_bytes = packet_bytes
        self._is_warned = False
        self._pool_config = pool
        self._pool = self._new_pool()
        _ALL.add(self)

    def run(self, verb: Callable[[DeadlineConnection], T], deadline: Deadline) -> T:
        """Run a verb on a connection; once more on a new one when the pooled one turns out to be dead.

        Every verb may be repeated: a put that had happened answers "found" the second time.
        """
        return self._run(verb, deadline, is_write=False)

    def write(self, verb: Callable[[DeadlineConnection], T], deadline: Deadline) -> T:
        """The same for a verb that commits something: it leaves the places alone that the pool keeps for reads."""
        return self._run(verb, deadline, is_write=True)

    def _run(self, verb: Callable[[DeadlineConnection], T], deadline: Deadline, *, is_write: bool) -> T:
        pool = self._pool
        try:
            return self._once(pool, verb, deadline, is_write)
        except ConnectionBroken:
            if deadline.is_over:
                raise
        except PacketTooLarge as error:
            if self._packet_bytes_now(pool, deadline) <= error.bytes_max:
                raise
            pool.forget_idle()
            return self._once(pool, verb, deadline, is_write)
        metrics.call_repeated("connection_broken")
        pool.forget_idle()  # the server went away: all of them are dead
        return self._once(pool, verb, deadline, is_write)

    def _packet_bytes_now(self, pool: Pool, deadline: Deadline) -> int:
        """What the server would take on a new connection: an operator may have raised it."""

        def ask(connection: DeadlineConnection) -> int:
            with connection.cursor() as cursor:
                cursor.execute(_PACKET_BYTES)
                return int(cursor.fetchall()[0][0])

        return self._once(pool, ask, deadline, is_write=False)

    def _once(self, pool: Pool, verb: Callable[[DeadlineConnection], T], deadline: Deadline, is_write: bool) -> T:
        """Lend a connection to a verb. After an error it is rolled back, or thrown away."""
        give_back: Callable[[DeadlineConnection], None] = pool.abandon
        connection = self._lent(pool, deadline, is_write)
        try:
            connection.deadline = deadline
            connection.row_bytes_left = math.inf
            answer = verb(connection)
            give_back = pool.take_back
            return answer
        except SchemalessError:
            give_back = pool.take_back  # a refusal, told from answers that were read to their end
            raise
        except (err.Error, OSError) as error:
            ours = translate(error, self._node, deadline)
            if isinstance(ours, ConnectionBroken):
                give_back = pool.drop
            elif not deadline.is_over:
                give_back = self._after_rollback(pool, connection, deadline)
            raise ours from error
        finally:
            # Half-way through an answer no call can know what the next bytes mean, and the server may still be busy.
            connection.deadline = None
            connection.last_used = time.monotonic()
            (pool.drop if connection.is_cut else give_back)(connection)

    def _after_rollback(
        self, pool: Pool, connection: DeadlineConnection, deadline: Deadline
    ) -> Callable[[DeadlineConnection], None]:
        """End a transaction that an error left open: it may hold a counter row. What becomes of the connection then."""
        try:
            connection.rollback()
        except (err.Error, OSError) as error:
            is_broken = isinstance(translate(error, self._node, deadline), ConnectionBroken)
            return pool.drop if is_broken else pool.abandon  # the server may still be busy with it
        return pool.take_back

    def close(self) -> None:
        self._pool.close()

    def abandon(self) -> None:
        """Start anew in a forked child: the parent's sockets are the parent's, so ours are closed without a word."""
        self._pool.forget_idle()
        self._pool = self._new_pool()

    def _lent(self, pool: Pool, deadline: Deadline, is_write: bool) -> DeadlineConnection:
        try:
            connection = pool.lend(deadline, self._login.deadlines.pool_seconds, is_write=is_write)
        except NoPermit as error:
            raise self._refused(pool, is_all_abandoned=isinstance(error, AllAbandoned)) from error
        except (err.Error, OSError) as error:
            raise translate_connect(error, self._node, deadline) from error
        if is_write and connection.logs_statements:
            pool.drop(connection)
            raise InvalidServer(self._node, "its binlog_format is STATEMENT: it can log no write", hint=ROWS_WANTED)
        return connection

    def _refused(self, pool: Pool, *, is_all_abandoned: bool) -> NodeUnavailable:
        """Why a call has no place in the pool: nothing was sent, so it says nothing of the server's presence.

        But where calls that ran out of time have all places, and the server says nothing of them, no ping would come
        through either: the breakers have to hear of it.
        """
        left = pool.abandoned.count
        is_silent = is_all_abandoned and pool.abandoned.is_unheard
        if is_all_abandoned:
            reason = f"{left} calls of this process that ran out of time have not ended there, so no more are sent"
        else:
            reason = "all its connections are in use" + f", {left} of them by calls that ran out of time" * bool(left)
        hint = _LOOK if left else "Raise pool.size, or share the datastore by fewer threads."
        return NodeUnavailable(self._node, reason, hint=hint, trips_breaker=is_silent)

    def _new_pool(self) -> Pool:
        return Pool(self._pool_config, self._connected, partial(metrics.sessions_abandoned, self._node))

    def _connected(self, deadline: Deadline) -> DeadlineConnection:
        connection = connect(self._login, deadline)
        if connection.packet_bytes_max < self._packet_bytes and not self._is_warned:
            self._is_warned = True
            found = {"node": self._node, "packet_bytes": self._packet_bytes, "bytes_max": connection.packet_bytes_max}
            logger.warning(_SMALL_PACKETS, extra={"event": "node.packets_too_small", **found})
        return connection


_ALL: weakref.WeakSet[Sessions] = weakref.WeakSet()


def _abandon_all() -> None:
    for sessions in list(_ALL):
        sessions.abandon()


os.register_at_fork(after_in_child=_abandon_all)
