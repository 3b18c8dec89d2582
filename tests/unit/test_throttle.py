"""Throttles: each waits for its own reason and says it."""

from __future__ import annotations

from random import Random

import pytest

from backfill.throttle import (
    FIRST_LOOKS,
    LOAD_SECONDS,
    SAMPLE_SECONDS,
    SHARE_MIN,
    Leave,
    LoadLimit,
    RateLimit,
    SignalLimit,
    Throttle,
    Throttles,
)
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


def test_a_rate_is_kept_over_time() -> None:
    clock = FakeClock()

    assert copied_in(100, RateLimit(50, clock=clock), clock, chunk=0.1, rows=20) == pytest.approx(5_000, rel=0.02)


def test_a_rate_is_shared_by_all_who_are_at_work_now() -> None:
    """They come and go; while nobody can say how many, it is as it was."""
    clock, at_work = FakeClock(), [1.0]
    limit = RateLimit(60, workers=lambda: at_work[0] if at_work else 1 / 0, clock=clock)

    assert copied_in(100, limit, clock, chunk=0.1, rows=6) == pytest.approx(6_000, rel=0.05)
    at_work[:] = [3.0]
    assert copied_in(100, limit, clock, chunk=0.1, rows=6) == pytest.approx(2_000, rel=0.08)
    at_work.clear()
    assert copied_in(100, limit, clock, chunk=0.1, rows=6) == pytest.approx(2_000, rel=0.05)
    at_work[:] = [0.0]  # its own part was taken from it
    assert copied_in(100, limit, clock, chunk=0.1, rows=6) == pytest.approx(6_000, rel=0.08)


def test_a_worker_that_was_slow_does_not_make_up_for_it() -> None:
    clock = FakeClock()
    limit = RateLimit(50, clock=clock)
    clock.advance(1_000)

    assert copied_in(10, limit, clock, chunk=0.01, rows=20) <= 50 * 11 + 2 * 20


def test_what_others_leave_of_a_load_is_used_and_no_more() -> None:
    clock = FakeClock()
    limit = LoadLimit(1.0, lambda: 0.6, clock=clock)

    rows = copied_in(100, limit, clock, chunk=0.2, rows=10)

    assert rows * 0.02 / 100 == pytest.approx(0.4, rel=0.05)


@pytest.mark.parametrize(("write_seconds", "wait_seconds"), [(0.1, 0.2), (0.3, 0.0), (2.0, 0.0)])
def test_while_a_chunk_is_written_the_source_rests(write_seconds: float, wait_seconds: float) -> None:
    clock = FakeClock()
    limit = LoadLimit(1.0, lambda: 0.6, clock=clock)
    waited(limit, clock)
    clock.advance(0.2 + write_seconds)
    limit.copied(10, 0.2)

    assert waited(limit, clock) == pytest.approx(wait_seconds, abs=0.001)


def test_nobody_waits_for_a_load_that_leaves_room() -> None:
    clock = FakeClock()
    limit = LoadLimit(3.0, lambda: 0.6, clock=clock)
    waited(limit, clock)
    clock.advance(0.2)
    limit.copied(10, 0.2)

    assert waited(limit, clock) < 0.001


def test_a_load_that_is_too_high_leaves_a_trickle() -> None:
    clock = FakeClock()
    limit = LoadLimit(1.0, lambda: 9.0, clock=clock)

    rows = copied_in(500, limit, clock, chunk=0.05, rows=10)

    assert 0 < rows * 0.005 / 500 <= SHARE_MIN * 1.1


def test_a_long_chunk_is_made_up_for_until_the_load_falls() -> None:
    """What is owed is not forgotten; how long the pause is follows from what is known meanwhile."""
    clock = FakeClock()
    load = 9.0
    limit = LoadLimit(1.0, lambda: load, clock=clock)
    waited(limit, clock)
    clock.advance(4)
    limit.copied(10, 4.0)

    looked(limit, clock, 4.0 / SHARE_MIN - 10)
    assert limit.pause() is not None
    load = 0.0
    assert waited(limit, clock) < 60

    load = 9.0
    looked(limit, clock, 60)
    clock.advance(4)
    limit.copied(10, 4.0)
    assert waited(limit, clock) == pytest.approx(4.0 / SHARE_MIN, rel=0.05)


def looked(limit: LoadLimit, clock: FakeClock, seconds: float) -> None:
    """While nothing is copied."""
    until = clock() + seconds
    while clock() < until:
        limit.pause()
        clock.advance(SAMPLE_SECONDS)


