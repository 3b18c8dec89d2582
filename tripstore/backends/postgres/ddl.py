"""DDL on busy tables: a lock is waited for shortly, again and again, and whoever holds it is named.

Whoever comes after a waiting lock waits behind it. So the wait ends at `lock_timeout`, everybody passes, and the next
try comes after a pause. No try is made while somebody is in the way who has been for a while.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import md5
from logging import getLogger
from typing import NamedTuple

from psycopg2 import errors as postgres
from psycopg2.extensions import connection as Connection  # noqa: N812

from tripstore.backends.postgres.connections import rows
from tripstore.backends.postgres.errors import LegacyUnavailable
from tripstore.backends.postgres.layout import TableName
from tripstore.backends.postgres.relations import tree

logger = getLogger(__name__)

_NAME_BYTES = 63

_ALL = (
    "AccessShareLock",
    "RowShareLock",
    "RowExclusiveLock",
    "ShareUpdateExclusiveLock",
    "ShareLock",
    "ShareRowExclusiveLock",
    "ExclusiveLock",
    "AccessExclusiveLock",
)
#: What must not be held by others while a lock is taken.
CONFLICTING = {
    "SHARE UPDATE EXCLUSIVE": _ALL[3:],
    "SHARE": (*_ALL[2:4], *_ALL[5:]),
    "SHARE ROW EXCLUSIVE": _ALL[2:],
    "ACCESS EXCLUSIVE": _ALL,
    "a row": _ALL[1:],  # whoever has locked rows holds one of these to the end of his transaction
}

# A prepared transaction has no process; the lock on its own id tells which one it is.
_HOLDERS = """\
SELECT DISTINCT ON (l.pid, x.gid) l.pid, x.gid, COALESCE(a.usename::text, x.owner::text, ''),
  COALESCE(a.application_name, ''),
  CASE a.backend_type WHEN 'client backend' THEN COALESCE(a.state, '') ELSE COALESCE(a.backend_type, '') END,
  COALESCE(extract(epoch FROM clock_timestamp() - COALESCE(a.xact_start, x.prepared)), 0)::float8
 FROM pg_locks l
 LEFT JOIN pg_stat_activity a ON a.pid = l.pid
 LEFT JOIN pg_locks t ON l.pid IS NULL AND t.pid IS NULL AND t.locktype = 'transactionid' AND t.mode = 'ExclusiveLock'
  AND t.virtualtransaction = l.virtualtransaction
 LEFT JOIN pg_prepared_xacts x ON x.transaction = t.transactionid
 WHERE l.locktype = 'relation' AND l.granted AND l.pid IS DISTINCT FROM pg_backend_pid()
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND l.relation = ANY (%s::int8[]::oid[]) AND l.mode = ANY (%s)"""

_SESSIONS = """\
SELECT pid, NULL, COALESCE(usename::text, ''), COALESCE(application_name, ''), COALESCE(state, backend_type, ''),
  COALESCE(extract(epoch FROM clock_timestamp() - xact_start), 0)::float8
 FROM pg_stat_activity WHERE pid = ANY (%s)"""
_PREPARED = """\
SELECT NULL, gid, owner::text, '', '', extract(epoch FROM clock_timestamp() - prepared)::float8
 FROM pg_prepared_xacts WHERE database = current_database()"""

_AUTOVACUUM = "autovacuum worker"
_CANCEL = """\
SELECT pg_cancel_backend(pid) FROM pg_stat_activity
 WHERE pid = %s AND backend_type = 'autovacuum worker' AND query NOT LIKE '%%to prevent wraparound%%'"""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a step makes others wait, and how long it waits itself."""

    lock_timeout_seconds: float = 0.3  #: Below Postgres' deadlock_timeout: no circle of waiting outlives it.
    pause_seconds: float = 1.0  #: Between two tries.
    old_seconds: float = 2.0  #: Whoever is in the way for so long already will not be gone within a try.
    give_up_seconds: float = 300.0  #: Of tries in vain.
    build_give_up_seconds: float = 3600.0  #: Of an index that waits for one and the same transaction.
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


PATIENT = Patience()


class Holder(NamedTuple):
    """A transaction that holds a lock: of a process, or a prepared one."""

    pid: int | None
    gid: str | None
    user: str
    application: str
    state: str
    seconds: float

    def __str__(self) -> str:
        if self.pid is None:
            return f"the prepared transaction {self.gid!r} of {self.user}, {self.seconds:.0f} s old"
        by = " ".join(part for part in (self.user, self.application) if part)
        return f"pid {self.pid} ({by}, {self.state}, its transaction {self.seconds:.0f} s old)"

    @property
    def remedy(self) -> str:
        if self.pid is None:
            return f"COMMIT PREPARED or ROLLBACK PREPARED '{self.gid}'"
        return f"SELECT pg_terminate_backend({self.pid})"


