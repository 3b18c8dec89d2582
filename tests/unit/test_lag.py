"""What a process knows of the mirror's lag decides whether the mirror may answer a cohort's read."""

from __future__ import annotations

import math
from uuid import uuid4

import pytest

from tests.unit.clock import FakeClock
from tripstore.facade.lag import BELIEVED_SECONDS, ROWS_MAX, Lag, LagLook, Objection

ROW, OTHER = uuid4(), uuid4()
EPOCH = 4
#: Any place does.
PLACE = 17


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def lag(clock: FakeClock) -> Lag:
    """A cohort asks, and whatever was written before has arrived."""
    lag = Lag(0.05, clock)
    lag.watch(is_watched=True)
    look(lag, clock, math.inf, is_past_place=True)
    return lag


def allows(lag: Lag, *rows: object) -> bool:
    return lag.allows(rows, EPOCH)


def look(
    lag: Lag,
    clock: FakeClock,
    seconds: float = 0.0,
    missing: tuple[object, ...] = (),
    *,
    is_past_place: bool = False,
    epoch: int = EPOCH,
) -> None:
    """A look at the mirror that begins now."""
    pending = lag.pending(epoch)
    lag.looked(epoch, pending, LagLook(clock(), seconds, missing, PLACE, is_past_place))


def test_before_the_first_look_nothing_is_allowed(lag: Lag, clock: FakeClock) -> None:
    assert not allows(lag, ROW)
    look(lag, clock)
    assert allows(lag, ROW)


def test_a_mirror_that_is_too_far_behind_answers_no_read(lag: Lag, clock: FakeClock) -> None:
    look(lag, clock, 0.051)
    assert not allows(lag, ROW)
    look(lag, clock, 0.05)
    assert allows(lag, ROW)


def test_what_is_known_is_not_believed_for_long(lag: Lag, clock: FakeClock) -> None:
    """A process that was stopped goes on with what it knew: it is too old."""
    look(lag, clock)
    clock.advance(BELIEVED_SECONDS + 0.01)
    assert not allows(lag, ROW)


def test_what_is_known_is_of_the_mirror_of_one_epoch(lag: Lag, clock: FakeClock) -> None:
    """After a hand-over the mirror is another one."""
    look(lag, clock)
    assert not lag.allows((ROW,), EPOCH + 2)


def test_a_row_that_this_process_wrote_is_read_at_the_authority_until_it_arrived(lag: Lag, clock: FakeClock) -> None:
    look(lag, clock)
    lag.wrote((ROW,))
    assert not allows(lag, ROW)
    assert allows(lag, OTHER)
    assert not allows(lag), "which rows a query finds is not known"
    clock.advance(0.01)
    look(lag, clock, missing=(ROW,))
    assert not allows(lag, ROW)
    look(lag, clock)
    assert allows(lag, ROW)
    assert allows(lag)


def test_a_look_that_began_before_the_write_says_nothing_of_it(lag: Lag, clock: FakeClock) -> None:
    begun, pending = clock(), lag.pending(EPOCH)
    clock.advance(0.001)
    lag.wrote((ROW,))
    lag.looked(EPOCH, pending, LagLook(begun, 0.0))
    assert not allows(lag, ROW)


def test_a_row_written_again_during_the_look_waits_for_the_next(lag: Lag, clock: FakeClock) -> None:
    lag.wrote((ROW,))
    clock.advance(0.001)
    begun, pending = clock(), lag.pending(EPOCH)
    clock.advance(0.001)
    lag.wrote((ROW,))
    lag.looked(EPOCH, pending, LagLook(begun, 0.0))
    assert not allows(lag, ROW)


def test_with_more_rows_than_are_remembered_every_read_goes_to_the_authority(lag: Lag, clock: FakeClock) -> None:
    """Until the mirror has all of them: that those arrived which are remembered says nothing of the others."""
    rows = [uuid4() for _ in range(ROWS_MAX + 1)]
    lag.wrote(rows)
    clock.advance(0.001)
    look(lag, clock, missing=tuple(rows[:1]))
    assert not allows(lag, rows[-1]), "it was not remembered"
    look(lag, clock)
    assert not lag.pending(EPOCH).rows
    assert not allows(lag, rows[-1]), "no look since has seen it arrive"
    look(lag, clock, is_past_place=True)
    assert allows(lag, rows[-1])


