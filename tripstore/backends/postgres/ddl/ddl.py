"""DDL on busy tables: a lock is waited for shortly, again and again, and its holder is named.

Postgres queues every later session behind a waiting lock. So the wait ends at `lock_timeout`, all others pass, and the
next try comes after a pause. No try is made while a session is in the way that has been for a while.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import md5
from logging import getLogger

from psycopg2 import errors as postgres
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from tripstore.backends.postgres.ddl.holders import holders, in_the_way, named, send_away
from tripstore.backends.postgres.ddl.watched import run_watched
from tripstore.backends.postgres.layout.layout import TableName
from tripstore.backends.postgres.wire.connections import rows

logger = getLogger(__name__)

_NAME_BYTES = 63


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a step makes others wait, and how long it waits itself."""

    lock_timeout_seconds: float = 0.3  #: Below Postgres' deadlock_timeout: no circle of waiting outlives it.
    pause_seconds: float = 1.0  #: Between two tries.
    old_seconds: float = 2.0  #: A session that is in the way for so long already will not be gone within a try.
    give_up_seconds: float = 300.0  #: Of tries in vain.
    build_give_up_seconds: float = 3600.0  #: Of an index that waits for one and the same transaction.
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


PATIENT = Patience()


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
    lock = f"LOCK TABLE {'ONLY ' if only else ''}{table.sql} IN {mode} MODE"
    patiently(connection, table, mode, [lock, *statements], patience)


def without_limit(connection: Connection, table: TableName, statement: str, patience: Patience = PATIENT) -> None:
    """Run a statement that takes long under a lock that keeps no session from reading or writing rows."""
    limits = [
        f"SET LOCAL lock_timeout = '{patience.lock_timeout_seconds * 1000:.0f}ms'",
        "SET LOCAL statement_timeout = 0",
    ]
    waiting = LockWaiting(table, "SHARE UPDATE EXCLUSIVE", patience)
    packet = "; ".join([*limits, statement])
    while not (waiting.is_clear(connection) and _succeeds(lambda: run_watched(connection, packet, lambda: None))):
        waiting.pause(connection)


def patiently(
    connection: Connection, table: TableName, mode: str, statements: Sequence[str], patience: Patience = PATIENT
) -> None:
    """Run statements under their limits in one transaction, again and again until they have their lock."""
    waiting = LockWaiting(table, mode, patience)
    packet = limited(statements, patience)
    while not (waiting.is_clear(connection) and _succeeds(lambda: rows(connection, packet))):
        waiting.pause(connection)


def limited(statements: Sequence[str], patience: Patience = PATIENT, *, last: str = "SELECT") -> str:
    """A packet, done as a whole or not at all, no statement of which takes longer than a lock may be waited for.

    One that ends just at its limit Postgres may take for done, and cancel the next one of the session for it (decision
    0028). So within the packet the limit is lifted, which may be cancelled in its place; what comes last has none.
    """
    limit = f"'{patience.lock_timeout_seconds * 1000:.0f}ms'"
    limits = [f"SET LOCAL lock_timeout = {limit}", f"SET LOCAL statement_timeout = {limit}"]
    return "; ".join([*limits, *statements, "SET LOCAL statement_timeout = 0", last])


def _succeeds(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except (postgres.LockNotAvailable, postgres.QueryCanceled, postgres.DeadlockDetected):
        return False
    return True


class LockWaiting:
    """Tries in vain, up to their end: remembers since when, and names the sessions in the way."""

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
        """Name the sessions in the way and wait a little, or raise when it was enough. An autovacuum is sent away."""
        found = holders(connection, self._table, self._mode)
        seconds = self._patience.clock() - self._since
        if seconds >= self._patience.give_up_seconds:
            raise in_the_way(self._table, found, seconds)
        logger.warning(
            "A step waits for a lock on %s; in the way: %s",
            self._table,
            named(found),
            extra={"event": "legacy.lock_waited", "pids": [holder.pid for holder in found]},
        )
        for holder in found:
            if holder.is_autovacuum:
                send_away(connection, holder)
        self._patience.sleep(self._patience.pause_seconds)


def literal(text: str) -> str:
    """A text as it stands in SQL, whatever standard_conforming_strings says."""
    doubled = text.replace("'", "''").replace("\\", "\\\\")
    return f"E'{doubled}'" if "\\" in text else f"'{doubled}'"


def our_name(*parts: str) -> str:
    """A name for an object of ours that is no longer than Postgres takes; long ones end with a hash."""
    name = "_".join(parts)
    if len(name.encode()) <= _NAME_BYTES:
        return name
    digest = md5(name.encode(), usedforsecurity=False).hexdigest()[:8]
    return name.encode()[: _NAME_BYTES - 9].decode(errors="ignore") + "_" + digest
