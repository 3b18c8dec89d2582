"""The tests that a public event-sourcing library has for its recorders pass on our stores: `put_together`, the log."""

from __future__ import annotations

import importlib
import unittest
from collections.abc import Sequence
from typing import Any

import pytest

from schemaless_core import Cell, JointStore, MemoryStore, PutResult
from schemaless_core.cell.answers import Position
from tests.public.recorder import CellRecorder
from tests.stores import Stores

AGGREGATE = [("AggregateRecorderTestCase", name) for name in ("test_insert_and_select", "test_performance")]
APPLICATION = [
    ("ApplicationRecorderTestCase", name)
    for name in ("test_insert_select", "test_performance", "test_concurrent_no_conflicts", "test_concurrent_throughput")
]


def run(store: JointStore, case: str, method: str) -> unittest.TestResult:
    """Run one of the library's tests."""
    library = importlib.import_module("eventsourcing.persistence")
    cases: Any = importlib.import_module("eventsourcing.tests.persistence")

    def create_recorder(_case: object) -> CellRecorder:
        return CellRecorder(store, library, tells_ids=case.startswith("Application"))

    of_ours = type(case, (getattr(cases, case),), {"create_recorder": create_recorder})
    result = unittest.TestResult()
    of_ours(method).run(result)
    return result


@pytest.mark.parametrize(("case", "method"), AGGREGATE + APPLICATION)
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_recorder_on_our_store_passes_the_librarys_tests(stores: Stores, kind: str, case: str, method: str) -> None:
    store = MemoryStore(shards=1) if kind == "memory" else stores.fresh("sqlite", shards=1)
    result = run(store, case, method)
    assert result.testsRun == 1
    assert [trace for _case, trace in [*result.errors, *result.failures]] == []


class Careless(MemoryStore):
    """Puts what it can, one cell after the other."""

    def put_together(self, cells: Sequence[Cell], seen: Position) -> list[PutResult] | None:
        return self.put_cells(cells)


def test_control_a_store_that_puts_events_one_by_one_is_noticed() -> None:
    result = run(Careless(shards=1), *AGGREGATE[0])
    assert result.failures
