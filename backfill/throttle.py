"""Throttles: why the next chunk does not begin yet, and when it may.

Each is a small object that hears of every chunk and says its pause with the reason, which is always shown. What cannot
be measured is no reason to go on: the pause says that it is unknown.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import NamedTuple, Protocol

from schemaless_core.errors import ControlUnavailable

#: Between two looks while something is above its limit.
LOOK_SECONDS = 0.5
#: Between two looks while all is well; each is a query.
CALM_SECONDS = 1.0
#: However busy the source is: so small a share of the time is copied, or a job beside a busy service would never end.
SHARE_MIN = 0.02

Clock = Callable[[], float]


class Limit(StrEnum):
    """What a job keeps to. By this name progress, metrics and log say which one holds."""

    RATE = "rate"  #: Row keys per second.
    LOAD = "postgres_load"  #: Sessions at work in Postgres.
    MIRROR_LAG = "mirror_lag"  #: How late the mirror is.
    REPLICA_LAG = "replica_lag"  #: How late a replica of Schemaless is.
    BLOCKS = "blocks"  #: Blocks that Postgres reads per second.
    PROBE = "probe"  #: How long a statement takes that services would run.


class Pause(NamedTuple):
    """Nothing begins for so long, and why."""

    seconds: float
    reason: str
    #: None: none is known to hold. It is looked at, or what says whose turn it is does not answer.
    limit: Limit | None


class Leave(NamedTuple):
    """What the source may do for the next chunk: be at work for so much of the time, and why not for all of it."""

    share: float = 1.0
    reason: str | None = None
    limit: Limit | None = None
    #: The chunk may have so many rows; None: as many as it takes.
    rows_max: int | None = None


class Throttle:
    """Belongs to one worker. This one holds nothing back."""

    def pause(self) -> Pause | None:
        """Why no chunk may begin now; None: one may. `CannotCopy`: not before an operator changes something."""
        return None

    def take(self, rows: int) -> Pause | None:
        """Why a chunk of so many rows may not begin now; None: it begins. Asked when nothing else is in the way."""
        return None

    def give_back(self) -> None:
        """The chunk that was taken does not begin: something else is in its way."""

    @property
    def leave(self) -> Leave:
        """What the source may do for the chunk that begins now."""
        return Leave()

    def copied(self, rows: int, source_seconds: float, blocks_read: int = 0) -> None:
        """A chunk was copied. The source was at work for it for so long, and read so many blocks if it counts them."""

    def close(self) -> None:
        """Let go of what it looks with; asked again it begins anew."""


class Probe(Protocol):
    """Looks at something that copying may do harm to."""

    def __call__(self) -> float: ...


class Pace(Protocol):
    """Workers that share a rate take turns by it."""

    def take(self, count: int, per_second: float) -> float:
        """Take so many: 0.0; else how long it is another process' turn, and nothing is taken."""
        ...

    def give_back(self, count: int, per_second: float) -> None:
        """So many of those that were taken were not needed."""
        ...


class RateLimit(Throttle):
    """At most so many rows per second by all workers of the same job.

    They pay for a chunk before it begins, and take turns: together they are never ahead of the rate by more than one
    chunk, from the first one on, however many there are. No worker makes up for time in which nothing was copied.
    """

    def __init__(self, rows_per_second: float, pace: Pace) -> None:
        self._rate = rows_per_second
        self._pace = pace
        self._taken = 0

    def take(self, rows: int) -> Pause | None:
        seconds = self._pace.take(rows, self._rate)
        if seconds:
            return Pause(seconds, f"rate limit of {self._rate:,.0f} rows/s", Limit.RATE)
        self._taken = rows
        return None

    def give_back(self) -> None:
        self.copied(0, 0.0)

    def copied(self, rows: int, source_seconds: float, blocks_read: int = 0) -> None:
        with suppress(ControlUnavailable):  # then some time of the rate is lost
            self._pace.give_back(self._taken - rows, self._rate)
        self._taken = 0


class SignalLimit(Throttle):
    """Nothing is copied while a measure is above its limit: how late the mirror or a replica is."""

    def __init__(
        self,
        limit: Limit,
        name: str,
        most: float,
        measure: Probe,
        *,
        unit: str = "s",
        clock: Clock = time.monotonic,
    ) -> None:
        self._limit = limit
        self._name = name
        self._most = most
        self._measure = measure
        self._unit = unit
        self._clock = clock
        self._look_at = clock()
        self._found: Pause | None = None

    def pause(self) -> Pause | None:
        now = self._clock()
        if now >= self._look_at:
            reason = self._looked()
            self._found = None if reason is None else Pause(LOOK_SECONDS, reason, self._limit)
            self._look_at = now + (LOOK_SECONDS if self._found else CALM_SECONDS)
        return self._found

    def _looked(self) -> str | None:
        try:
            found = self._measure()
        except Exception as error:  # noqa: BLE001  # whatever keeps it from being measured: it is unknown
            return f"{self._name} is unknown: {error}"
        if found <= self._most:
            return None
        return f"{self._name} is {found:.1f} {self._unit}, the limit is {self._most:g} {self._unit}"


class SourceWork:
    """What the source did for the last chunk: it decides when the next may begin, by the share that is known then."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begun = clock()
        self._seconds = 0.0

    def did(self, seconds: float) -> None:
        """The source was at work for so long."""
        self._seconds += seconds

    def owed_seconds(self, share: float) -> float:
        """How long it is to rest yet, so that it was at work for no more than this share; 0.0: a chunk begins now."""
        now = self._clock()
        free_at = self._begun + self._seconds / share
        if now < free_at:
            return free_at - now
        self._begun, self._seconds = now, 0.0
        return 0.0


class Throttles(Throttle):
    """All of them: the longest pause counts, and the most rest for the source."""

    def __init__(self, throttles: Sequence[Throttle] = ()) -> None:
        self._throttles = throttles

    def pause(self) -> Pause | None:
        pauses = [found for found in [each.pause() for each in self._throttles] if found is not None]
        return max(pauses, default=None)

    def take(self, rows: int) -> Pause | None:
        for number, each in enumerate(self._throttles):
            if (found := each.take(rows)) is not None:
                for taken in self._throttles[:number]:
                    taken.give_back()
                return found
        return None

    def give_back(self) -> None:
        for each in self._throttles:
            each.give_back()

    @property
    def leave(self) -> Leave:
        leaves = [each.leave for each in self._throttles]
        least = min(leaves, key=lambda leave: leave.share, default=Leave())
        return least._replace(rows_max=min((each.rows_max for each in leaves if each.rows_max), default=None))

    def copied(self, rows: int, source_seconds: float, blocks_read: int = 0) -> None:
        for each in self._throttles:
            each.copied(rows, source_seconds, blocks_read)

    def close(self) -> None:
        for each in self._throttles:
            each.close()
