"""`prepare_session`: what must be true of a session before anything rests on it.

It is the primary's, it has the settings that codec, capture and durability rely on, and it is ours until we leave. One
statement asks for all of that. Where a pooler stands in between it sets nothing: first the pooler shows that it keeps
the session for us.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from schemaless_core.deadline import Deadline
from tripstore.backends.postgres.errors import SessionRefused, StandbyRefused
from tripstore.backends.postgres.wire.pooler import refuse_shared, shared

RowsOf = Callable[[str], list[tuple[Any, ...]]]

#: Times as Postgres takes and shows them, in milliseconds.
_UNITS = {None: 1, "us": 0.001, "ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_TIME = re.compile(r"(\d+(?:\.\d+)?) *(us|ms|s|min|h|d)?")


@dataclass(frozen=True, slots=True)
class WantedSettings:
    """The settings of a session. Those at the start cost no statement; a pooler may drop them without a word."""

    at_start: Mapping[str, str]
    #: Set by the statement that asks for all others: the role's own value is read before.
    then: Mapping[str, str]

    @property
    def options(self) -> str:
        """Those at the start, as libpq takes them."""
        return " ".join(f"-c {name}={value.replace(' ', chr(92) + ' ')}" for name, value in self.at_start.items())


class Session(NamedTuple):
    """A session that is as it must be."""

    #: The server's process, whatever a pooler says.
    pid: int
    #: What the role's sessions have before ours is pinned: a predicate or trigger of the company's may rely on it.
    search_path: str


def prepare_session(rows_of: RowsOf, told_pid: int, wanted: WantedSettings, url: str, deadline: Deadline) -> Session:
    """Ask, set what is still to be set, and raise `StandbyRefused` or `SessionRefused` unless all is as it must be.

    A pooler makes up the process that it tells of when a client connects: so `told_pid` gives it away.
    """
    pid, is_standby, search_path, *found = rows_of(_statement(told_pid, wanted.at_start, wanted.then))[0]
    refuse_standby(is_standby)
    if pid != told_pid:
        refuse_shared(rows_of, pid, url, deadline)
        same_pid, _, _, *found = rows_of(_statement(pid, {}, {**wanted.at_start, **wanted.then}))[0]
        if same_pid != pid:
            raise shared()
    _refuse_differences({**wanted.at_start, **wanted.then}, found)
    return Session(pid, search_path)


def refuse_standby(is_standby: bool) -> None:
    """A session of a primary never becomes one of a standby: the server restarts in between."""
    if is_standby:
        raise StandbyRefused


def _statement(pid: int, to_read: Mapping[str, str], to_set: Mapping[str, str]) -> str:
    """Sets nothing in another process than this one."""
    setting = f"CASE WHEN pg_catalog.pg_backend_pid() = {pid} THEN pg_catalog.set_config('{{}}', {{}}, false) END"
    columns = [
        "pg_catalog.pg_backend_pid()",
        "pg_catalog.pg_is_in_recovery()",
        "pg_catalog.current_setting('search_path')",
        *(f"pg_catalog.current_setting('{name}')" for name in to_read),
        *(setting.format(name, _literal(value)) for name, value in to_set.items()),
    ]
    return f"SELECT {', '.join(columns)}"


def _literal(value: str) -> str:
    """The name of a role may hold a quote."""
    return "'" + value.replace("'", "''") + "'"


def _refuse_differences(wanted: Mapping[str, str], found: list[str]) -> None:
    lost = [
        f"{name} is {value!r}, not {wanted[name]!r}"
        for name, value in zip(wanted, found, strict=True)
        if _plain(value) != _plain(wanted[name])
    ]
    if lost:
        raise SessionRefused(f"our session lacks settings: {'; '.join(lost)}")


def _plain(value: str) -> str:
    """The same for all forms of one time: Postgres shows 60000 as 1min."""
    time = _TIME.fullmatch(value)
    return value if time is None else str(round(float(time[1]) * _UNITS[time[2]]))
