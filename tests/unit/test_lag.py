"""What a process knows of the mirror's lag decides whether the mirror may answer a cohort's read."""

from __future__ import annotations

from uuid import uuid4

import pytest

from tests.unit.clock import FakeClock
from tripstore.facade.lag import BELIEVED_SECONDS, ROWS_MAX, Lag

ROW, OTHER = uuid4(), uuid4()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def lag(clock: FakeClock) -> Lag:
    lag = Lag(0.05, clock)
    lag.watch(is_watched=True)
    return lag


def look(lag: Lag, clock: FakeClock, seconds: float = 0.0, missing: tuple[object, ...] = ()) -> None:
    """A look at the mirror that begins now."""
    lag.looked(clock(), seconds, lag.pending(), missing)


def test_before_the_first_look_nothing_is_allowed(lag: Lag, clock: FakeClock) -> None:
    assert not lag.allows((ROW,))
    look(lag, clock)
    assert lag.allows((ROW,))


def test_a_mirror_that_is_too_far_behind_answers_nobody(lag: Lag, clock: FakeClock) -> None:
    look(lag, clock, 0.051)
    assert not lag.allows((ROW,))
    look(lag, clock, 0.05)
    assert lag.allows((ROW,))


def test_what_is_known_is_not_believed_for_long(lag: Lag, clock: FakeClock) -> None:
    """A process that was stopped goes on with what it knew: it is too old."""
    look(lag, clock)
    clock.advance(BELIEVED_SECONDS + 0.01)
    assert not lag.allows((ROW,))


def test_a_row_that_this_process_wrote_is_read_at_the_authority_until_it_arrived(lag: Lag, clock: FakeClock) -> None:
    look(lag, clock)
    lag.wrote((ROW,))
    assert not lag.allows((ROW,))
    assert lag.allows((OTHER,))
    assert not lag.allows(()), "nobody knows which rows a query finds"
    clock.advance(0.01)
    look(lag, clock, missing=(ROW,))
    assert not lag.allows((ROW,))
    look(lag, clock)
    assert lag.allows((ROW,))
    assert lag.allows(())


def test_a_look_that_began_before_the_write_says_nothing_of_it(lag: Lag, clock: FakeClock) -> None:
    begun, pending = clock(), lag.pending()
    clock.advance(0.001)
    lag.wrote((ROW,))
    lag.looked(begun, 0.0, pending, ())
    assert not lag.allows((ROW,))


def test_a_row_written_again_during_the_look_waits_for_the_next(lag: Lag, clock: FakeClock) -> None:
    lag.wrote((ROW,))
    clock.advance(0.001)
    begun, pending = clock(), lag.pending()
    clock.advance(0.001)
    lag.wrote((ROW,))
    lag.looked(begun, 0.0, pending, ())
    assert not lag.allows((ROW,))


def test_with_more_rows_than_are_remembered_every_read_goes_to_the_authority(lag: Lag, clock: FakeClock) -> None:
    rows = [uuid4() for _ in range(ROWS_MAX + 1)]
    lag.wrote(rows)
    clock.advance(0.001)
    lag.looked(clock(), 0.0, lag.pending(), rows[:1])
    assert not lag.allows((rows[-1],)), "it was not remembered"
    look(lag, clock)
    assert lag.allows((rows[-1],))


def test_rows_are_remembered_only_while_somebody_asks(lag: Lag, clock: FakeClock) -> None:
    lag.watch(is_watched=False)
    look(lag, clock)
    lag.wrote((ROW,))
    assert not lag.pending()
    lag.watch(is_watched=True)
    assert not lag.allows((ROW,)), "what was written until now is not remembered: a look must come first"
