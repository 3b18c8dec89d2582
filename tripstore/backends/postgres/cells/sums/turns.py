"""`read_by_turns`: what a SELECT answers, by a cursor and a turn at a time, where services are to be spared.

Between two turns Postgres does nothing, and says how many blocks it has read. Neither is so while COPY sends: what it
has sent ahead fills the sockets in between, and it counts nothing before its end. It costs more than COPY.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter
from psycopg2.extensions import cursor as Cursor  # noqa: N812  # the driver's class has a small letter
from psycopg2.extensions import new_type, register_type

from tripstore.backends.postgres.codec.copy_text import as_lines
from tripstore.backends.postgres.wire.own_reads import OwnReads

#: Rows that are fetched together.
ROWS_PER_FETCH = 2_000

# The first setting: all rows of the cursor are wanted, not the first ones soon.
_DECLARE = """\
SET LOCAL cursor_tuple_fraction = 1;
DECLARE tripstore_turns NO SCROLL CURSOR FOR {select}"""
_FETCH = "FETCH FORWARD {rows} FROM tripstore_turns"
_MOVE = "MOVE FORWARD {rows} FROM tripstore_turns"
_CLOSE = "CLOSE tripstore_turns"

#: bool, bigint, smallint, integer, oid, numeric, uuid: their texts are wanted, as COPY has them.
_AS_TEXT = new_type((16, 20, 21, 23, 26, 1700, 2950), "TRIPSTORE_TEXT", lambda value, _cursor: value)


class Turns(Protocol):
    """Says when, and how much, may be read."""

    @property
    def counts_blocks(self) -> bool:
        """Whether it wants to know how many blocks were read."""
        ...

    def next_rows(self) -> int:
        """Wait until more may be read; of how many rows. May raise, to end it."""
        ...

    def read(self, rows: int, seconds: float, blocks_read: int) -> None:
        """So many rows were read; Postgres took so long, and read so many blocks."""
        ...


class _Turn(NamedTuple):
    rows: int
    #: That Postgres took.
    seconds: float


def read_by_turns(connection: Connection, select: str, take: Callable[[list[bytes]], None], turns: Turns) -> None:
    """Hand on what a SELECT answers, in batches of lines as COPY would send them. Within a transaction."""

    def fetch(cursor: Cursor, wanted: int) -> _Turn:
        rows, seconds = 0, 0.0
        while rows < wanted:
            some = min(ROWS_PER_FETCH, wanted - rows)
            begun = time.perf_counter()
            cursor.execute(_FETCH.format(rows=some))
            found = cursor.fetchall()
            seconds += time.perf_counter() - begun
            rows += len(found)
            if found:
                take(as_lines(found))
            if len(found) < some:
                break
        return _Turn(rows, seconds)

    _by_turns(connection, select, turns, fetch)


def count_by_turns(connection: Connection, select: str, turns: Turns) -> int:
    """How many rows a SELECT answers, none of which Postgres sends."""
    count = 0

    def move(cursor: Cursor, wanted: int) -> _Turn:
        nonlocal count
        begun = time.perf_counter()
        cursor.execute(_MOVE.format(rows=wanted))
        count += cursor.rowcount
        return _Turn(cursor.rowcount, time.perf_counter() - begun)

    _by_turns(connection, select, turns, move)
    return count


def _by_turns(connection: Connection, select: str, turns: Turns, step: Callable[[Cursor, int], _Turn]) -> None:
    with connection.cursor() as cursor:
        register_type(_AS_TEXT, cursor)
        reads = OwnReads(cursor, is_counting=turns.counts_blocks)
        cursor.execute(_DECLARE.format(select=select))
        while True:
            wanted = turns.next_rows()
            turn = step(cursor, wanted)
            turns.read(turn.rows, turn.seconds, reads.since())
            if turn.rows < wanted:
                break
        cursor.execute(_CLOSE)
