"""`LogDays`: the log of changes by day. Days are made ahead, and dropped whole when all of their rows are old enough.

A change is in the partition of the day on which it was made, and in `log_rest` when that day has none. So no writer or
reader depends on this file: every lock that is in their way is waited for very shortly, and what could not be
done is done by the next call. A day, in UTC, goes as a whole, and not before the next one is old, too: then its last
changes were delivered, and it is looked through once. So a change stays up to two days longer than asked.

Postgres looks through `log_rest` before it takes a new partition, and keeps all others out of it meanwhile. While it is
small, that is quick. A large one is looked through before, while others use it: a constraint then says that it has no
change of that day. It would refuse one, so it is for days only that begin after the next calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from logging import getLogger

from psycopg2 import errors as postgres
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from schemaless_core.failpoints import reach
from tripstore.backends.postgres.cells.log import forget, leave_gaps
from tripstore.backends.postgres.ddl.ddl import Patience, patiently
from tripstore.backends.postgres.errors import LegacyUnavailable
from tripstore.backends.postgres.layout.layout import TableName
from tripstore.backends.postgres.names import SCHEMA
from tripstore.backends.postgres.wire.connections import rows

logger = getLogger(__name__)

LOG = TableName(SCHEMA, "log")
REST = TableName(SCHEMA, "log_rest")
DAYS_AHEAD = 3
#: From then on a day may be excluded from `log_rest` until it has its partition: there are that many days of tries.
FAR = timedelta(days=DAYS_AHEAD)
#: There are days to try in: relays and the mirror wait behind a try of ours for twice the lock's limit at most.
SHY = Patience(lock_timeout_seconds=0.2, pause_seconds=0.5, give_up_seconds=3.0)
#: No session of the company's holds a lock that is in the way of a look.
LOOK_LOCK_SECONDS = 30
#: How much of `log_rest` is looked through while others wait.
SMALL_BLOCKS = 1_000
BLOCKS_PER_DELETE = 1_000

_LOCK = 7_245_117_003
_TRY = "SELECT pg_catalog.pg_try_advisory_lock(%s)"
_UNLOCK = "SELECT pg_catalog.pg_advisory_unlock(%s)"
#: Whatever has the name of a day; one that an operator has detached is not ours to drop, nor made again.
_DAYS = """
SELECT c.relname, EXISTS (
    SELECT FROM pg_catalog.pg_inherits i WHERE i.inhrelid = c.oid AND i.inhparent = 'tripstore.log'::regclass)
