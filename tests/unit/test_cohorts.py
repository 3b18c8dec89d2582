"""Cohorts: the same rows at every call and in every process, growing with the percentage, never against the odds."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

from schemaless_core.breaker import BreakerConfig
from tests.unit.clock import FakeClock
from tripstore.facade.cohorts import Cohorts
from tripstore.facade.lag import Lag, LagLook

EPOCH = 4
ROWS = [uuid4() for _ in range(4000)]


def cohorts(*, seconds: float = 0.0, failures: int = 3) -> Cohorts:
    clock = FakeClock()
    lag = Lag(0.05, clock)
    lag.watch(is_watched=True)
    lag.looked(EPOCH, lag.pending(EPOCH), LagLook(clock(), seconds, place=1, is_past_place=True))
    return Cohorts(lag, BreakerConfig(failures=failures))


def members(percent: float) -> set[UUID]:
    made = cohorts()
    return {row for row in ROWS if made.takes({"get_row": percent}, "get_row", (row,), EPOCH)}


def test_a_cohort_has_about_its_share_and_grows() -> None:
    small, large = members(10), members(30)
    assert small < large
    assert 250 < len(small) < 550
    assert members(100) == set(ROWS)
    assert members(0) == set()


def test_a_class_of_its_own_goes_before_the_general_one() -> None:
    made = cohorts()
    percents = {"*": 100.0, "get_row": 0.0, "query_index:drivers": 100.0}
    assert made.takes(percents, "get_cell", (ROWS[0],), EPOCH)
    assert not made.takes(percents, "get_row", (ROWS[0],), EPOCH)
    assert made.takes(percents, "query_index:drivers", ("a driver",), EPOCH)


def test_a_wrong_call_is_the_authoritys_to_refuse() -> None:
    """Whatever it is asked with: a cohort changes no answer, and no error either."""
    made = cohorts()
    wrong: tuple[Any, ...] = ([1], None, "no UUID", {"a": 1})
    for key in wrong:
        assert not made.takes({"*": 100}, "get_row", (key,), EPOCH)
    assert made.takes({"*": 100}, "query_index:drivers", ("\ud800",), EPOCH)


def test_a_call_for_many_rows_is_taken_only_when_all_are_in() -> None:
    inside, outside = members(10), set(ROWS) - members(10)
    made = cohorts()
    assert made.takes({"get_cells": 10}, "get_cells", tuple(sorted(inside)[:5]), EPOCH)
    assert not made.takes({"get_cells": 10}, "get_cells", (min(inside), min(outside)), EPOCH)


def test_a_mirror_that_is_behind_or_fails_is_not_asked() -> None:
    assert not cohorts(seconds=0.06).takes({"*": 100}, "get_row", (ROWS[0],), EPOCH)
    made = cohorts(failures=2)
    made.failed()
    assert made.takes({"*": 100}, "get_row", (ROWS[0],), EPOCH)
    made.failed()
    assert not made.takes({"*": 100}, "get_row", (ROWS[0],), EPOCH)


def test_what_is_known_of_the_mirror_of_another_epoch_is_nothing() -> None:
    assert not cohorts().takes({"*": 100}, "get_row", (ROWS[0],), EPOCH + 2)
