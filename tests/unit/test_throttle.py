"""Throttles: each waits for its own reason and says it."""

from __future__ import annotations

import pytest

from schemaless_core import ControlUnavailable
from tests.unit.clock import FakeClock
from tests.unit.throttles import MemoryPace, Silent, copied_in, waited
from tripstore.engines.backfill.load_limit import FIRST_LOOKS, SAMPLE_SECONDS, LoadLimit
from tripstore.engines.backfill.throttle import (
    SHARE_MIN,
    Leave,
    Limit,
    Pause,
    RateLimit,
    SignalLimit,
    Throttle,
    Throttles,
)


def test_a_rate_is_kept_over_time() -> None:
    clock = FakeClock()
    limit = RateLimit(50, MemoryPace(clock))

    assert copied_in(100, limit, clock, chunk=0.1, rows=20) == pytest.approx(5_000, rel=0.02)


def test_a_worker_that_was_slow_does_not_make_up_for_it() -> None:
    clock = FakeClock()
    limit = RateLimit(50, MemoryPace(clock))
    clock.advance(1_000)

    assert copied_in(10, limit, clock, chunk=0.01, rows=20) <= 50 * 10 + 20


def test_a_chunk_that_held_fewer_rows_costs_less() -> None:
    clock = FakeClock()
    limit = RateLimit(50, MemoryPace(clock))
    assert limit.take(100) is None
    limit.copied(25, 0.1)

    pause = limit.take(100)

    assert pause == Pause(0.5, "rate limit of 50 rows/s", Limit.RATE)


def test_while_the_turns_are_unknown_no_chunk_begins() -> None:
    """I12 for throttles: unknown is not fine. The runner waits, and gives up in the end."""
    limit = RateLimit(50, Silent())

    with pytest.raises(ControlUnavailable):
        limit.take(100)
    limit.copied(25, 0.1)


@pytest.mark.parametrize("name", ["load", "signal"])
def test_what_cannot_be_measured_is_waited_for(name: str) -> None:
    """I12 for throttles: unknown is not fine."""
    clock = FakeClock()
    is_away = True

    def probe() -> float:
        if is_away:
            raise ConnectionError("it does not answer")
        return 0.0

    limit: Throttle = (
        LoadLimit(1.0, probe, clock=clock)
        if name == "load"
        else SignalLimit(Limit.MIRROR_LAG, "lag", 1, probe, clock=clock)
    )
    pause = limit.pause()
    assert pause is not None
    assert "unknown: it does not answer" in pause.reason

    is_away = False
    assert waited(limit, clock) <= 1 + SAMPLE_SECONDS * FIRST_LOOKS


def test_nothing_begins_while_a_signal_is_above_its_limit() -> None:
    clock = FakeClock()
    lag = 7.25
    limit = SignalLimit(Limit.MIRROR_LAG, "the mirror's lag", 5.0, lambda: lag, clock=clock)

    pause = limit.pause()
    assert pause is not None
    assert pause.reason == "the mirror's lag is 7.2 s, the limit is 5 s"
    for _ in range(5):
        clock.advance(1)
        assert limit.pause() is not None

    lag = 5.0
    clock.advance(1)
    assert limit.pause() is None


@pytest.mark.parametrize(("load", "share"), [(0.0, 1.0), (0.6, 0.4), (9.0, SHARE_MIN)])
def test_the_source_is_to_rest_while_a_chunk_is_read_as_its_load_asks_for(load: float, share: float) -> None:
    clock = FakeClock()
    limit = LoadLimit(1.0, lambda: load, clock=clock)
    waited(limit, clock)

    leave = limit.leave
    assert leave.share == pytest.approx(share)
    assert leave.reason == (None if share == 1 else f"{load:.1f} sessions of others are at work, the limit is 1")
    assert Throttles([RateLimit(10, MemoryPace(clock)), limit]).leave == leave
    assert Throttles().leave == Leave(1.0, None)


def test_of_several_throttles_the_longest_pause_is_heard() -> None:
    clock = FakeClock()
    rate, load = RateLimit(10, MemoryPace(clock)), LoadLimit(1.0, lambda: 0.0, clock=clock)
    both = Throttles([rate, load])
    waited(both, clock)

    assert both.take(100) is None

    pause = both.take(100)
    assert pause is not None
    assert "10 rows/s" in pause.reason
    assert Throttles().take(100) is None
    assert Throttles().pause() is None
