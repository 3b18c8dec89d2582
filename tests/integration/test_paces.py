"""Turns at a rate, in the control databases of every engine."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from threading import Barrier

import pytest

from schemaless_core.control.database import ControlDatabase
from schemaless_core.control.paces import SharedPace
from tests.stores import Stores

WORKERS = 4


@pytest.fixture
def control(datastore_engine: str, stores: Stores) -> Iterator[ControlDatabase]:
    with closing(stores.control_opener(datastore_engine)()) as opened:
        yield opened


def test_of_those_who_ask_at_the_same_moment_one_has_the_turn(control: ControlDatabase) -> None:
    """The very first time, too, when no worker has taken a turn yet."""
    begin = Barrier(WORKERS)

    def take(_worker: int) -> float:
        pace = SharedPace(control, "backfill-1")
        begin.wait()
        return pace.take(50_000, 1_000)

    with ThreadPoolExecutor(WORKERS) as pool:
        left = sorted(pool.map(take, range(WORKERS)))

    assert left[0] == 0.0
    assert all(40 < seconds <= 50 for seconds in left[1:]), left


def test_what_was_not_needed_is_given_back_unless_another_one_has_taken_since(control: ControlDatabase) -> None:
    first, second = SharedPace(control, "backfill-1"), SharedPace(control, "backfill-1")
    assert first.take(50_000, 1_000) == 0.0
    first.give_back(50_000, 1_000)
    assert second.take(50_000, 1_000) == 0.0

    first.give_back(50_000, 1_000)

    assert first.take(1, 1_000) > 40
    assert SharedPace(control, "backfill-2").take(1, 1_000) == 0.0, "another job is none of it"