def test_a_place_that_was_asked_for_before_says_nothing_of_what_is_lost_after_it(lag: Lag, clock: FakeClock) -> None:
    rows = [uuid4() for _ in range(ROWS_MAX + 1)]
    lag.wrote(rows)
    clock.advance(0.001)
    look(lag, clock, missing=tuple(rows))
    first = lag.pending(EPOCH).lost
    lag.wrote([OTHER])
    second = lag.pending(EPOCH).lost
    assert first is not None
    assert first == second, "it is waited for at its place"
    look(lag, clock, is_past_place=True)
    assert not allows(lag, OTHER)
    last = lag.pending(EPOCH).lost
    assert last is not None
    assert (last.number, last.place) == (first.number + 1, None)
    look(lag, clock, is_past_place=True)
    assert allows(lag, OTHER)


def test_rows_that_were_left_behind_on_the_way_to_a_place_are_missing_and_no_others(lag: Lag, clock: FakeClock) -> None:
    lag.watch(is_watched=False)
    lag.watch(is_watched=True)
    lag.looked(EPOCH, lag.pending(EPOCH), LagLook(clock(), 0.0, place=PLACE, is_past_place=True, left={ROW}))
    assert allows(lag, OTHER)
    assert lag.objection((ROW,), EPOCH) is Objection.MISSING
    clock.advance(0.01)
    look(lag, clock, missing=(ROW,))
    assert not allows(lag, ROW)
    look(lag, clock)
    assert allows(lag, ROW)


def test_with_more_rows_left_behind_than_are_remembered_every_read_goes_to_the_authority(
    lag: Lag, clock: FakeClock
) -> None:
    lag.watch(is_watched=False)
    lag.watch(is_watched=True)
    left = {uuid4() for _ in range(ROWS_MAX + 1)}
    lag.looked(EPOCH, lag.pending(EPOCH), LagLook(clock(), 0.0, place=PLACE, is_past_place=True, left=left))
    assert lag.objection((OTHER,), EPOCH) is Objection.NOT_REMEMBERED


def test_who_declines_says_why(lag: Lag, clock: FakeClock) -> None:
    assert lag.objection((ROW,), EPOCH) is Objection.BEHIND
    look(lag, clock)
    assert lag.objection((ROW,), EPOCH) is None
    assert lag.objection((ROW,), EPOCH + 2) is Objection.NOT_KNOWN
    lag.wrote((ROW,))
    assert lag.objection((ROW,), EPOCH) is Objection.MISSING
    lag.wrote([uuid4() for _ in range(ROWS_MAX)])
    assert lag.objection((OTHER,), EPOCH) is Objection.NOT_REMEMBERED


def test_a_place_in_the_way_of_one_mirror_is_none_in_the_way_of_the_other(lag: Lag, clock: FakeClock) -> None:
    lag.wrote([uuid4() for _ in range(ROWS_MAX + 1)])
    look(lag, clock)
    found = lag.pending(EPOCH).lost
    assert found is not None
    assert found.place == PLACE
    assert lag.pending(EPOCH + 2).lost == (found.number, None)


def test_rows_are_remembered_only_while_a_cohort_asks(lag: Lag, clock: FakeClock) -> None:
    look(lag, clock)
    lag.watch(is_watched=False)
    assert not allows(lag, ROW), "what is written now is not remembered"
    lag.wrote((ROW,))
    assert not lag.pending(EPOCH).rows
    lag.watch(is_watched=True)
    assert not allows(lag, ROW)
    look(lag, clock, 0.01)
    assert not allows(lag, ROW), "the mirror is close, but may lack what was not remembered"
    look(lag, clock, 0.01, is_past_place=True)
    assert allows(lag, ROW)
