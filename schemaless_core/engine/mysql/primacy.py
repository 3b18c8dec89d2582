"""What a promotion does to one server, on a session of its own, and what each server says of who leads.

The session holds a lock of that server from the fence on: no two promotions have it at once. It is never opened anew,
so a server that died meanwhile is not opened by what was known before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

from pymysql import err

from schemaless_core import metrics
from schemaless_core.deadline import Deadline
from schemaless_core.engine.mysql import replication
from schemaless_core.engine.mysql.authority import NOTE, transact_patiently
from schemaless_core.engine.mysql.leases import TAKE_OVER
from schemaless_core.engine.mysql.names import ALL_DONE, Names
from schemaless_core.engine.mysql.wire.connection import DeadlineConnection, Login, bound, connect
from schemaless_core.engine.mysql.wire.transactions import TRIES, send
from schemaless_core.engine.mysql.wire.translation import is_deadlock, is_missing, translate, translate_connect
from schemaless_core.engine.primacy import (
    FIRST,
    EpochRun,
    Lead,
    Leadership,
    NotNow,
    Opening,
    Reached,
    ReplicationLogin,
)
from schemaless_core.errors import NodeUnavailable, PromotionRefused, ServerInHand
from schemaless_core.failpoints import reach

T = TypeVar("T")

ME = "SELECT @@server_id"
LEADER = "SELECT number, server FROM {primacy} ORDER BY number DESC LIMIT 1"
ARE_NEEDED = "SELECT COUNT(*) FROM {lease} WHERE server = 0"
# Logged, as the opening is: a replica needs a lease from the moment that it leads. No local row has this key.
NEED = """\
INSERT INTO {lease} (server, lasts_until) VALUES (0, UTC_TIMESTAMP(6))
 ON DUPLICATE KEY UPDATE lasts_until = VALUES(lasts_until)"""
NEED_NONE = "DELETE FROM {lease} WHERE server = 0"
LEADS = "INSERT INTO {primacy} (number, server, at) VALUES (%s, @@server_id, UTC_TIMESTAMP(6))"
OTHERS = """\
SELECT table_schema FROM information_schema.tables WHERE table_name = 'shard_state' AND table_schema <> %s
 AND table_schema LIKE '%%\\_meta' ORDER BY 1"""
TAKE = "SELECT GET_LOCK(%s, %s)"
# Shards that are being moved as well: what was sent to open one of them may arrive late.
WRITABLE = "SELECT COUNT(*) FROM {state} WHERE state NOT IN ('RO', 'MOVED')"
FENCE = "UPDATE {state} SET state = 'RO' WHERE state NOT IN ('RO', 'MOVED')"
AUTHORITY_EPOCH = "SELECT COALESCE(MAX(authority_epoch), 0) FROM {state} WHERE state <> 'MOVED'"
# Under the counter rows' locks, which it keeps: a hand-over changes no epoch between this look and the opening.
HELD_EPOCH = f"{AUTHORITY_EPOCH} FOR UPDATE"
SHARDS = "SELECT COUNT(*) FROM {state} WHERE state <> 'MOVED'"
# As the shards were opened last, whatever fenced them since.
STATES_BEFORE = """\
SELECT DISTINCT h.state FROM {state} s JOIN {authority} h
 ON h.shard = s.shard AND h.authority_epoch = s.authority_epoch WHERE s.state <> 'MOVED'"""
OPEN = """\
UPDATE {state} SET epoch = GREATEST(epoch + 1, %s), authority_epoch = GREATEST(authority_epoch, %s), state = %s
 WHERE shard BETWEEN %s AND %s AND state <> 'MOVED'"""
# A replica may not have heard that a shard has left: without this it would take puts of it again.
CLOSE_STRAYS = "UPDATE {state} SET state = 'MOVED' WHERE state <> 'MOVED' AND NOT (PLACED)"
NOTE_EPOCHS = """\
INSERT INTO {history} (shard, epoch, first_added_id, opened_at, why)
 SELECT shard, epoch, next_added_id, UTC_TIMESTAMP(6), %s FROM {state} WHERE state <> 'MOVED'
 ON DUPLICATE KEY UPDATE epoch = {history}.epoch"""

HAS_LOCK = "SELECT IS_USED_LOCK(%s) IS NOT NULL"

#: A promotion that is stopped loses its servers so soon; one that works is never silent so long.
IDLE_SECONDS = 20
TAKE_SECONDS = IDLE_SECONDS + 10


def leadership(connection: DeadlineConnection, names: Names) -> Leadership:
    with connection.cursor() as cursor:
        cursor.execute(ME)
        (me,) = cursor.fetchone() or (0,)
    return Leadership(_leader(connection, names), int(me), _is_leased(connection, names))


def _is_leased(connection: DeadlineConnection, names: Names) -> bool:
    with connection.cursor() as cursor:
        try:
            cursor.execute(names.meta_sql(ARE_NEEDED))
        except err.ProgrammingError as error:
            if not is_missing(error):
                raise
            return False
        (found,) = cursor.fetchone() or (0,)
        return bool(found)


def _leader(connection: DeadlineConnection, names: Names) -> Lead:
    with connection.cursor() as cursor:
        try:
            cursor.execute(names.meta_sql(LEADER))
        except err.ProgrammingError as error:
            if not is_missing(error):
                raise
            return FIRST
        found = cursor.fetchone()
        return FIRST if found is None else Lead(*found)


class MySQLCandidate:
    """A `Candidate` on MySQL or MariaDB."""

    def __init__(self, login: Login, names: Names) -> None:
        self._login = login
        self._names = names
        self._connection: DeadlineConnection | None = None
        self._is_over = False

    def fence(self, number: int, deadline: Deadline, *, led: bool) -> Lead:
        return self._do(lambda connection: self._fence(connection, number, deadline, led=led), deadline)

    def _fence(self, connection: DeadlineConnection, number: int, deadline: Deadline, *, led: bool) -> Lead:
        self._take(connection)
        leader = _leader(connection, self._names)
        if leader.number >= number:
            return leader
        # A primary may follow a server, too: in a ring, or by what is left of an earlier time.
        leads = leader.server == self._me(connection) if leader.number else led
        if not leads and replication.following(connection) is not None:
            return leader
        if self._count(connection, WRITABLE):
            replication.let_superusers_write(connection)
            transact_patiently(connection, [self._names.meta_sql(FENCE).encode()], deadline)
        replication.refuse_writes(connection, are_refused=True)
        if connection.is_mariadb:
            transact_patiently(connection, [ALL_DONE.format(meta=self._names.meta).encode()], deadline)
        return leader

    def _take(self, connection: DeadlineConnection) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"SET SESSION wait_timeout = {IDLE_SECONDS}, lock_wait_timeout = 5")
            cursor.execute(TAKE, (f"tripstore {self._names.datastore} primacy", TAKE_SECONDS))
            (is_mine,) = cursor.fetchone() or (0,)
        if not is_mine:
            raise ServerInHand(connection.node)

    def reached(self, deadline: Deadline) -> Reached:
        return Reached(self._do(replication.position, deadline))

    def has(self, reached: Reached, deadline: Deadline) -> bool:
        return self._do(lambda connection: replication.has(connection, reached.position), deadline)

    def cut_off(self, deadline: Deadline) -> bool:
        def cut(connection: DeadlineConnection) -> bool:
            its = replication.following(connection)
            if its is None:
                return True
            if its.fetches:
                with connection.cursor() as cursor:
                    cursor.execute(replication.CUT_OFF)
                return False  # what was on its way is looked at next time
            return replication.has_applied(connection, its)

        return self._do(cut, deadline)

    def open(
        self,
        number: int,
        opening: Opening | None,
        epochs: Sequence[EpochRun],
        promises: Mapping[str, int] | None,
        deadline: Deadline,
    ) -> Lead | NotNow:
        return self._do(
            lambda connection: self._open(connection, number, opening, epochs, promises, deadline), deadline
        )

    def _open(
        self,
        connection: DeadlineConnection,
        number: int,
        opening: Opening | None,
        epochs: Sequence[EpochRun],
        promises: Mapping[str, int] | None,
        deadline: Deadline,
    ) -> Lead | NotNow:
        names = self._names
        leader = _leader(connection, names)
        if leader.number >= number:
            if leader == Lead(number, self._me(connection)):
                replication.refuse_writes(connection, are_refused=False)  # who opened it may have died before
                replication.keep(connection, are_refused=False)
            return leader
        replication.follow_none(connection)
        found = self._count(connection, AUTHORITY_EPOCH)
        if opening is not None and found > opening.authority_epoch:
            return NotNow(found)
        how = opening or Opening(found, self._status_before(connection))
        replication.refuse_writes(connection, are_refused=False)
        reach("promotion.writable")
        if promises is not None:
            self._take_over(connection, promises)
        statements = self._opening(connection, number, how, epochs, are_leased=promises is not None)
        held = self._opened(connection, how, statements, deadline)
        if held > how.authority_epoch:  # a hand-over came in as soon as it could
            replication.refuse_writes(connection, are_refused=True)
            return NotNow(held)
        replication.keep(connection, are_refused=False)
        return _leader(connection, names)

    def _opened(
        self, connection: DeadlineConnection, how: Opening, statements: Sequence[bytes], deadline: Deadline
    ) -> int:
        """The highest authority epoch of any shard, under the locks under which they are opened, if it may be so.

        The victim of a deadlock is sent again: the server has rolled all of it back.
        """
        for attempt in range(1, TRIES + 1):
            connection.begin()
            try:
                held = self._count(connection, HELD_EPOCH)
                if held <= how.authority_epoch:
                    self._sent(connection, statements)
                connection.commit()
            except err.Error as error:
                if not is_deadlock(error) or attempt == TRIES or deadline.is_over:
                    raise
            else:
                return held
            metrics.call_repeated("deadlock")
        raise AssertionError("the last attempt returns or raises")

    def _sent(self, connection: DeadlineConnection, statements: Sequence[bytes]) -> None:
        with send(connection, b"; ".join(statements)) as cursor:
            while cursor.nextset():
                pass

    def _opening(
        self, connection: DeadlineConnection, number: int, how: Opening, epochs: Sequence[EpochRun], *, are_leased: bool
    ) -> list[bytes]:
        names = self._names
        return [
            bound(connection, names.meta_sql(LEADS), (number,)),
            *(
                bound(
                    connection, names.meta_sql(OPEN), (run.epoch, how.authority_epoch, how.status, run.first, run.last)
                )
                for run in epochs
            ),
            self._close_strays(connection, epochs),
            bound(connection, names.meta_sql(NOTE_EPOCHS), (f"promotion {number}",)),
            bound(connection, names.meta_sql(NOTE), (how.authority_epoch,)),
            *self._need(connection, are_needed=are_leased),
        ]

    def _close_strays(self, connection: DeadlineConnection, epochs: Sequence[EpochRun]) -> bytes:
        placed = " OR ".join(f"shard BETWEEN {int(run.first)} AND {int(run.last)}" for run in epochs) or "FALSE"
        return self._names.meta_sql(CLOSE_STRAYS).replace("PLACED", placed).encode()

    def _need(self, connection: DeadlineConnection, *, are_needed: bool) -> list[bytes]:
        """What says to all servers of the cluster whether its primary needs a lease; of earlier versions, nothing."""
        if not are_needed and not _is_leased(connection, self._names):
            return []
        return [self._names.meta_sql(NEED if are_needed else NEED_NONE).encode()]

    def _take_over(self, connection: DeadlineConnection, promises: Mapping[str, int]) -> None:
        """Know what it has to know as a voter. An error ends the session, which writes into no binary log then."""
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION sql_log_bin = 0")
            for cluster, number in promises.items():
                cursor.execute(self._names.meta_sql(TAKE_OVER), (cluster.encode(), number))
            cursor.execute("SET SESSION sql_log_bin = 1")

    def _status_before(self, connection: DeadlineConnection) -> str:
        """How its shards were open, where no layer above says how they are to be. Of copies alone it opens none."""
        if not self._count(connection, SHARDS):
            return "RW"
        with connection.cursor() as cursor:
            cursor.execute(self._names.meta_sql(STATES_BEFORE))
            states = {state for (state,) in cursor.fetchall()} - {"RO", "GOING", "COMES"}
        if len(states) != 1:
            raise PromotionRefused(
                f"The shards of {connection.node} do not say how they were open before they were fenced.",
                hint="Promote by `tripstore shards promote`, which asks the authority row.",
            )
        return str(states.pop())

    def follow(self, host: str, port: int, login: ReplicationLogin, deadline: Deadline) -> None:
        def follow(connection: DeadlineConnection) -> None:
            replication.follow(connection, host, port, login)
            replication.refuse_writes(connection, are_refused=True)
            replication.keep(connection, are_refused=True)

        self._do(follow, deadline)

    def identity(self, deadline: Deadline) -> int:
        return self._do(self._me, deadline)

    def seconds_behind(self, deadline: Deadline) -> int | None:
        its = self._do(replication.following, deadline)
        return None if its is None else its.seconds_behind

    def other_datastores(self, deadline: Deadline) -> list[str]:
        def look(connection: DeadlineConnection) -> list[str]:
            with connection.cursor() as cursor:
                cursor.execute(OTHERS, (f"{self._names.datastore}_meta",))
                return [str(schema).removesuffix("_meta") for (schema,) in cursor.fetchall()]

        return self._do(look, deadline)

    def has_lock(self, name: str, deadline: Deadline) -> bool:
        def look(connection: DeadlineConnection) -> bool:
            with connection.cursor() as cursor:
                cursor.execute(HAS_LOCK, (name,))
                (found,) = cursor.fetchone() or (0,)
            return bool(found)

        return self._do(look, deadline)

    def stay(self, deadline: Deadline) -> None:
        self._do(self._me, deadline)

    def close(self) -> None:
        self._is_over = True
        if self._connection is not None:
            self._connection.forget()

    def _me(self, connection: DeadlineConnection) -> int:
        return self._count(connection, ME)

    def _count(self, connection: DeadlineConnection, statement: str) -> int:
        with connection.cursor() as cursor:
            cursor.execute(self._names.meta_sql(statement))
            (found,) = cursor.fetchone() or (0,)
            return int(found)

    def _do(self, verb: Callable[[DeadlineConnection], T], deadline: Deadline) -> T:
        """On the one session that there ever is."""
        with self._translated(deadline):
            if self._connection is None:
                self._connection = self._connected(deadline)
            self._connection.deadline = deadline
            return verb(self._connection)

    def _connected(self, deadline: Deadline) -> DeadlineConnection:
        if self._is_over:
            raise NodeUnavailable(str(self._login.url), "the session of this promotion has ended", trips_breaker=False)
        try:
            return connect(self._login, deadline)
        except (err.Error, OSError) as error:
            raise translate_connect(error, str(self._login.url), deadline) from error

    @contextmanager
    def _translated(self, deadline: Deadline) -> Iterator[None]:
        try:
            yield
        except (err.Error, OSError) as error:
            self.close()
            self._connection = None
            raise translate(error, str(self._login.url), deadline) from error
