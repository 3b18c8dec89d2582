"""Which layout each process of ours goes by: its sessions in Postgres say it in the name of their application."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tripstore.backends.postgres.layout.layout import Layout, quoted

_NAME = "tripstore, layout "
#: One line per process: its pool has several sessions, each with a process of Postgres.
_SESSIONS = """
SELECT a.application_name, coalesce(host(a.client_addr), 'this machine'), min(a.pid), count(*)
FROM pg_catalog.pg_stat_activity a
WHERE a.datname = pg_catalog.current_database() AND (a.application_name = 'tripstore' OR a.application_name LIKE %s)
GROUP BY 1, 2 ORDER BY 1, 2
"""
_IN_FORCE = "SELECT layout FROM tripstore.authority"


@dataclass(frozen=True, slots=True)
class StaleSessions:
    """Sessions from one host that go by another layout than the one in force."""

    #: None: they are of a version that does not say it.
    layout: str | None
    host: str
    #: Of one of them, in Postgres.
    pid: int
    sessions: int

    def __str__(self) -> str:
        by = "an unknown layout" if self.layout is None else f"layout {self.layout}"
        return f"{self.sessions} sessions from {self.host} go by {by} (one is pid {self.pid})"


def grant_to_see(role: str) -> str:
    """What lets a role see the sessions of others: without it Postgres hides what they do, and since when."""
    return f"GRANT pg_read_all_stats TO {quoted(role)}"


def application_of(layout: Layout) -> str:
    """What the sessions of a process are called that goes by this layout."""
    return f"{_NAME}{layout.digest}"


def stale_sessions(ask: Callable[[str, tuple[Any, ...]], Sequence[Sequence[Any]]]) -> list[StaleSessions]:
    """The sessions that go by another layout than the one in force; none while no layout is."""
    in_force = [layout for (layout,) in ask(_IN_FORCE, ()) if layout is not None]
    if not in_force:
        return []
    found = [(_layout(name), host, pid, count) for name, host, pid, count in ask(_SESSIONS, (f"{_NAME}%",))]
    return [StaleSessions(*each) for each in found if each[0] not in in_force]


def _layout(application: str) -> str | None:
    return application.removeprefix(_NAME).partition(" ")[0] if application.startswith(_NAME) else None
