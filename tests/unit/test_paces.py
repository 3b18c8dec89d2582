"""Turns at a rate: workers join, die or are slow; together they are never ahead of the rate by more than a chunk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import count, product
from pathlib import Path
from typing import NamedTuple, Protocol

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemaless_core.config import TlsConfig
from schemaless_core.control.database import ControlDatabase
from schemaless_core.control.paces import SharedPace, Turn
from schemaless_core.urls import parse_node_url
from tests.unit.clock import FakeClock
from tests.unit.throttles import MemoryPace
from tripstore.engines.backfill.throttle import Pace as Taking

RATE = 1_000.0
WINDOW_SECONDS = 5.0


class Took(NamedTuple):
    """A chunk that was begun, and how many rows it had."""

    at: float
    rows: int


class Act(NamedTuple):
    """So much later a worker does what is next: it asks for a chunk, or has copied so much of the one at hand."""

    worker: int
    later: float
    rows: int
    share: float = 1.0
    #: Whether it is killed afterwards, and another one takes its place.
    dies: bool = False


class Joining(Protocol):
    def __call__(self) -> Taking: ...


def acted(acts: Sequence[Act], join: Joining, clock: FakeClock) -> list[Took]:
    """What all workers begin."""
    paces: dict[int, Taking] = {}
    at_hand: dict[int, int] = {}
    found: list[Took] = []
    for act in acts:
        clock.advance(act.later)
        pace = paces.setdefault(act.worker, join())
        if act.worker in at_hand:
            number = at_hand.pop(act.worker)
            rows = round(found[number].rows * act.share)
            pace.give_back(found[number].rows - rows, RATE)
            found[number] = found[number]._replace(rows=rows)
        elif not pace.take(act.rows, RATE):
            at_hand[act.worker] = len(found)
            found.append(Took(clock(), act.rows))
        if act.dies:
            paces.pop(act.worker)
            at_hand.pop(act.worker, None)
    return found


def ahead(found: Sequence[Took]) -> float:
    """By how many rows the rate was exceeded, in the worst window."""
    worst = 0.0
    for n, first in enumerate(found):
        rows = [each.rows for each in found[n:] if round(each.at - first.at, 3) <= WINDOW_SECONDS]
        seconds = max(each.at for each in found[n : n + len(rows)]) - first.at
        worst = max(worst, sum(rows) - RATE * seconds)
    return round(worst, 3)


ACTS = st.lists(
    st.builds(
        Act,
        st.integers(0, 3),
        st.sampled_from([0.0, 0.001, 0.05, 0.25, 0.5, 1.0, 4.0]),
        st.sampled_from([1, 200, 500]),
        st.sampled_from([1.0, 0.5, 0.0]),
        st.booleans(),
    ),
    max_size=60,
)


@given(ACTS)
def test_all_together_are_never_ahead_of_the_rate_by_more_than_a_chunk(acts: list[Act]) -> None:
    clock = FakeClock()

    assert ahead(acted(acts, MemoryPace(clock).join, clock)) <= 500


@pytest.mark.parametrize("later", [0.0, 0.1, 0.3])
def test_nor_are_three_workers_in_any_order(later: float) -> None:
    """Each order of seven steps, the first chunks among them."""
    for order in product(range(3), repeat=7):
        clock = FakeClock()
        shared = MemoryPace(clock)
        assert ahead(acted([Act(worker, later, 400) for worker in order], shared.join, clock)) <= 400


def test_control_workers_that_keep_the_rate_each_for_himself_are_ahead_of_it() -> None:
    clock = FakeClock()
    acts = [Act(worker, 0.01, 400) for worker in (0, 1, 2)]

    assert ahead(acted(acts, lambda: MemoryPace(clock), clock)) > 1_100


@pytest.fixture(scope="module")
def control(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], ControlDatabase]:
    folder = tmp_path_factory.mktemp("control")
    url = parse_node_url("control", f"sqlite:///{folder}")

    def opened() -> ControlDatabase:
        return ControlDatabase(url, "t", TlsConfig(), 1.0)

    with closing(opened()) as made:
        made.migrate()
    assert isinstance(folder, Path)
    return opened


NAMES = count()


@given(ACTS)
@settings(max_examples=15)
def test_nor_are_those_who_share_a_control_database(control: Callable[[], ControlDatabase], acts: list[Act]) -> None:
    """The same with the row that they really share, by its clock."""
    clock, name = FakeClock(), str(next(NAMES))
    with closing(control()) as opened:

        def join() -> SharedPace:
            return SharedPace(opened, name, lambda _connection: round(1000 * clock()))

        shared, memory = acted(acts, join, clock), FakeClock()
        assert ahead(shared) <= 500
        assert shared == acted(acts, MemoryPace(memory).join, memory)


def test_a_clock_that_goes_back_keeps_no_worker_waiting_for_what_is_over() -> None:
    """The control database moved to a host whose clock is an hour behind."""
    turn = Turn().taken(3_600_000, 500, RATE)
    assert turn.seconds_left(3_600_100) == 0.4

    assert turn.seconds_left(0) == 0.0
    assert Turn().taken(0, 500, RATE).seconds_left(100) == 0.4
