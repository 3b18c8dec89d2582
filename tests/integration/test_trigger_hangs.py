"""A function that never returns: it is seen, its cell is set aside, and the others go on (I7)."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from uuid import uuid4

import pytest
from prometheus_client import REGISTRY

from schemaless_core import Cell, Datastore
from schemaless_core.triggers.claims import Claims
from schemaless_core.triggers.registry import Trigger, trigger
from schemaless_core.triggers.worker import Worker
from tests.chaos.actors import wait_until
from tests.crew import Notebook, noting, quick, wait_until_caught_up, working
from tests.scale import scaled
from tests.stores import Stores

BODIES = range(5)
#: The function hangs for this one.
POISON = 2
#: Whose way to another group is measured.
CELLS = scaled(2_000, short=100)
#: Within which the gauge of what waits is right.
LAG_SECONDS = 5.0
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


def lag_of(group: Trigger) -> float:
    return gauge(group, "schemaless_trigger_lag_cells", shard="0")


def parked(store: Datastore, group: Trigger) -> list[tuple[int, int]]:
    return [(row.added_id, row.attempts) for row in store.triggers.parked(group.name)]


@pytest.mark.parametrize("is_transactional", [False, True])
def test_its_cell_is_parked_and_the_next_worker_goes_on_with_every_group(
    store: Datastore, datastore_engine: str, is_transactional: bool
) -> None:
    billed, others, ended, is_over = Notebook(), Notebook(), threading.Event(), threading.Event()
    with hanging(billed, 0.4, is_over, is_transactional=is_transactional) as billing:
        triggers = [billing, noting(others, name="other")]
        worker = store.triggers.worker(triggers, hung=ended.set)
        running = threading.Thread(target=worker.run, daemon=True)
        started = time.monotonic()
        running.start()
        assert ended.wait(20), "the worker was to be ended"
        found_seconds = time.monotonic() - started
        print(f"{datastore_engine}: with a timeout of 0.4 s the worker is to end {found_seconds:.2f} s after it began")
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
    store: Datastore, datastore_engine: str, monkeypatch: pytest.MonkeyPatch, is_told: bool
) -> None:
    """Control of the timeout: without one it hangs. Control of the metrics: a loop that hangs says that all is well."""
    if not is_told:
        monkeypatch.setattr(Claims, "tell_lag", lambda _claims, _heads: None)
        monkeypatch.setattr(Claims, "tell_oldest", lambda _claims, _log: None)
    is_over = threading.Event()
    with hanging(Notebook(), None, is_over) as billing, working(store, [billing]):
        try:
            wait_until("it hangs", lambda: gauge(billing, "schemaless_trigger_call_seconds") > 0)
            store.put_cells([Cell(uuid4(), "BASE", 1, "more") for _ in range(50)])
            put_at = time.monotonic()
            if is_told:
                wait_until("what waits is seen", lambda: lag_of(billing) >= 50, LAG_SECONDS)
                print(f"{datastore_engine}: the gauge of what waits is right after {time.monotonic() - put_at:.2f} s")

            wait_until("its age is seen", lambda: gauge(billing, "schemaless_trigger_call_seconds") > 3.0, 10)

            lag = lag_of(billing)
            oldest_seconds = gauge(billing, "schemaless_trigger_oldest_seconds")
            (status,) = store.triggers.status(billing.name)
            assert (lag == status.lag_cells >= 50) if is_told else lag < 50
            assert oldest_seconds == pytest.approx(status.lag_seconds, abs=5.0) if is_told else oldest_seconds == 0
            assert oldest_seconds > 2.0 or not is_told
            assert parked(store, billing) == []
        finally:
            is_over.set()
            wait_until("nothing is old", lambda: gauge(billing, "schemaless_trigger_oldest_seconds") == 0.0)


class Delays:
    """How long cells take from their put to another group's function."""

    def __init__(self, store: Datastore, name: str) -> None:
        self._store = store
        self._called: dict[str, float] = {}

        @trigger(column="TIMED", start="now", name=name)
        def timed(cell: Cell) -> None:
            self._called[str(cell.body)] = time.monotonic()

        self.group = timed

    def measured(self, count: int) -> list[float]:
        """Of so many cells, put one after the other; those that are not delivered within a second are left out."""
        put: dict[str, float] = {}
        for _ in range(count):
            body = str(uuid4())
            put[body] = time.monotonic()
            self._store.put_cell(uuid4(), "TIMED", 1, body)
            with suppress(AssertionError):
                wait_until("it is delivered", lambda body=body: body in self._called, 1)
        return sorted(self._called[body] - at for body, at in put.items() if body in self._called)


def p99_of(seconds: Sequence[float]) -> float:
    return seconds[len(seconds) * 99 // 100]


@pytest.mark.parametrize("is_apart", [True, False])
def test_the_other_groups_of_its_worker_go_on_as_before(
    store: Datastore,
    datastore_engine: str,
    monkeypatch: pytest.MonkeyPatch,
    is_apart: bool,
) -> None:
    """Control: with one thread for all groups the others stand still."""
    if not is_apart:
        monkeypatch.setattr(Worker, "_pool_of", lambda _worker, _group, **_is_alone: None)
    alone, beside, is_over = Delays(store, "alone"), Delays(store, "beside"), threading.Event()
    with working(store, [alone.group, noting(Notebook(), name="idle")]):
        wait_until_caught_up(store, "alone")
        before = alone.measured(CELLS)
    with hanging(Notebook(), None, is_over) as billing, working(store, [billing, beside.group]):
        try:
            wait_until("it hangs", lambda: gauge(billing, "schemaless_trigger_call_seconds") > 0)
            during = beside.measured(CELLS if is_apart else 1)
        finally:
            is_over.set()
    if not is_apart:
        assert during == []
        return
    assert len(during) == CELLS
    told = f"{p99_of(during) * 1000:.1f} ms, without it {p99_of(before) * 1000:.1f} ms"
    print(f"{datastore_engine}: other groups' delivery, p99 of {CELLS}, beside a function that hangs: {told}")
    assert p99_of(during) < p99_of(before) + 0.25
