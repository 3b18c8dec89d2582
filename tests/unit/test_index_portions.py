"""How many cells an index group processes at once, and when it asks which are alone; without a server."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from typing import Any, cast
from uuid import UUID

import pytest

from schemaless_core import Cell
from schemaless_core.definitions.index import IndexDefinition
from schemaless_core.errors import NodeUnavailable, SchemalessError
from schemaless_core.indexes.entries import IndexVersion
from schemaless_core.indexes.maintainer import PORTION_MAX, UNASKED_PORTIONS, IndexGroup
from schemaless_core.indexes.rows import RowsRead
from schemaless_core.indexes.writer import CELLS_PER_WRITE, EntryPlan
from schemaless_core.servers.fanout import FanOut
from tests.unit.clock import FakeClock

VERSION = IndexVersion(
    IndexDefinition.from_document(
        {
            "table": "trips_of_driver",
            "datastore": "trips",
            "column_defs": [{"column_key": "BASE", "fields": [{"field": "driver", "type": "string"}]}],
        },
        "test",
    ),
    1,
)


class _Writer:
    """Notes what it is asked; some of its answers are late."""

    def __init__(self, *, share_alone: float = 1.0, late: Collection[int] = (), seconds: float = 0.0) -> None:
        self.portions: list[int] = []
        self.asked: list[bool] = []
        self.clock = FakeClock()
        self._share_alone = share_alone
        #: Which of its calls are.
        self._late = late
        self._calls = 0
        self._lock = threading.Lock()
        self.written: list[Cell] = []
        self._seconds = seconds

    def plan(
        self, _versions: object, cells: Sequence[Cell], _deadline: object, *, may_be_alone: bool
    ) -> list[EntryPlan]:
        self.portions.append(len(cells))
        self.asked.append(may_be_alone)
        alone = round(len(cells) * self._share_alone) if may_be_alone else 0
        return [EntryPlan(VERSION, {}, RowsRead({}, {}), {}, {}, alone)]

    def carry_out(self, _plan: EntryPlan, cells: Sequence[Cell], _deadline: object) -> list[SchemalessError | None]:
        self.clock.advance(self._seconds)
        with self._lock:
            self._calls += 1
            is_late = self._calls in self._late
        self.written += [] if is_late else cells
        return [NodeUnavailable("a", "it was late", is_timeout=True) if is_late else None] * len(cells)


class _NoErrors:
    """A router to servers that have no error of a field noted."""

    def read_each(self, *_arguments: object) -> dict[int, object]:
        return {}


def delivered(writer: _Writer, cells: int, group: IndexGroup | None = None) -> int:
    """How many of so many cells of a shard a group has done at one go."""
    group = group or group_of(writer)
    run = [Cell(UUID(int=number), "BASE", 1, {"driver": "a"}) for number in range(cells)]
    return group.deliver({0: run})[0].done


def group_of(writer: _Writer) -> IndexGroup:
    return IndexGroup(VERSION, cast(Any, writer), cast(Any, _NoErrors()), 1, FanOut(1), writer.clock)


def test_while_more_waits_portions_grow_to_a_most() -> None:
    writer = _Writer()

    assert delivered(writer, 20_000) == 20_000

    assert writer.portions[:5] == [CELLS_PER_WRITE, 500, 500, 1_000, 1_000]
    assert max(writer.portions) == PORTION_MAX // 2
    assert sum(writer.portions) == 20_000


def test_a_portion_that_is_late_is_processed_in_parts() -> None:
    writer = _Writer(late=[1, 2])

    assert delivered(writer, 1_000) == 1_000

    assert writer.portions == [500, 125, 31, 62, 124, 248, 496, 39]


@pytest.mark.parametrize("late", [2, 3])
def test_when_either_half_of_a_portion_is_late_all_of_it_is_processed_in_parts(late: int) -> None:
    writer = _Writer(late=[late])

    assert delivered(writer, 1_500) == 1_500

    assert sorted(writer.portions[:3]) == [500, 500, 500]
    assert writer.portions[3:] == [250, 500, 250]
    assert {cell.row_key for cell in writer.written} == {UUID(int=number) for number in range(1_500)}


def test_it_ends_after_a_while_and_what_is_left_is_fetched_again() -> None:
    writer = _Writer(seconds=0.75)

    assert delivered(writer, 20_000) == 500 + 1_000


def test_where_few_cells_are_alone_it_is_rarely_asked() -> None:
    writer = _Writer(share_alone=0.4)
    group = group_of(writer)

    for _portion in range(2 * (UNASKED_PORTIONS + 1)):
        assert delivered(writer, 10, group) == 10

    assert writer.asked == [True, *[False] * UNASKED_PORTIONS] * 2


def test_where_most_cells_are_alone_it_is_asked_each_time() -> None:
    writer = _Writer(share_alone=0.6)
    group = group_of(writer)

    for _portion in range(5):
        assert delivered(writer, 10, group) == 10

    assert writer.asked == [True] * 5
