"""`Rests`: Postgres rests while it reads a chunk, so that it is at work for no more than a share of the time.

A session that reads for twenty milliseconds without a break has a core for as long, and a session that wakes up in the
meantime waits for a turn of it. So the rests are many and short, and Postgres takes them itself, between two rows: a
copier that reads slowly would not slow Postgres down, since all of a chunk has room in the sockets between. A condition
that is true of every row looks at the clock, and sleeps when it is time, in proportion to the work before; since when
Postgres works, and for how long it has rested, are settings of the transaction.
"""

from __future__ import annotations

from typing import Self

from psycopg2.extensions import cursor as Cursor  # noqa: N812  # the driver's class has a small letter

#: Of one rest, at least; Postgres knows none below a millisecond, and is slow for a moment after each.
REST_SECONDS = 0.002
#: A chunk that took longer is read to its end without rests: one snapshot is held as long, and statements have their
#: time-out. What comes after the chunk makes up for it.
CHUNK_SECONDS_MAX = 1.0

_SET = "pg_catalog.set_config('tripstore.{name}', ({value})::pg_catalog.text, true)"
_GET = "pg_catalog.current_setting('tripstore.{name}')::pg_catalog.float8"

# Operators and functions are ours under whatever search path a predicate is read.
_CLOCK = "pg_catalog.date_part('epoch', pg_catalog.clock_timestamp())"
#: Since the last rest, or since the statement came: between two statements Postgres does no work.
_WORKED = f"""\
({_CLOCK} OPERATOR(pg_catalog.-) GREATEST({_GET.format(name="works_since")},
    pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())))"""
_LEFT = f"({_GET.format(name='rests_until')} OPERATOR(pg_catalog.-) {_CLOCK})"
_RESTED = f"""\
{_GET.format(name="rested")} OPERATOR(pg_catalog.+)
    ({_CLOCK} OPERATOR(pg_catalog.-) {_GET.format(name="rests_since")})"""

_BEGIN = f"""\
SELECT {_SET.format(name="works_since", value=_CLOCK)}, {_SET.format(name="rested", value="0")},
{_SET.format(name="rests_until", value=f"{_CLOCK} OPERATOR(pg_catalog.+) {{most}}::pg_catalog.float8")}"""

# CASE keeps the order: the clock is read on both sides of the sleep.
_CONDITION = f"""\
 AND CASE
WHEN {_WORKED} OPERATOR(pg_catalog.<) {{work}}::pg_catalog.float8 THEN true
WHEN {_LEFT} OPERATOR(pg_catalog.<) 0::pg_catalog.float8 THEN true
WHEN {_SET.format(name="rests_since", value=_CLOCK)} IS NULL THEN true
WHEN pg_catalog.pg_sleep(GREATEST({{rest}}::pg_catalog.float8,
    LEAST({_WORKED} OPERATOR(pg_catalog.*) {{proportion}}::pg_catalog.float8, {_LEFT}))) IS NULL THEN true
ELSE {_SET.format(name="rested", value=_RESTED)} IS NOT NULL
    AND {_SET.format(name="works_since", value=_CLOCK)} IS NOT NULL END"""


class Rests:
    """Of one chunk, within its transaction. With all of the time there is none, and nothing is asked."""

    def __init__(self, cursor: Cursor, share: float) -> None:
        self._cursor = cursor
        self._share = share

    @classmethod
    def begin(cls, cursor: Cursor, share: float) -> Self:
        """From now on Postgres works for so much of the time."""
        if share < 1:
            cursor.execute(_BEGIN.format(most=CHUNK_SECONDS_MAX))
        return cls(cursor, share)

    @property
    def condition(self) -> str:
        """Is true of every row; at some of them it takes its time."""
        if self._share >= 1:
            return ""
        proportion = (1 - self._share) / self._share  # of rest to work
        return _CONDITION.format(work=f"{REST_SECONDS / proportion:.9f}", rest=REST_SECONDS, proportion=proportion)

    def rested_seconds(self) -> float:
        """For how long Postgres has rested so far, by its own clock."""
        if self._share >= 1:
            return 0.0
        self._cursor.execute(f"SELECT {_GET.format(name='rested')}")
        ((rested,),) = self._cursor.fetchall()
        return float(rested)


def work_within(seconds: float, share: float) -> float:
    """Of a time in which Postgres was to rest and whose rests are unknown: for how long it was at work at most."""
    return seconds - min(seconds, CHUNK_SECONDS_MAX) * (1 - share)
