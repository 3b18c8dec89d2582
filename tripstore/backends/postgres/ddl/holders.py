"""The holders of a lock that is in the way of a step: a process, or a prepared transaction."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import NamedTuple

from psycopg2 import errors as postgres
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from tripstore.backends.postgres.ddl.relations import tree
from tripstore.backends.postgres.errors import LegacyUnavailable
from tripstore.backends.postgres.layout.layout import TableName
from tripstore.backends.postgres.wire.connections import rows

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
    "a row": _ALL[1:],  # a transaction that has locked rows holds one of these to its end
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
_CANCEL = """\
SELECT pg_cancel_backend(pid) FROM pg_stat_activity
 WHERE pid = %s AND backend_type = 'autovacuum worker' AND query NOT LIKE '%%to prevent wraparound%%'"""


_AUTOVACUUM = "autovacuum worker"


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
    def is_autovacuum(self) -> bool:
        return self.state == _AUTOVACUUM

    @property
    def remedy(self) -> str:
        if self.pid is None:
            return f"COMMIT PREPARED or ROLLBACK PREPARED '{self.gid}'"
        return f"SELECT pg_terminate_backend({self.pid})"


def holders(connection: Connection, table: TableName, mode: str) -> list[Holder]:
    """The holders of a lock on the table or a partition of it that conflicts with `mode`; the oldest first."""
    oids = [relation.oid for relation in tree(connection, table)]
    found = [Holder(*row) for row in rows(connection, _HOLDERS, (oids, list(CONFLICTING[mode])))]
    return sorted(found, key=lambda holder: -holder.seconds)


def sessions(connection: Connection, pids: Collection[int]) -> list[Holder]:
    """The sessions behind these pids; 0 stands for a prepared transaction, Postgres does not say which."""
    found = rows(connection, _SESSIONS, (sorted(pids),)) + (rows(connection, _PREPARED) if 0 in pids else [])
    return [Holder(*row) for row in found]


def send_away(connection: Connection, holder: Holder) -> None:
    """What Postgres does by itself, but only for sessions that wait for longer than deadlock_timeout. It comes back."""
    with suppress(postgres.InsufficientPrivilege):
        rows(connection, _CANCEL, (holder.pid,))


def in_the_way(table: TableName, found: Sequence[Holder], seconds: float) -> LegacyUnavailable:
    remedy = f"Wait for it or end it ({found[0].remedy}), then run" if found else "Run"
    return LegacyUnavailable(
        f"No lock on {table} could be had for {seconds:.0f} s. In the way: {named(found)}.",
        hint=f"{remedy} the same command again: what is done stays done.",
    )


def named(found: Sequence[Holder]) -> str:
    return ", ".join(map(str, found[:5])) or "transactions that come and go"
