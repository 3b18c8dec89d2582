"""Throttles: why the next chunk does not begin yet, and when it may.

Each is a small object that hears of every chunk and says its pause with the reason, which is always shown. What cannot
be measured is no reason to go on: the pause says that it is unknown.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

from schemaless_core.errors import ControlUnavailable

#: Between two looks while something is above its limit.
LOOK_SECONDS = 0.5
#: Between two looks while all is well; each is a query.
CALM_SECONDS = 1.0

Clock = Callable[[], float]


class Pause(NamedTuple):
    """Nothing begins for so long, and why."""

    seconds: float
    reason: str


class Leave(NamedTuple):
    """While a chunk is read the source may be at work for so much of the time, and why not for all of it."""

    share: float = 1.0
    reason: str | None = None


class Throttle(Protocol):
    """Belongs to one worker."""

    def pause(self) -> Pause | None:
        """Why no chunk may begin now; None: one may."""
        ...

    def take(self, rows: int) -> Pause | None:
        """Why a chunk of so many rows may not begin now; None: it begins. Asked when nothing else is in the way."""
        ...

    @property
    def leave(self) -> Leave:
        """What the source may do for the chunk that begins now."""
        ...

    def copied(self, rows: int, source_seconds: float) -> None:
        """A chunk was copied, and the source was at work for it for so long."""
        ...


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


class RateLimit:
    """At most so many rows per second by all workers of the same job.

    They pay for a chunk before it begins, and take turns: together they are never ahead of the rate by more than one
    chunk, from the first one on, however many there are. No worker makes up for time in which nothing was copied.
    """

    leave = Leave()

    def __init__(self, rows_per_second: float, pace: Pace) -> None:
        self._rate = rows_per_second
        self._pace = pace
        self._taken = 0

    def pause(self) -> Pause | None:
        return None

    def take(self, rows: int) -> Pause | None:
        seconds = self._pace.take(rows, self._rate)
        if seconds:
            return Pause(seconds, f"rate limit of {self._rate:,.0f} rows/s")
        self._taken = rows
        return None

    def copied(self, rows: int, source_seconds: float) -> None:
        with suppress(ControlUnavailable):  # then some time of the rate is lost
            self._pace.give_back(self._taken - rows, self._rate)
        self._taken = 0


class SignalLimit:
    """Nothing is copied while a measure is above its limit: how late the mirror or a replica is."""

    leave = Leave()

    def __init__(
        self, name: str, most: float, measure: Probe, *, unit: str = "s", clock: Clock = time.monotonic
    ) -> None:
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
            self._found = self._looked()
            self._look_at = now + (LOOK_SECONDS if self._found else CALM_SECONDS)
        return self._found

    def take(self, rows: int) -> Pause | None:
        return None

    def copied(self, rows: int, source_seconds: float) -> None:
        pass

    def _looked(self) -> Pause | None:
        try:
            found = self._measure()
        except Exception as error:  # noqa: BLE001  # whatever keeps it from being measured: it is unknown
            return Pause(LOOK_SECONDS, f"{self._name} is unknown: {error}")
        if found <= self._most:
            return None
        return Pause(
            LOOK_SECONDS, f"{self._name} is {found:.1f} {self._unit}, the limit is {self._most:g} {self._unit}"
        )


class Throttles:
    """All of them: the longest pause counts, and the most rest for the source."""

    def __init__(self, throttles: Sequence[Throttle] = ()) -> None:
        self._throttles = throttles

    def pause(self) -> Pause | None:
        pauses = [found for found in [each.pause() for each in self._throttles] if found is not None]
        return max(pauses, default=None)

    def take(self, rows: int) -> Pause | None:
        return next((found for each in self._throttles if (found := each.take(rows)) is not None), None)

    @property
    def leave(self) -> Leave:
        return min((each.leave for each in self._throttles), key=lambda leave: leave.share, default=Leave())

    def copied(self, rows: int, source_seconds: float) -> None:
        for each in self._throttles:
            each.copied(rows, source_seconds)
