"""Deadlines count down from the moment they are made."""

from __future__ import annotations

import time

from schemaless_core.deadline import Deadline, InAll
from tests.unit.clock import FakeClock


def test_a_deadline_counts_down() -> None:
    clock = FakeClock()
    deadline = Deadline(2.0, clock)

    assert deadline.remaining_seconds() == 2.0
    clock.advance(1.5)
    assert deadline.remaining_seconds() == 0.5
    assert not deadline.is_over


def test_a_deadline_is_over_at_its_moment_and_ever_after() -> None:
    clock = FakeClock()
    deadline = Deadline(2.0, clock)

    clock.advance(2.0)
    assert deadline.is_over
    clock.advance(3.0)

    assert deadline.is_over
    assert deadline.remaining_seconds() == -3.0


def test_a_deadline_of_no_seconds_is_over_at_once() -> None:
    assert Deadline(0.0).is_over


def test_by_default_the_monotonic_clock_counts() -> None:
    before = time.monotonic()
    deadline = Deadline(5.0)

    assert before + 5.0 <= time.monotonic() + deadline.remaining_seconds() + 1e-3
    assert deadline.remaining_seconds() <= 5.0


def test_what_a_call_need_not_answer_for_counts_where_its_seconds_are_all() -> None:
    clock = FakeClock()
    plain, strict = Deadline(2.0, clock), Deadline(InAll(2.0), clock)
    assert (plain.patience(5.0), strict.patience(5.0)) == (5.0, 2.0)

    clock.advance(1.5)
    plain.extend(1.5)
    strict.extend(1.5)

    assert (plain.remaining_seconds(), strict.remaining_seconds()) == (2.0, 0.5)
    assert isinstance(strict.left(), InAll)
    assert not isinstance(plain.left(), InAll)
    clock.advance(1.0)
    assert strict.patience(5.0) == 0.0
