"""Opening and closing the shards of a server to owners, at an authority epoch, and the history of it.

One statement changes all rows, and only those whose authority epoch is older: a late call changes nothing. It takes
the counter rows in ascending order, as batches do. The history is written in the same transaction: under the counter
row's lock no writer is given an added id, so the next one is the first of the new epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pymysql import err

from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import AuthorityChange
from schemaless_core.engine.mysql.batches import EASE, HURRY
from schemaless_core.engine.mysql.names import Names
from schemaless_core.engine.mysql.rows import utc
from schemaless_core.engine.mysql.wire.connection import DeadlineConnection, bound
from schemaless_core.engine.mysql.wire.transactions import send, transact
from schemaless_core.engine.mysql.wire.translation import is_lock_wait, is_missing, translate
from schemaless_core.errors import ConnectionBroken
from schemaless_core.failpoints import reach

BEHIND = "SELECT COUNT(*) FROM {state} WHERE authority_epoch < %s"
OPEN_AT = "SELECT COUNT(*) FROM {state} WHERE authority_epoch = %s AND state = 'RW'"
# A shard that is fenced, or is being moved, is not closed: who fenced it may open it.
NOT_CLOSED = """\
SELECT COUNT(*) FROM {state} WHERE state <> 'MOVED' AND (authority_epoch <> %s OR state <> 'COPY')"""
# By one statement: a server that does not lead, and lets this session write, has the rows of the one that does.
LED_ELSEWHERE = (
    "EXISTS (SELECT 1 FROM {primacy} HAVING MAX(number) > 0 AND MAX(number * (server = @@server_id)) < MAX(number))"
)
# Whatever this process has heard of leases: a server without one may be outlasted, and says nothing of who leads.
UNLEASED = "(EXISTS (SELECT 1 FROM {lease} needed WHERE needed.server = 0) AND NOT {leased})"
OPEN = """\
UPDATE {state} SET authority_epoch = %s, state = IF(state = 'COPY', 'RW', state) WHERE authority_epoch < %s"""
CLOSE = """\
UPDATE {state} SET authority_epoch = %s, state = IF(state = 'RW', 'COPY', state) WHERE authority_epoch < %s"""
MAKE_COPIES = "UPDATE {state} SET state = 'COPY' WHERE authority_epoch = 0 AND state = 'RW'"
# Of a shard that is fenced or moves it is written by who opens it.
NOTE = """\
INSERT INTO {authority} (shard, authority_epoch, state, first_added_id, at)
 SELECT shard, authority_epoch, state, next_added_id, UTC_TIMESTAMP(6) FROM {state}
 WHERE authority_epoch = %s AND state IN ('RW', 'COPY')
 ON DUPLICATE KEY UPDATE at = {authority}.at"""
# Of shards made before there was a history: nothing had ever changed them.
BEGIN_HISTORY = """\
INSERT INTO {authority} (shard, authority_epoch, state, first_added_id, at)
 SELECT s.shard, s.authority_epoch, s.state, 1, UTC_TIMESTAMP(6) FROM {state} s
 WHERE NOT EXISTS (SELECT 1 FROM {authority} h WHERE h.shard = s.shard)
 ON DUPLICATE KEY UPDATE at = {authority}.at"""
OPENED_AT = "SELECT COALESCE(MAX(authority_epoch), 0) FROM {authority} WHERE state = 'RW'"
OPEN_NOW = "SELECT COALESCE(MAX(authority_epoch), 0) FROM {state} WHERE state = 'RW'"
HISTORY = """\
SELECT authority_epoch, state, first_added_id, at FROM {authority} WHERE shard = %s
 ORDER BY authority_epoch, first_added_id, at"""


def open_to_owners(connection: DeadlineConnection, names: Names, authority_epoch: int, deadline: Deadline) -> None:
    _raise(connection, names, OPEN, authority_epoch, deadline)


def close_to_owners(connection: DeadlineConnection, names: Names, authority_epoch: int, deadline: Deadline) -> bool:
    _raise(connection, names, CLOSE, authority_epoch, deadline)
    for look in (f"SELECT ({NOT_CLOSED}) + {LED_ELSEWHERE} + {UNLEASED}", f"SELECT ({NOT_CLOSED}) + {LED_ELSEWHERE}"):
        try:
            return _count(connection, names, look, authority_epoch) == 0
        except err.ProgrammingError as error:
            if not is_missing(error):
                raise
    return _count(connection, names, NOT_CLOSED, authority_epoch) == 0  # of a version without promotions


def make_copies(connection: DeadlineConnection, names: Names, deadline: Deadline) -> int:
    note = bound(connection, names.meta_sql(NOTE), (0,))
    with _hurried(connection, deadline):
        before = _count(connection, names, OPEN_AT, 0)
        transact_patiently(connection, [names.meta_sql(MAKE_COPIES).encode(), note], deadline)
    return before


def history(connection: DeadlineConnection, names: Names, shard: int) -> list[AuthorityChange]:
    with connection.cursor() as cursor:
        cursor.execute(names.meta_sql(HISTORY), (shard,))
        return [
            AuthorityChange(epoch, state, first_added_id, utc(at))
            for epoch, state, first_added_id, at in cursor.fetchall()
        ]


def opened_at(connection: DeadlineConnection, names: Names, *, ever: bool) -> int:
    with connection.cursor() as cursor:
        cursor.execute(names.meta_sql(OPENED_AT if ever else OPEN_NOW))
        (found,) = cursor.fetchone() or (0,)
        return int(found)


def begin_history(connection: DeadlineConnection, names: Names) -> None:
    with connection.cursor() as cursor:
        cursor.execute(names.meta_sql(BEGIN_HISTORY))


def _raise(
    connection: DeadlineConnection, names: Names, statement: str, authority_epoch: int, deadline: Deadline
) -> None:
    if not _count(connection, names, BEHIND, authority_epoch):
        return  # repeated calls take no lock
    change = bound(connection, names.meta_sql(statement), (authority_epoch, authority_epoch))
    note = bound(connection, names.meta_sql(NOTE), (authority_epoch,))
    reach("authority.before_send")
    with _hurried(connection, deadline):
        transact_patiently(connection, [change, note], deadline)
    reach("authority.answered")


def transact_patiently(connection: DeadlineConnection, statements: list[bytes], deadline: Deadline) -> None:
    """Commit them together. A stopped writer keeps a counter row for up to two seconds, twice a lock's patience."""
    while True:
        try:
            transact(connection, statements, deadline)
        except err.Error as error:
            if not is_lock_wait(error) or deadline.is_over:
                raise
            reach("authority.lock_waited")
            connection.rollback()
        else:
            return


@contextmanager
def _hurried(connection: DeadlineConnection, deadline: Deadline) -> Iterator[None]:
    """Have the server end this session soon should it fall silent after an error: it may hold all counter rows.

    MariaDB has a session setting for that, see `connection`.
    """
    if connection.is_mariadb:
        yield
        return
    _run(connection, HURRY)
    try:
        yield
    except err.Error as error:
        if not isinstance(translate(error, connection.node, deadline), ConnectionBroken) and not deadline.is_over:
            _run(connection, EASE)  # what is open is rolled back before the connection serves another call
        raise
    _run(connection, EASE)


def _run(connection: DeadlineConnection, statement: bytes) -> None:
    with send(connection, statement):
        pass


def _count(connection: DeadlineConnection, names: Names, statement: str, authority_epoch: int) -> int:
    with connection.cursor() as cursor:
        cursor.execute(names.meta_sql(statement), (authority_epoch,))
        (found,) = cursor.fetchone() or (0,)
        return int(found)
