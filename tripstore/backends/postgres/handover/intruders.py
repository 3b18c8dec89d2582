"""Sessions that are not ours and hold, or wait for, the locks of the hand-over: every writer waits for them.

Postgres lets any role that may connect take any advisory lock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tripstore.backends.postgres.capture.gate import BARRIER, DOOR, lock_class
from tripstore.backends.postgres.layout.layout import quoted

# Who waits for it exclusively shuts it for those who come later. Whose session it is and what it is called Postgres
# shows to everybody.
_INTRUDERS = f"""
SELECT a.pid, a.usename::text, coalesce(nullif(a.application_name, ''), 'no name'), bool_or(l.granted)
FROM pg_catalog.pg_locks AS l JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND l.mode = 'ExclusiveLock' AND l.objsubid = 2 AND l.objid IN ({BARRIER}, {DOOR})
AND l.classid = %s::oid AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
AND NOT pg_catalog.has_table_privilege(a.usesysid, 'tripstore.cell', 'INSERT')
GROUP BY 1, 2, 3 ORDER BY 1
"""


@dataclass(frozen=True, slots=True)
class Intruder:
    """One session."""

    pid: int
    role: str
    application: str
    #: False: it waits for the lock.
    has_it: bool

    def __str__(self) -> str:
        verb = "holds" if self.has_it else "waits for"
        return (
            f"pid {self.pid} ({self.application}) of {self.role}, which is no role of tripstore's, {verb} the lock of "
            "the hand-over: writers of the mapped tables wait for it"
        )

    @property
    def hint(self) -> str:
        return f"SELECT pg_terminate_backend({self.pid}); and ask why {quoted(self.role)} takes advisory locks."


def intruders(ask: Callable[[str, tuple[Any, ...]], Sequence[Sequence[Any]]], datastore: str) -> list[Intruder]:
    """Those of this moment."""
    return [Intruder(*each) for each in ask(_INTRUDERS, (lock_class(datastore) & 0xFFFFFFFF,))]
