"""The limit on the source's load: what others leave is used, no more, and what was taken too much is made up for."""

from __future__ import annotations

from random import Random

import pytest

from tests.unit.clock import FakeClock
from tests.unit.throttles import copied_in, waited
from tripstore.engines.backfill.load_limit import FIRST_LOOKS, LOAD_SECONDS, SAMPLE_SECONDS, LoadLimit
from tripstore.engines.backfill.throttle import SHARE_MIN, Leave


def looked(limit: LoadLimit, clock: FakeClock, seconds: float) -> None:
    """While nothing is copied."""
    until = clock() + seconds
    while clock() < until:
        limit.pause()
        clock.advance(SAMPLE_SECONDS)


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


def test_no_chunk_waits_for_a_load_that_leaves_room() -> None:
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