FROM pg_catalog.pg_class c
WHERE c.relnamespace = 'tripstore'::regnamespace AND c.relkind = 'r' AND c.relname ~ '^log_[0-9]{8}$'
ORDER BY c.relname
"""
_TODAY = "SELECT (pg_catalog.clock_timestamp() AT TIME ZONE 'UTC')::date"
_EXCLUDED = """
SELECT conname FROM pg_catalog.pg_constraint
WHERE conrelid = 'tripstore.log_rest'::regclass AND conname ~ '^no_[0-9]{8}$' ORDER BY conname
"""
#: A day may be made by another member of the owner's role; the owner drops it.
_OWNER = """
SELECT pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(relowner)) FROM pg_catalog.pg_class WHERE oid = %s::regclass
"""
#: One that had chosen `log_rest` by then would be refused there once there is a partition.
_KEEP_WRITERS_OUT = f"LOCK TABLE ONLY {LOG.sql} IN SHARE ROW EXCLUSIVE MODE"
_IN_QUEUE = "SELECT EXISTS (SELECT FROM tripstore.queue WHERE at >= %s AND at < %s)"
_OLD_ROWS = "SELECT count(*), count(*) FILTER (WHERE delivered_at < %s) FROM {}"
_BLOCKS_OF_REST = "SELECT pg_catalog.pg_relation_size('tripstore.log_rest') / current_setting('block_size')::int"
_IS_OLD = "at < '{0}' AND delivered_at < '{0}'"
_DELETE = """
WITH gone AS (DELETE FROM tripstore.log_rest WHERE ctid >= %s::tid AND ctid < %s::tid AND {} RETURNING 1)
SELECT count(*) FROM gone
"""


@dataclass(frozen=True, slots=True)
class KeptLog:
    """What one call did."""

    created: tuple[date, ...] = ()
    dropped: tuple[date, ...] = ()
    rows: int = 0  #: Changes that are gone, with their day or one by one.
    left: tuple[date, ...] = ()  #: Days that another session's lock kept from being made or dropped.


def keep_log_days(
    connection: Connection, retention_days: int, today: date, *, shards: int, patience: Patience = SHY
) -> KeptLog:
    """Make the days to come, drop those that are over and old. To be called every hour, by any number of processes.

    While one is at it, the others have nothing to do. May be killed anywhere. A `today` that the database's own clock
    has not reached is not believed.
    """
    with _alone(connection) as is_mine:
        if not is_mine:
            return KeptLog()
        today = min(today, rows(connection, _TODAY)[0][0])
        return LogDays(connection, shards, patience).keep(today, today - timedelta(days=retention_days))


@contextmanager
def _alone(connection: Connection) -> Iterator[bool]:
    """A session lock: Postgres releases it when the holder is killed. Looks take as long as they take."""
    is_mine = bool(rows(connection, _TRY, (_LOCK,))[0][0])
    try:
        rows(connection, f"SET statement_timeout = 0; SET lock_timeout = '{LOOK_LOCK_SECONDS}s'")
        yield is_mine
    finally:
        if not connection.closed:
            rows(connection, "RESET statement_timeout; RESET lock_timeout")
            if is_mine:
                rows(connection, _UNLOCK, (_LOCK,))


class LogDays:
    """The partitions of the log, for a caller that is alone with them."""

    def __init__(self, connection: Connection, shards: int, patience: Patience = SHY) -> None:
        self._connection = connection
        self._shards = shards
        self._patience = patience
        self._left: list[date] = []

    def keep(self, today: date, until: date) -> KeptLog:
        """Make the days from today on that are missing; drop what is over and was delivered before `until`."""
        self._let_in(today + FAR)
        days = dict(self._days())
        created = [day for day in _following(today, DAYS_AHEAD) if day not in days and self._create(day, today)]
        dropped = [self._drop(day, until) for day, is_ours in days.items() if is_ours and day + _DAY < until]
        gone = [(day, count) for day, count in dropped if count is not None]
        deleted = self._delete_from_rest(until)
        forget(self._connection, _midnight(until))
        total = sum(count for _day, count in gone) + deleted
        return KeptLog(tuple(created), tuple(day for day, _count in gone), total, tuple(self._left))

    def _days(self) -> Iterator[tuple[date, bool]]:
        for name, is_ours in rows(self._connection, _DAYS):
            with suppress(ValueError):  # no day
                yield date.fromisoformat(name.removeprefix("log_")), is_ours

    def _create(self, day: date, today: date) -> bool:
        if self._rest_blocks() <= SMALL_BLOCKS:
            is_made = self._attach(day)
        else:
            is_made = day >= today + FAR and self._exclude(day) and self._attach(day, moved=False)
        if is_made:
            logger.info("The log has a partition for %s", day, extra={"event": "legacy.log_day_made", "day": str(day)})
            reach("log.day_made")
        return is_made

    def _attach(self, day: date, *, moved: bool = True) -> bool:
        """Make a partition, with the changes of its day that `log_rest` has, in one packet.

        So no client that is killed leaves half of one, or a lock.
        """
        table, begin, end = _table(day), _midnight(day), _midnight(day + _DAY)
        taken = f"DELETE FROM {REST.sql} WHERE at >= '{begin}' AND at < '{end}' RETURNING *"
        move = f"WITH moved AS ({taken}) INSERT INTO {table.sql} SELECT * FROM moved"
        ((owner,),) = rows(self._connection, _OWNER, (LOG.sql,))
        statements = [
            f"CREATE TABLE {table.sql} (LIKE {LOG.sql} INCLUDING INDEXES)",
            f"ALTER TABLE {table.sql} OWNER TO {owner}",
            _KEEP_WRITERS_OUT,
            *([move] if moved else []),
            f"ALTER TABLE {LOG.sql} ATTACH PARTITION {table.sql} FOR VALUES FROM ('{begin}') TO ('{end}')",
            f"ALTER TABLE {REST.sql} DROP CONSTRAINT IF EXISTS {_excluded(day)}",
        ]
        return self._is_done(day, REST, statements)

    def _exclude(self, day: date) -> bool:
        """Have `log_rest` say that it has no change of a day; False: it has one, or another lock is in the way."""
        is_other = f"at < '{_midnight(day)}' OR at >= '{_midnight(day + _DAY)}'"
        add = f"ALTER TABLE {REST.sql} ADD CONSTRAINT {_excluded(day)} CHECK ({is_other}) NOT VALID"
        is_known = (_excluded(day),) in rows(self._connection, _EXCLUDED)
        if not is_known and not self._is_done(day, REST, [add]):
            return False
        reach("log.day_excluded")
        try:
            rows(self._connection, f"ALTER TABLE {REST.sql} VALIDATE CONSTRAINT {_excluded(day)}")
        except postgres.CheckViolation:
            self._let_in(day + _DAY)
            return False
        return True

    def _let_in(self, until: date) -> None:
        """Take off what a killed run left, before it refuses a change."""
        for (name,) in rows(self._connection, _EXCLUDED):
            day = date.fromisoformat(name.removeprefix("no_"))
            if day < until:
                self._is_done(day, REST, [f"ALTER TABLE {REST.sql} DROP CONSTRAINT {name}"])

    def _drop(self, day: date, until: date) -> tuple[date, int | None]:
        """Drop a day that is over if all of it was delivered before `until`; None: it stays, else how many rows it had.

        No change of it waits in the queue, so none comes to it between the look and the end.
        """
        table, begin, end = _table(day), _midnight(day), _midnight(day + _DAY)
        if rows(self._connection, _IN_QUEUE, (begin, end))[0][0]:
            return day, None
        count, old = rows(self._connection, _OLD_ROWS.format(table.sql), (_midnight(until),))[0]
        if old < count:
            return day, None
        leave_gaps(self._connection, table.sql, self._shards)
        reach("log.gaps_left")
        if not self._is_done(day, LOG, [f"DROP TABLE {table.sql}"]):
            return day, None
        extra = {"event": "legacy.log_day_dropped", "day": str(day), "rows": count}
        logger.info("The log of %s was dropped", day, extra=extra)
        reach("log.day_dropped")
        return day, count

    def _is_done(self, day: date, table: TableName, statements: Sequence[str]) -> bool:
        """Run a packet under its limits, or leave it to the next call."""
        try:
            patiently(self._connection, table, "ACCESS EXCLUSIVE", statements, self._patience)
        except LegacyUnavailable as error:
            logger.warning("%s", error, extra={"event": "legacy.log_day_left", "day": str(day)})
            self._left.append(day)
            return False
        return True

    def _delete_from_rest(self, until: date) -> int:
        """Delete what is old, a range of blocks after the other: each block is looked at once."""
        is_old = _IS_OLD.format(_midnight(until))
        blocks = self._rest_blocks()
        if blocks:
            leave_gaps(self._connection, f"(SELECT * FROM {REST.sql} WHERE {is_old})", self._shards)
        count = 0
        for block in range(0, blocks, BLOCKS_PER_DELETE):
            bounds = (f"({block},0)", f"({block + BLOCKS_PER_DELETE},0)")
            count += rows(self._connection, _DELETE.format(is_old), bounds)[0][0]
            reach("log.rows_deleted")
        if count:
            extra = {"event": "legacy.log_rows_deleted", "rows": count}
            logger.info("%d changes without a day of their own were deleted", count, extra=extra)
        return count

    def _rest_blocks(self) -> int:
        return int(rows(self._connection, _BLOCKS_OF_REST)[0][0])


_DAY = timedelta(days=1)


def _following(first: date, count: int) -> list[date]:
    return [first + number * _DAY for number in range(count + 1)]


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def _table(day: date) -> TableName:
    return TableName(SCHEMA, f"log_{day:%Y%m%d}")


def _excluded(day: date) -> str:
    """What the constraint is called that keeps a day out of `log_rest`."""
    return f"no_{day:%Y%m%d}"
