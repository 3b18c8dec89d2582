"""Writes that may be repeated, as one packet per transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from pymysql import err
from pymysql.cursors import Cursor

from schemaless_core import metrics
from schemaless_core.deadline import Deadline
from schemaless_core.engine.mysql.wire.connection import DeadlineConnection, bound
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
    packet = b"; ".join([*together(connection, statements), *([] if look is None else [look])])
    for attempt in range(1, TRIES + 1):
        try:
            return _replies(connection, packet, has_look=look is not None)
        except err.Error as error:
            # The server has rolled all of it back.
            if not is_deadlock(error) or attempt == TRIES or deadline.is_over:
                raise
        metrics.call_repeated("deadlock")
    raise AssertionError("the last attempt returns or raises")


def together(connection: DeadlineConnection, statements: Sequence[bytes]) -> list[bytes]:
    """One transaction, of which a server that refuses writes commits nothing, as whose login it ever comes."""
    if connection.may_write and statements:
        return [b"BEGIN", connection.may_write, *statements, b"COMMIT"]
    return [b"BEGIN", *statements, b"COMMIT"] if len(statements) > 1 else [*statements]


def write(connection: DeadlineConnection, *statements: tuple[str, Iterable[Any]]) -> int:
    """Commit statements with their values, once; how many rows they changed."""
    changes = [bound(connection, statement, values) for statement, values in statements]
    return _replies(connection, b"; ".join(together(connection, changes))).changed


@contextmanager
def send(connection: DeadlineConnection, packet: bytes) -> Iterator[Cursor]:
    """Send a packet; the cursor stands at its first reply."""
    with connection.cursor() as cursor:
        cursor.execute(packet)  # type: ignore[call-overload]  # PyMySQL takes bytes as they are; its stubs say str
        yield cursor


def _replies(connection: DeadlineConnection, packet: bytes, *, has_look: bool = False) -> Reply:
    with send(connection, packet) as cursor:
        counts = [cursor.rowcount]
        while cursor.nextset():
            counts.append(cursor.rowcount)
        if connection.may_write and connection.may_write in packet:
            counts[1] = 0  # it found a row, and changed none
        if has_look:
            return Reply(sum(counts[:-1]), cursor.fetchall())
        return Reply(sum(counts), ())
