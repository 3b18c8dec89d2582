"""What tests do with throttles, by a clock that takes no time."""

from __future__ import annotations

from schemaless_core import ControlUnavailable
from schemaless_core.control.paces import Turn
from tests.unit.clock import FakeClock
from tripstore.engines.backfill.throttle import Throttle


class MemoryPace:
    """A pace in memory; who joins it shares it."""

    def __init__(self, clock: FakeClock, shared: list[Turn] | None = None) -> None:
        self._clock = clock
        self._shared = [Turn()] if shared is None else shared
        self._mine: Turn | None = None

    def join(self) -> MemoryPace:
        return MemoryPace(self._clock, self._shared)

    def take(self, count: int, per_second: float) -> float:
        at_ms, self._mine = round(1000 * self._clock()), None
        if seconds := self._shared[0].seconds_left(at_ms):
            return seconds
        self._shared[0] = self._mine = self._shared[0].taken(at_ms, count, per_second)
        return 0.0

    def give_back(self, count: int, per_second: float) -> None:
        if self._shared[0] == self._mine:
            self._shared[0] = self._mine.without(count, per_second)


class Silent:
    """A pace whose control database is away."""

    def take(self, count: int, per_second: float) -> float:
        raise ControlUnavailable("the control database is down")

    def give_back(self, count: int, per_second: float) -> None:
        raise ControlUnavailable("the control database is down")


def waited(throttle: Throttle, clock: FakeClock) -> float:
    """Until a chunk may begin."""
    begun = clock()
    while (pause := throttle.pause()) is not None:
        assert pause.reason
        assert pause.seconds > 0
        clock.advance(max(pause.seconds, 1e-6))  # the clock knows nothing smaller
    return clock() - begun


def copied_in(seconds: float, throttle: Throttle, clock: FakeClock, *, chunk: float, rows: int) -> int:
    """How many rows get through in a time, in chunks that take so long."""
    total, begun = 0, clock()
    while clock() - begun < seconds:
        waited(throttle, clock)
        if (pause := throttle.take(rows)) is not None:
            clock.advance(pause.seconds)
            continue
        clock.advance(chunk)
        throttle.copied(rows, chunk)
        total += rows
    return total
