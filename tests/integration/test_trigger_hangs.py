"""A function that never returns: it is seen, its cell is set aside, and the others go on (I7)."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import pytest
from prometheus_client import REGISTRY

from schemaless_core import Cell, Datastore
from schemaless_core.triggers.consumer import Consumer
from schemaless_core.triggers.registry import Trigger, trigger
from tests.chaos.actors import wait_until
from tests.crew import Notebook, noting, quick, wait_until_caught_up, working
from tests.stores import Stores

BODIES = range(5)
#: The function hangs for this one.
POISON = 2
_numbers = itertools.count()


@pytest.fixture
def store(datastore_engine: str, stores: Stores) -> Datastore:
    made = stores.fresh(datastore_engine, shards=1, triggers=quick(retry_seconds=60.0))
    made.put_cells([Cell(uuid4(), "BASE", 1, n) for n in BODIES])
    return made


@contextmanager
def hanging(
    notebook: Notebook, timeout: float | None, is_over: threading.Event, *, is_transactional: bool = False
) -> Iterator[Trigger]:
    """A trigger that hangs for one cell, at most until the end of the block."""

    @trigger(
        column="BASE",
        start="beginning",
        name=f"billing_{next(_numbers)}",
        timeout=timeout,
        transactional=is_transactional,
    )
    def billing(cell: Cell) -> None:
        if cell.body == POISON:
            is_over.wait()
        notebook.note(cell)

    try:
        yield billing
    finally:
        is_over.set()


def gauge(group: Trigger, name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, {"group": group.name, **labels}) or 0.0


def parked(store: Datastore, group: Trigger) -> list[tuple[int, int]]:
    return [(row.added_id, row.attempts) for row in store.triggers.parked(group.name)]


@pytest.mark.parametrize("is_transactional", [False, True])
def test_its_cell_is_parked_and_the_next_worker_goes_on_with_every_group(
    store: Datastore, is_transactional: bool
) -> None:
    billed, others, ended, is_over = Notebook(), Notebook(), threading.Event(), threading.Event()
    with hanging(billed, 0.4, is_over, is_transactional=is_transactional) as billing:
        triggers = [billing, noting(others, name="other")]
        worker = store.triggers.worker(triggers, hung=ended.set)
        running = threading.Thread(target=worker.run, daemon=True)
        running.start()
        assert ended.wait(20), "the worker was to be ended"
        assert parked(store, billing) == [(POISON + 1, 1)]

        with working(store, triggers):
            wait_until_caught_up(store, billing.name)
            wait_until_caught_up(store, "other")
            assert {cell.body for cell in billed.cells} == set(BODIES) - {POISON}
            assert {cell.body for cell in others.cells} == set(BODIES)

            store.triggers.retry(billing.name)
            wait_until("another attempt is counted", lambda: parked(store, billing) == [(POISON + 1, 2)])
            is_over.set()
    running.join(60)
    assert not running.is_alive()
    assert POISON in {cell.body for cell in billed.cells}
    (status,) = store.triggers.status(billing.name)
    assert status.lag_cells == 0, "what came back late moves nothing"


@pytest.mark.parametrize("is_told", [True, False])
def test_what_waits_behind_it_is_in_the_metrics_within_seconds(
    store: Datastore, monkeypatch: pytest.MonkeyPatch, is_told: bool
) -> None:
    """Control of the timeout: without one it hangs. Control of the metric: a loop that hangs says that all is well."""
    if not is_told:
        monkeypatch.setattr(Consumer, "tell_lag", lambda _consumer, _heads: None)
    is_over = threading.Event()
    with hanging(Notebook(), None, is_over) as billing, working(store, [billing, noting(Notebook(), name="other")]):
        try:
            wait_until("it hangs", lambda: gauge(billing, "schemaless_trigger_call_seconds") > 0)
            store.put_cells([Cell(uuid4(), "BASE", 1, "more") for _ in range(50)])

            wait_until("its age is seen", lambda: gauge(billing, "schemaless_trigger_call_seconds") > 3.0, 10)

            lag = gauge(billing, "schemaless_trigger_lag_cells", shard="0")
            (status,) = store.triggers.status(billing.name)
            assert (lag == status.lag_cells >= 50) if is_told else lag < 50
            assert parked(store, billing) == []
        finally:
            is_over.set()
