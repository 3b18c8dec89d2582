"""`Rests`: Postgres rests while it reads a chunk, so that it is at work for no more than a share of the time.

A session that reads for twenty milliseconds without a break has a core for as long, and who wakes up in the meantime
waits for a turn of it. So the rests are many and short, and Postgres takes them itself, between two rows: a copier that
reads slowly would hold nobody back, since all of a chunk has room in the sockets between. A condition that is true of
every row looks at the clock, and sleeps when it is time; until when Postgres works, and for how long it has rested, are
settings of the transaction.
"""

from __future__ import annotations

from psycopg2.extensions import cursor as Cursor  # noqa: N812  # the driver's class has a small letter

#: Of one rest; Postgres knows none below a millisecond, and is slow for a moment after each.
REST_SECONDS = 0.002
#: A chunk that took longer is read to its end without rests: one snapshot is held as long, and statements have their
#: time-out. The pause after the chunk makes up for it.
CHUNK_SECONDS_MAX = 1.0

_NOW = "pg_catalog.date_part('epoch', pg_catalog.clock_timestamp())"
_SET = "pg_catalog.set_config('tripstore.{name}', ({value})::pg_catalog.text, true)"
_GET = "pg_catalog.current_setting('tripstore.{name}')::pg_catalog.float8"

# CASE keeps the order: the clock is read on both sides of the sleep.
_CONDITION = """\
 AND CASE
WHEN {now} < {works_until} OR {now} > {rests_until} THEN true
WHEN {sleeps_since} IS NULL THEN true
WHEN pg_catalog.pg_sleep({seconds:.6f}) IS NULL THEN true
ELSE {rested} IS NOT NULL AND {works_on} IS NOT NULL END"""


class Rests:
    """Of one chunk, within its transaction. With all of the time there is none, and nothing is asked."""

    def __init__(self, cursor: Cursor, share: float) -> None:
        self._cursor = cursor
        self._share = share
        if share < 1:
            rests_until = _put("rests_until", f"{_NOW} + {CHUNK_SECONDS_MAX}")
            cursor.execute(f"SELECT {self._works_on}, {rests_until}, {_put('rested', '0')}")

    @property
    def condition(self) -> str:
        """Is true of every row; at some of them it takes its time."""
        if self._share >= 1:
            return ""
        return _CONDITION.format(
            now=_NOW,
            works_until=_get("works_until"),
            rests_until=_get("rests_until"),
            sleeps_since=_put("sleeps_since", _NOW),
            seconds=REST_SECONDS,
            rested=_put("rested", f"{_get('rested')} + {_NOW} - {_get('sleeps_since')}"),
            works_on=self._works_on,
        )

    def seconds(self) -> float:
        """For how long Postgres has rested."""
        if self._share >= 1:
            return 0.0
        self._cursor.execute(f"SELECT {_get('rested')}")
        ((rested,),) = self._cursor.fetchall()
        return float(rested)

    @property
    def _works_on(self) -> str:
        """For so long as is in proportion to one rest."""
        return _put("works_until", f"{_NOW} + {REST_SECONDS * self._share / (1 - self._share):.9f}")


def _put(name: str, value: str) -> str:
    return _SET.format(name=name, value=value)


def _get(name: str) -> str:
    return _GET.format(name=name)
