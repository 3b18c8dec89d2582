"""The circuit breaker of one server, by a clock that the test moves."""

from __future__ import annotations

import pytest

from schemaless_core.breaker import Breaker, BreakerConfig, BreakerState
from tests.unit.clock import FakeClock

CLOSED, OPEN, HALF_OPEN = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def breaker(clock: FakeClock) -> Breaker:
    return Breaker(BreakerConfig(failures=3, pause_seconds=1.0, pause_seconds_max=5.0), clock)


def opened(breaker: Breaker) -> Breaker:
    for _ in range(3):
        breaker.failed()
    return breaker


def test_a_new_breaker_is_closed_and_admits_everything(breaker: Breaker) -> None:
    assert breaker.state is CLOSED
    assert [breaker.admits() for _ in range(5)] == [True] * 5


def test_it_opens_after_as_many_failures_in_a_row_as_configured(breaker: Breaker) -> None:
    states = []
    for _ in range(3):
        breaker.failed()
        states.append(breaker.state)

    assert states == [CLOSED, CLOSED, OPEN]
    assert not breaker.admits()


def test_a_success_in_between_starts_the_count_again(breaker: Breaker) -> None:
    for _ in range(10):
        breaker.failed()
        breaker.failed()
        breaker.succeeded()

    assert breaker.state is CLOSED


def test_nothing_is_admitted_before_the_pause_is_over(breaker: Breaker, clock: FakeClock) -> None:
    opened(breaker)

    clock.advance(0.999)

    assert not breaker.admits()
    assert breaker.state is OPEN


def test_exactly_one_probe_goes_through_after_the_pause(breaker: Breaker, clock: FakeClock) -> None:
    opened(breaker)
    clock.advance(1.0)

    admitted = [breaker.admits() for _ in range(10)]

    assert admitted == [True] + [False] * 9
    assert breaker.state is HALF_OPEN


def test_a_probe_that_succeeds_closes_it(breaker: Breaker, clock: FakeClock) -> None:
    opened(breaker)
    clock.advance(1.0)
    breaker.admits()

    breaker.succeeded()

    assert breaker.state is CLOSED
    breaker.failed()
    assert breaker.state is CLOSED  # the count starts again, too


def test_a_probe_that_fails_opens_it_with_a_pause_that_doubles_up_to_the_longest(
    breaker: Breaker, clock: FakeClock
) -> None:
    opened(breaker)

    for pause in (1.0, 2.0, 4.0, 5.0, 5.0):
        clock.advance(pause - 0.001)
        assert not breaker.admits()
        clock.advance(0.001)
        assert breaker.admits()
        breaker.failed()
        assert breaker.state is OPEN


def test_after_a_success_the_pause_is_the_first_one_again(breaker: Breaker, clock: FakeClock) -> None:
    opened(breaker)
    for pause in (1.0, 2.0):
        clock.advance(pause)
        breaker.admits()
        breaker.failed()
    clock.advance(4.0)
    breaker.admits()
    breaker.succeeded()

    opened(breaker)
    clock.advance(1.0)

    assert breaker.admits()


def test_a_probe_whose_caller_died_is_replaced_after_one_more_pause(breaker: Breaker, clock: FakeClock) -> None:
    opened(breaker)
    clock.advance(1.0)
    assert breaker.admits()  # its caller never says how it went

    clock.advance(0.999)
    assert not breaker.admits()
    clock.advance(0.001)

    assert [breaker.admits(), breaker.admits()] == [True, False]


def test_calls_that_were_under_way_when_it_opened_do_not_lengthen_the_pause(breaker: Breaker, clock: FakeClock) -> None:
    opened(breaker)
    breaker.failed()
    breaker.failed()

    clock.advance(1.0)

    assert breaker.admits()


def test_it_tells_when_it_opens_and_when_it_closes(clock: FakeClock) -> None:
    told: list[bool] = []
    breaker = Breaker(BreakerConfig(failures=2, pause_seconds=1.0), clock, told.append)

    breaker.failed()
    assert told == []
    breaker.failed()
    assert told == [True]
    clock.advance(1.0)
    breaker.admits()
    breaker.succeeded()

    assert told == [True, False]


def test_a_forked_child_does_not_wait_for_a_lock_of_its_parent(breaker: Breaker) -> None:
    breaker._lock.acquire()  # another thread of the parent held it at the fork

    breaker.after_fork()
    opened(breaker)

    assert breaker.state is OPEN


def test_what_another_call_disproves_counts_no_more(breaker: Breaker) -> None:
    """Two connections broke days apart; reads were answered in between."""
    breaker.failed(is_absent=True)
    breaker.failed(is_absent=True)
    breaker.present()
    breaker.failed(is_absent=True)

    assert breaker.state is CLOSED


def test_one_that_opened_because_no_server_was_there_closes_when_a_call_of_another_kind_is_answered(
    breaker: Breaker,
) -> None:
    for _ in range(3):
        breaker.failed(is_absent=True)
    assert breaker.state is OPEN

    breaker.present()

    assert breaker.state is CLOSED


def test_what_the_server_refused_is_not_disproved_by_what_it_answers(breaker: Breaker) -> None:
    """A read-only server answers every read."""
    breaker.failed(is_absent=True)
    for _ in range(3):
        breaker.failed()
        breaker.present()

    assert breaker.state is OPEN
