"""Whether a pooler keeps a session for us, or lends it to others whenever no transaction is open.

A session that is lent out looks like ours for as long as no other client comes by: a pool of one connection gives the
same process each time. So the pooler is asked for something that it does only for a session that it keeps: after the
client of such a session has left, it resets the session by DISCARD ALL. A second client, which sets nothing, connects,
leaves a mark, stays quiet for a while, and leaves; we look at what its process did last. Another client of a lent
session may run DISCARD ALL itself, but seldom at that very moment alone: the question is put again until that is out
of the question. The answer is kept for a while.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from psycopg2.extensions import ConnectionInfo, make_dsn

from schemaless_core.deadline import Deadline
from schemaless_core.failpoints import reach
from tripstore.backends.postgres.errors import SessionRefused, SessionUnclear
from tripstore.backends.postgres.wire.wire import LegacyConnection

RowsOf = Callable[[str], list[tuple[Any, ...]]]

#: A process that was left may be another client's before we look.
ATTEMPTS = 8
#: How long the second client stays quiet at first; ten times as long as the last reset took, at most this long.
QUIET_SECONDS = 0.03
LONGEST_QUIET_SECONDS = 0.3
#: For a reset to happen.
RESET_SECONDS = 0.5
#: The answer is believed when others' DISCARD ALL would look like a reset less often than this.
CHANCE = 1e-4
#: How long this process believes an answer.
KEPT_SECONDS = 60.0
_PAUSE_SECONDS = 0.001

_SEEN = """\
SELECT pg_catalog.pg_backend_pid(), (SELECT query FROM pg_catalog.pg_stat_activity WHERE pid = {pid})"""

#: Addresses whose pooler keeps sessions, and when it showed that.
_kept: dict[str, float] = {}


def narrowed(url: str, info: ConnectionInfo) -> str:
    """The address of the one server that answered: a URL may name several, a pooler in each mode among them."""
    return make_dsn(url, host=info.host, port=info.port, hostaddr="")


def shared() -> SessionRefused:
    """The error for a session that is not ours."""
    return SessionRefused("a pooler lends our session to other clients between two statements (transaction mode)")


def refuse_shared(rows_of: RowsOf, pid: int, url: str, deadline: Deadline) -> None:
    """Raise `SessionRefused` unless a pooler in between keeps the session for us and resets it when we leave.

    `rows_of` asks on our connection, which was at this process of the server last. `url` names no other server than
    the one that it goes to. `SessionUnclear`: try later.
    """
    if time.monotonic() - _kept.get(url, -math.inf) < KEPT_SECONDS:
        return
    chance, quiet_seconds = 1.0, QUIET_SECONDS
    for _attempt in range(ATTEMPTS):
        reset_seconds = _reset_seconds(rows_of, pid, url, quiet_seconds, deadline)
        if reset_seconds is not None:
            chance *= _chance_of_others(reset_seconds, quiet_seconds)
            quiet_seconds = min(max(quiet_seconds, 10 * reset_seconds), LONGEST_QUIET_SECONDS)
        if chance < CHANCE:
            _kept[url] = time.monotonic()
            return
    raise SessionUnclear


def _chance_of_others(reset_seconds: float, quiet_seconds: float) -> float:
    """At most so often do other clients leave a process alone for the one time and use it within the other.

    They come by at some rate x: exp(-x quiet) (1 - exp(-x reset)) is less than reset / (e quiet), whatever x is.
    """
    return min(1.0, reset_seconds / (math.e * quiet_seconds))


def _reset_seconds(rows_of: RowsOf, pid: int, url: str, quiet_seconds: float, deadline: Deadline) -> float | None:
    """How long after another client had left its process was reset, or ended; None: it cannot be said."""
    mark = f"/* tripstore: whose session is this? {uuid4().hex} */"
    reach("pooler.before_mark")
    other = LegacyConnection(deadline, dsn=url, application_name="tripstore probe")
    try:
        theirs = int(other.rows(f"SELECT pg_catalog.pg_backend_pid() {mark}")[0][0])
        if theirs == pid:
            raise shared()
        time.sleep(min(quiet_seconds, deadline.remaining_seconds()))  # the quiet is what is looked at
        reach("pooler.marked")
        last = _last_of(rows_of, pid, theirs)
    finally:
        other.close()
    left_at = time.monotonic()
    if not last:  # the process has ended, or Postgres tracks no statements
        return None
    if mark not in last:
        raise shared()
    reach("pooler.left")
    return _seen_reset(rows_of, pid, theirs, mark, left_at)


def _seen_reset(rows_of: RowsOf, pid: int, theirs: int, mark: str, left_at: float) -> float | None:
    while mark in (last := _last_of(rows_of, pid, theirs) or ""):
        if time.monotonic() - left_at > RESET_SECONDS:
            raise SessionRefused("a pooler in between hands a session on as its client left it, without DISCARD ALL")
        time.sleep(_PAUSE_SECONDS)
    is_reset = not last or last.upper().startswith("DISCARD ALL")
    return time.monotonic() - left_at if is_reset else None  # None: yet another client has it by now


def _last_of(rows_of: RowsOf, pid: int, theirs: int) -> str | None:
    """What a process of the server ran last; None: it has ended. We must be where we were."""
    ((now, last),) = rows_of(_SEEN.format(pid=theirs))
    if now != pid:
        raise shared()
    return None if last is None else str(last)