def holders(connection: Connection, table: TableName, mode: str) -> list[Holder]:
    """Who holds a lock on the table or a partition of it that keeps others from `mode`; the oldest first."""
    oids = [relation.oid for relation in tree(connection, table)]
    found = [Holder(*row) for row in rows(connection, _HOLDERS, (oids, list(CONFLICTING[mode])))]
    return sorted(found, key=lambda holder: -holder.seconds)


def sessions(connection: Connection, pids: Collection[int]) -> list[Holder]:
    """Who is behind these pids; 0 stands for a prepared transaction, nobody says which."""
    found = rows(connection, _SESSIONS, (sorted(pids),)) + (rows(connection, _PREPARED) if 0 in pids else [])
    return [Holder(*row) for row in found]


def under_lock(
    connection: Connection,
    table: TableName,
    mode: str,
    statements: Sequence[str],
    patience: Patience = PATIENT,
    *,
    only: bool = False,
) -> None:
    """Run statements in one transaction under a lock on a table, all in one packet.

    So a client that is stopped never holds the lock. No statement may take longer than the lock may be waited for.
    """
    limit = f"'{patience.lock_timeout_seconds * 1000:.0f}ms'"
    limits = [f"SET LOCAL lock_timeout = {limit}", f"SET LOCAL statement_timeout = {limit}"]
    lock = f"LOCK TABLE {'ONLY ' if only else ''}{table.sql} IN {mode} MODE"
    patiently(connection, table, mode, [*limits, lock, *statements], patience)


def without_limit(connection: Connection, table: TableName, statement: str, patience: Patience = PATIENT) -> None:
    """Run a statement that takes long under a lock that keeps nobody from reading or writing rows."""
    limits = [
        f"SET LOCAL lock_timeout = '{patience.lock_timeout_seconds * 1000:.0f}ms'",
        "SET LOCAL statement_timeout = 0",
    ]
    patiently(connection, table, "SHARE UPDATE EXCLUSIVE", [*limits, statement], patience)


def patiently(
    connection: Connection, table: TableName, mode: str, statements: Sequence[str], patience: Patience = PATIENT
) -> None:
    """Run a packet that begins with its limits, again and again until it has its lock."""
    waiting = Waiting(table, mode, patience)
    while not (waiting.is_clear(connection) and _succeeds(connection, "; ".join(statements))):
        waiting.pause(connection)


def _succeeds(connection: Connection, packet: str) -> bool:
    try:
        rows(connection, packet)
    except (postgres.LockNotAvailable, postgres.QueryCanceled, postgres.DeadlockDetected):
        return False
    return True


class Waiting:
    """Tries in vain, up to their end: remembers since when, and says who is in the way."""

    def __init__(self, table: TableName, mode: str, patience: Patience) -> None:
        self._table = table
        self._mode = mode
        self._patience = patience
        self._since = patience.clock()

    def is_clear(self, connection: Connection) -> bool:
        """Whether a try has a chance."""
        found = holders(connection, self._table, self._mode)
        return not found or found[0].seconds < self._patience.old_seconds

    def pause(self, connection: Connection) -> None:
        """Say who is in the way and wait a little, or raise when it was enough. An autovacuum is sent away."""
        found = holders(connection, self._table, self._mode)
        seconds = self._patience.clock() - self._since
        if seconds >= self._patience.give_up_seconds:
            raise in_the_way(self._table, found, seconds)
        logger.warning(
            "A step waits for a lock on %s; in the way: %s",
            self._table,
            _named(found),
            extra={"event": "legacy.lock_waited", "pids": [holder.pid for holder in found]},
        )
        for holder in found:
            if holder.state == _AUTOVACUUM:
                _send_away(connection, holder)
        self._patience.sleep(self._patience.pause_seconds)


def _send_away(connection: Connection, holder: Holder) -> None:
    """What Postgres does by itself, but only for those who wait for longer than deadlock_timeout. It comes back."""
    with suppress(postgres.InsufficientPrivilege):
        rows(connection, _CANCEL, (holder.pid,))


def in_the_way(table: TableName, found: Sequence[Holder], seconds: float) -> LegacyUnavailable:
    remedy = f"Wait for it or end it ({found[0].remedy}), then run" if found else "Run"
    return LegacyUnavailable(
        f"No lock on {table} could be had for {seconds:.0f} s. In the way: {_named(found)}.",
        hint=f"{remedy} the same command again: what is done stays done.",
    )


def _named(found: Sequence[Holder]) -> str:
    return ", ".join(map(str, found[:5])) or "transactions that come and go"


def literal(text: str) -> str:
    """A text as it stands in SQL."""
    return "'" + text.replace("'", "''") + "'"


def our_name(*parts: str) -> str:
    """A name for an object of ours that is no longer than Postgres takes; long ones end with a hash."""
    name = "_".join(parts)
    if len(name.encode()) <= _NAME_BYTES:
        return name
    digest = md5(name.encode(), usedforsecurity=False).hexdigest()[:8]
    return name.encode()[: _NAME_BYTES - 9].decode(errors="ignore") + "_" + digest
