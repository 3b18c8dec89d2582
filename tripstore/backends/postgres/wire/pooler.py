"""Whether a pooler keeps a session for us, or lends it to others whenever no transaction is open.

A session that is lent out looks like ours for as long as no other client comes by: a pool of one connection gives the
same process each time. So the pooler is asked for something that it does only for a session that it keeps: after the
client of such a session has left, it resets the session by DISCARD ALL. A second client, which sets nothing, connects,
leaves a mark, and leaves; we look at what its process did last.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from schemaless_core.deadline import Deadline
from tripstore.backends.postgres.errors import SessionRefused
from tripstore.backends.postgres.wire.wire import LegacyConnection

RowsOf = Callable[[str], list[tuple[Any, ...]]]

#: A process that was left may be another client's before we look.
ATTEMPTS = 5
#: For a reset to happen.
RESET_SECONDS = 0.5
_PAUSE_SECONDS = 0.005

_SEEN = """\
SELECT pg_catalog.pg_backend_pid(), (SELECT query FROM pg_catalog.pg_stat_activity WHERE pid = {pid})"""


def shared() -> SessionRefused:
    """The error for a session that is not ours."""
    return SessionRefused("a pooler lends our session to other clients between two statements (transaction mode)")


def refuse_shared(rows_of: RowsOf, pid: int, url: str, deadline: Deadline) -> None:
    """Raise `SessionRefused` unless a pooler in between keeps the session for us and resets it when we leave.

    `rows_of` asks on our connection, which was at this process of the server last.
    """
    for _attempt in range(ATTEMPTS):
        left = _left_by_another(rows_of, pid, url, deadline)
        if _is_reset(rows_of, pid, *left):
            return
    raise SessionRefused("a pooler stands in between, and whether it keeps a session for us could not be found out")


def _left_by_another(rows_of: RowsOf, pid: int, url: str, deadline: Deadline) -> tuple[int, str]:
    """Where another client has been, and the mark that it left there. It was not where we are."""
    mark = f"/* tripstore: whose session is this? {uuid4().hex} */"
    other = LegacyConnection(deadline, dsn=url, application_name="tripstore probe")
    try:
        theirs = int(other.rows(f"SELECT pg_catalog.pg_backend_pid() {mark}")[0][0])
        if theirs == pid or mark not in (_last_of(rows_of, pid, theirs) or ""):
            raise shared()
    finally:
        other.close()
    return theirs, mark


def _is_reset(rows_of: RowsOf, pid: int, theirs: int, mark: str) -> bool:
    """Whether their process was reset, or ended, after they left. False: another client has it by now."""
    until = time.monotonic() + RESET_SECONDS
    while mark in (last := _last_of(rows_of, pid, theirs) or ""):
        if time.monotonic() > until:
            raise SessionRefused("a pooler in between hands a session on as its client left it, without DISCARD ALL")
        time.sleep(_PAUSE_SECONDS)
    return not last or last.upper().startswith("DISCARD ALL")


def _last_of(rows_of: RowsOf, pid: int, theirs: int) -> str | None:
    """What a process of the server ran last; None: it has ended. We must be where we were."""
    ((now, last),) = rows_of(_SEEN.format(pid=theirs))
    if now != pid:
        raise shared()
    return None if last is None else str(last)
