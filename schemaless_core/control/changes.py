"""A change of the control database: a short transaction of our own making, repeated when the server gave it up.

A change takes its lock first and reads afterwards. Each statement reads what is committed at its own time, so that what
is read under a lock is as the lock's last holder left it. When a client is stopped in the middle, the server drops its
locks after waiting for its next statement. SQLite has no such server: there the locks last until the client goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import sqlalchemy as sa

from schemaless_core.control.database import ControlDatabase
from schemaless_core.errors import ControlUnavailable

T = TypeVar("T")

#: Patience with a client, and with a lock: less than a client's with its answer.
BE_BRIEF = "SET SESSION wait_timeout = 5, innodb_lock_wait_timeout = 3"
READ_WHAT_IS_COMMITTED = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"
#: SQLite begins by itself only at the first write, when what was read may be old.
BEGIN_TO_WRITE = "BEGIN IMMEDIATE"

#: The server gave the transaction up for another's sake: a deadlock, a lock that was not to be had, a row that changed.
GIVEN_UP = (1213, 1205, 1020)
ATTEMPTS = 3


def make_change(control: ControlDatabase, work: Callable[[sa.Connection], T]) -> T:
    """Run `work` in a transaction and return what it returns. It may run several times, and must not mind."""
    for _attempt in range(ATTEMPTS - 1):
        try:
            return _run(control, work)
        except ControlUnavailable as error:
            if not _was_given_up(error):
                raise
    return _run(control, work)


def _run(control: ControlDatabase, work: Callable[[sa.Connection], T]) -> T:
    with control.begin() as connection:
        if connection.dialect.name == "sqlite":
            connection.execute(sa.text(BEGIN_TO_WRITE))
        else:
            connection.execute(sa.text(BE_BRIEF))
            connection.execute(sa.text(READ_WHAT_IS_COMMITTED))
        return work(connection)


def _was_given_up(error: ControlUnavailable) -> bool:
    cause = error.__cause__
    told = cause.orig.args if isinstance(cause, sa.exc.DBAPIError) and cause.orig is not None else ()
    return bool(told) and told[0] in GIVEN_UP
