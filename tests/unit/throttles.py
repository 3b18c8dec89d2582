"""What tests do with throttles, by a clock that nobody waits for."""

from __future__ import annotations

from backfill.throttle import Throttle
from tests.unit.clock import FakeClock


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
        clock.advance(chunk)
        throttle.copied(rows, chunk)
        total += rows
    return total
