"""Sessions that are not ours and hold, or wait for, the locks of the hand-over: every writer waits for them.

Postgres lets any role that may connect take any advisory lock. A session is ours that says so by its name and whose
role may put cells: a person's `psql` with the rights of tripstore is none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tripstore.backends.postgres.capture.functions.gate import BARRIER, DOOR, lock_class
from tripstore.backends.postgres.layout.layout import quoted

# A session that waits for it exclusively shuts it for all that come later. Postgres shows every role whose session it
# is and what it is called.
_INTRUDERS = f"""
SELECT a.pid, a.usename::text, coalesce(nullif(a.application_name, ''), 'no name'), bool_or(l.granted),
  coalesce(pg_catalog.has_table_privilege(a.usesysid, 'tripstore.cell', 'INSERT'), false)
FROM pg_catalog.pg_locks AS l JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND l.mode = 'ExclusiveLock' AND l.objsubid = 2 AND l.objid IN ({BARRIER}, {DOOR})
AND l.classid = %s::oid AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
AND (a.application_name ~ '^tripstore( |,|$)'
  AND pg_catalog.has_table_privilege(a.usesysid, 'tripstore.cell', 'INSERT')) IS NOT TRUE
GROUP BY 1, 2, 3, 5 ORDER BY 1
"""


@dataclass(frozen=True, slots=True)
class Intruder:
    """One session."""

    pid: int
    role: str
    application: str
    #: False: it waits for the lock.
    has_it: bool
    #: Its role may put cells, as tripstore's does.
    has_rights: bool

    def __str__(self) -> str:
        verb = "holds" if self.has_it else "waits for"
        whose = "but is no process" if self.has_rights else "which is no role"
        of = f"{self.role}, {whose} of tripstore's,"
        return (
            f"pid {self.pid} ({self.application}) of {of} {verb} the lock of the hand-over: writers of the mapped "
            "tables wait for it"
        )

    @property
    def hint(self) -> str:
        asked = f"who runs {self.application} as" if self.has_rights else "why advisory locks are taken by"
        return f"SELECT pg_terminate_backend({self.pid}); and ask {asked} {quoted(self.role)}."


def intruders(ask: Callable[[str, tuple[Any, ...]], Sequence[Sequence[Any]]], datastore: str) -> list[Intruder]:
    """Those of this moment."""
    return [Intruder(*each) for each in ask(_INTRUDERS, (lock_class(datastore) & 0xFFFFFFFF,))]
