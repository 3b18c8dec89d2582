"""The lease of one MySQL or MariaDB server, and its promises.

They are written on a session of their own, whose changes are in no binary log: a lease that a replica had would say
nothing of that replica, and a dead primary would have changes each second that no replica has got.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

from pymysql import err

from schemaless_core.deadline import Deadline
from schemaless_core.engine.leases import ServerClock
from schemaless_core.engine.mysql.names import LOOK, Names
from schemaless_core.engine.mysql.rows import utc
from schemaless_core.engine.mysql.wire.connection import DeadlineConnection, Login, connect
from schemaless_core.engine.mysql.wire.translation import translate, translate_connect
from schemaless_core.failpoints import reach

T = TypeVar("T")

UNLOGGED = "SET SESSION sql_log_bin = 0, wait_timeout = 20"
#: A session that has rested for longer may have been ended by the server, and is made anew.
REST_SECONDS = 10.0
#: 0 where another server leads, as far as this one knows.
NUMBER = """\
COALESCE((SELECT MAX(number) FROM {primacy} HAVING MAX(number) = MAX(IF(server = @@server_id, number, 0))), 0)"""
CLOCK = f"SELECT @@server_id, {NUMBER}, UTC_TIMESTAMP(6)"
UNFENCED = "NOT EXISTS (SELECT 1 FROM {state} WHERE state = 'RO')"
# Of one that leads, needs a lease, and is not fenced: a planned promotion, which waits for no lease, fences it first.
MAY_LEAD = f" EXISTS (SELECT 1 FROM {{lease}} needed WHERE needed.server = 0) AND {UNFENCED}"
EXTEND = f"""\
INSERT INTO {{lease}} (server, lasts_until)
 SELECT @@server_id, %s + INTERVAL %s MICROSECOND FROM DUAL
 WHERE @@server_id = %s AND {NUMBER} = %s AND {NUMBER} > 0 AND {MAY_LEAD}
 ON DUPLICATE KEY UPDATE lasts_until = VALUES(lasts_until)"""
LEFT = """\
SELECT TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), MAX(lasts_until)) FROM {lease} WHERE server = @@server_id"""
# The row of server 0 is logged, as the opening is that makes it. A server that is fenced changes nothing any more:
# what it had then is measured.
BEAT = (
    "SET SESSION sql_log_bin = 1",
    LOOK,
    f"UPDATE {{lease}} SET lasts_until = UTC_TIMESTAMP(6) WHERE server = 0 AND @tripstore_leased AND {UNFENCED}",
    "SET SESSION sql_log_bin = 0",
)
BEATEN_AT = "SELECT MAX(lasts_until) FROM {lease} WHERE server = 0"
MAY_VOTE = f"({{leased}} AND {NUMBER} > 0 AND {MAY_LEAD})"
PROMISE = f"""\
INSERT INTO {{promise}} (server, cluster, number) SELECT @@server_id, %s, %s FROM DUAL WHERE {MAY_VOTE}
 ON DUPLICATE KEY UPDATE number = GREATEST(number, VALUES(number))"""
# Written while the server is fenced, before it leads: it has no lease yet.
TAKE_OVER = """\
INSERT INTO {promise} (server, cluster, number) VALUES (@@server_id, %s, %s)
 ON DUPLICATE KEY UPDATE number = GREATEST(number, VALUES(number))"""
# Of no row MariaDB answers NULL, and of its expressions NULL, too.
PROMISED = f"""\
SELECT COALESCE((SELECT MAX(number) FROM {{promise}} WHERE server = @@server_id AND cluster = %s), 0), {MAY_VOTE}"""


class MySQLLeases:
    """The `LeaseTables` of one server."""

    def __init__(self, login: Login, names: Names) -> None:
        self._login = login
        self._names = names
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._connection: DeadlineConnection | None = None
        self._used_at = 0.0

    def clock(self, deadline: Deadline) -> ServerClock:
        server, number, now = self._row(CLOCK, (), deadline)
        return ServerClock(int(server), int(number), utc(now))

    def extend(self, clock: ServerClock, seconds: float, deadline: Deadline) -> bool:
        reach("lease.before_extend")
        now = clock.now.replace(tzinfo=None)
        values = (now, int(seconds * 1_000_000), clock.server, clock.number)
        self._execute(EXTEND, values, deadline)
        return self.clock(deadline)[:2] == clock[:2] and self.left(deadline) > 0

    def left(self, deadline: Deadline) -> float:
        (microseconds,) = self._row(LEFT, (), deadline)
        return 0.0 if microseconds is None else int(microseconds) / 1_000_000

    def beat(self, deadline: Deadline) -> None:
        def beat(connection: DeadlineConnection) -> None:
            with connection.cursor() as cursor:
                for statement in BEAT:
                    cursor.execute(self._names.meta_sql(statement))

        self._do(beat, deadline)

    def beaten_at(self, deadline: Deadline) -> datetime | None:
        (at,) = self._row(BEATEN_AT, (), deadline)
        return None if at is None else utc(at)

    def promise(self, cluster: str, number: int, deadline: Deadline) -> bool:
        self._execute(PROMISE, (cluster.encode(), number), deadline)
        promised = self.promised(cluster, deadline)
        return promised is not None and promised >= number

    def promised(self, cluster: str, deadline: Deadline) -> int | None:
        number, may_say = self._row(PROMISED, (cluster.encode(),), deadline)
        return int(number) if may_say else None

    def close(self) -> None:
        with self._lock:
            self._forget()

    def _row(self, statement: str, values: tuple[Any, ...], deadline: Deadline) -> tuple[Any, ...]:
        def read(connection: DeadlineConnection) -> tuple[Any, ...]:
            with connection.cursor() as cursor:
                cursor.execute(self._names.meta_sql(statement), values)
                return cursor.fetchone() or ()

        return self._do(read, deadline)

    def _execute(self, statement: str, values: tuple[Any, ...], deadline: Deadline) -> None:
        def execute(connection: DeadlineConnection) -> None:
            with connection.cursor() as cursor:
                cursor.execute(self._names.meta_sql(statement), values)

        self._do(execute, deadline)

    def _do(self, verb: Callable[[DeadlineConnection], T], deadline: Deadline) -> T:
        """On a session that writes nothing else. After a fork the parent's is the parent's."""
        if self._process != os.getpid():
            self._begin()
        with self._lock:
            try:
                if time.monotonic() - self._used_at > REST_SECONDS:
                    self._forget()
                if self._connection is None:
                    self._connection = self._connected(deadline)
                self._connection.deadline = deadline
                answer = verb(self._connection)
                self._used_at = time.monotonic()
                return answer
            except (err.Error, OSError) as error:
                self._forget()  # whatever it was in the midst of: its changes may be logged
                raise translate(error, str(self._login.url), deadline) from error

    def _connected(self, deadline: Deadline) -> DeadlineConnection:
        try:
            connection = connect(self._login, deadline)
        except (err.Error, OSError) as error:
            raise translate_connect(error, str(self._login.url), deadline) from error
        try:
            with connection.cursor() as cursor:
                cursor.execute(UNLOGGED)
        except BaseException:
            connection.forget()
            raise
        return connection

    def _forget(self) -> None:
        if self._connection is not None:
            self._connection.forget()
            self._connection = None