def test_the_reason_says_load_and_limit() -> None:
    clock = FakeClock()
    limit = LoadLimit(1.0, lambda: 2.0, clock=clock)
    waited(limit, clock)
    limit.copied(10, 0.5)

    pause = limit.pause()

    assert pause is not None
    assert pause.reason == "2.0 sessions of others are at work, the limit is 1"


def test_one_look_at_the_load_is_not_the_load() -> None:
    clock = FakeClock()
    sessions = 0.0
    limit = LoadLimit(1.0, lambda: sessions, clock=clock)
    looked(limit, clock, 5)
    sessions = 8.0
    limit.pause()
    limit.copied(10, 0.1)

    assert waited(limit, clock) < 0.2


def test_nothing_is_believed_of_the_first_look() -> None:
    clock = FakeClock()
    found = iter([1.0, *[0.0] * 1_000])
    limit = LoadLimit(0.5, lambda: next(found), clock=clock)

    pause = limit.pause()
    assert pause is not None
    assert pause.reason == "the load of the source is looked at"
    assert waited(limit, clock) == pytest.approx(SAMPLE_SECONDS * FIRST_LOOKS, abs=2.5 * SAMPLE_SECONDS)
    assert limit.leave.share == pytest.approx(0.5 - 1 / FIRST_LOOKS, abs=0.02)


@pytest.mark.parametrize(("sessions", "seconds", "is_soon"), [(9.0, 2.0, True), (1.5, 2.0, False), (1.5, 10.0, True)])
def test_a_rise_of_more_than_a_session_is_believed_soon(sessions: float, seconds: float, *, is_soon: bool) -> None:
    clock = FakeClock()
    load = 0.5
    limit = LoadLimit(1.0, lambda: load, clock=clock)
    looked(limit, clock, 60)
    load = sessions

    looked(limit, clock, seconds)

    assert (limit.leave.share == SHARE_MIN) is is_soon


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
        LoadLimit(1.0, probe, clock=clock) if name == "load" else SignalLimit("lag", 1, probe, clock=clock)
    )
    pause = limit.pause()
    assert pause is not None
    assert "unknown: it does not answer" in pause.reason

    is_away = False
    assert waited(limit, clock) <= 1 + SAMPLE_SECONDS * FIRST_LOOKS


def test_nothing_begins_while_a_signal_is_above_its_limit() -> None:
    clock = FakeClock()
    lag = 7.25
    limit = SignalLimit("the mirror's lag", 5.0, lambda: lag, clock=clock)

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
    assert Throttles([RateLimit(10, clock=clock), limit]).leave == leave
    assert Throttles().leave == Leave(1.0, None)


def test_one_look_after_a_long_chunk_is_not_the_load_either() -> None:
    clock = FakeClock()
    sessions = 0.4
    limit = LoadLimit(1.0, lambda: sessions, clock=clock)
    looked(limit, clock, 20)
    clock.advance(LOAD_SECONDS - 1)
    sessions = 1.0
    limit.pause()

    assert limit.leave.share == pytest.approx(0.6, abs=0.1)


@pytest.mark.parametrize("why", ["a long gap", "a look that failed"])
def test_what_was_known_long_ago_is_looked_at_anew(why: str) -> None:
    clock = FakeClock()
    found: list[float | None] = [9.0]
    limit = LoadLimit(1.0, lambda: found[-1] if found[-1] is not None else 1 / 0, clock=clock)
    looked(limit, clock, 60)
    if why == "a long gap":
        clock.advance(LOAD_SECONDS + 1)
    else:
        found.append(None)
        looked(limit, clock, 2)
    found.append(0.0)

    assert waited(limit, clock) < 2 + SAMPLE_SECONDS * FIRST_LOOKS
    assert limit.leave == Leave(1.0, None)


def test_many_sessions_come_and_go_without_being_a_rise() -> None:
    """Of thirty sessions there are 24 or 36 in any second, and no chunk need wait for that."""
    clock, random = FakeClock(), Random(7)
    limit = LoadLimit(32.0, lambda: float(sum(random.random() < 0.3 for _ in range(100))), clock=clock)
    looked(limit, clock, 30)

    shares = []
    for _ in range(300):
        looked(limit, clock, 0.2)
        shares.append(limit.leave.share)

    assert sum(share <= 2 * SHARE_MIN for share in shares) <= 3


def test_of_several_throttles_the_longest_pause_is_heard() -> None:
    clock = FakeClock()
    rate, load = RateLimit(10, clock=clock), LoadLimit(1.0, lambda: 0.0, clock=clock)
    both = Throttles([rate, load])
    waited(both, clock)

    both.copied(100, 0.1)

    pause = both.pause()
    assert pause is not None
    assert "10 rows/s" in pause.reason
    assert Throttles().pause() is None
