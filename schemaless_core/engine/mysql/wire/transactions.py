"""Writes that may be repeated, as one packet per transaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from pymysql import err
from pymysql.cursors import Cursor

from schemaless_core import metrics
from schemaless_core.deadline import Deadline
from schemaless_core.engine.mysql.wire.connection import DeadlineConnection
from schemaless_core.engine.mysql.wire.translation import is_deadlock

#: How often a transaction is sent that deadlocks are resolved against.
TRIES = 10


class Reply(NamedTuple):
    """Rows that the statements changed, and those that the look behind them returned."""

    changed: int
    rows: Sequence[tuple[Any, ...]]


def transact(
    connection: DeadlineConnection, statements: Sequence[bytes], deadline: Deadline, look: bytes | None = None
) -> Reply:
    """Commit statements together, then look at something. The victim of a deadlock is sent again."""
    bracketed = [b"BEGIN", *statements, b"COMMIT"] if len(statements) > 1 else [*statements]
    packet = b"; ".join([*bracketed, *([] if look is None else [look])])
    for attempt in range(1, TRIES + 1):
        try:
            return _replies(connection, packet, has_look=look is not None)
        except err.Error as error:
            # The server has rolled all of it back.
            if not is_deadlock(error) or attempt == TRIES or deadline.is_over:
                raise
        metrics.call_repeated("deadlock")
    raise AssertionError("the last attempt returns or raises")


def bound(connection: DeadlineConnection, statement: str, values: Sequence[Any]) -> bytes:
    """A statement with its values escaped by the driver."""
    with connection.cursor() as cursor:
        return cursor.mogrify(statement, tuple(values)).encode("utf-8", "surrogateescape")


@contextmanager
def send(connection: DeadlineConnection, packet: bytes) -> Iterator[Cursor]:
    """Send a packet; the cursor stands at its first reply."""
    with connection.cursor() as cursor:
        cursor.execute(packet)  # type: ignore[call-overload]  # PyMySQL takes bytes as they are; its stubs say str
        yield cursor


def _replies(connection: DeadlineConnection, packet: bytes, *, has_look: bool) -> Reply:
    with send(connection, packet) as cursor:
        counts = [cursor.rowcount]
        while cursor.nextset():
            counts.append(cursor.rowcount)
        if has_look:
            return Reply(sum(counts[:-1]), cursor.fetchall())
        return Reply(sum(counts), ())
