"""Triggers while the store is a mirror: what they are given, and which of them wait until it is the authority (I7)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID, uuid4

import pytest

from schemaless_core import Cell, CellStore, Datastore, MemoryStore, ShardStatus
from schemaless_core.triggers.registry import Trigger, trigger
from tests.chaos.actors import wait_until
from tests.crew import Notebook, noting, quick, wait_until_caught_up, working
from tests.stores import Stores

SHARDS = 4


@pytest.fixture
def store(datastore_engine: str, stores: Stores) -> Iterator[Datastore]:
    with Datastore.open(stores.config(datastore_engine, shards=SHARDS, triggers=quick())) as opened:
        opened.create_schema(status=ShardStatus.COPY)
        yield opened


def open_all(store: Datastore, epoch: int) -> None:
    for name in store.clusters:
        store.authority.open(name, epoch)


def close_all(store: Datastore, epoch: int) -> None:
    acknowledged = [store.authority.close(name, epoch) for name in store.clusters]
    assert all(acknowledged)


def billing(calls: list[UUID]) -> Trigger:
    """Its puts join the commit of its offset."""

    @trigger(column="BASE", start="beginning", transactional=True, name="billing")
    def bill(row_key: UUID, store: CellStore) -> None:
        calls.append(row_key)
        store.put_cell(row_key, "BILL", 1, "billed")

    return bill


@contextmanager
def serving(store: Datastore, triggers: list[Trigger], given: CellStore) -> Iterator[None]:
    """A worker whose functions are given another store."""
    worker = store.triggers.worker(triggers, store=given)
    running = threading.Thread(target=worker.run)
    running.start()
    try:
        yield
    finally:
        worker.stop()
        running.join(60)


def copied(store: Datastore, count: int = 20) -> list[UUID]:
    cells = [Cell(uuid4(), "BASE", 1, n) for n in range(count)]
    store.as_copier(99).put_cells(cells)
    return [cell.row_key for cell in cells]


def test_transactional_triggers_wait_until_the_store_is_the_authority(
    store: Datastore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "schemaless_core.triggers")
    calls, notebook = list[UUID](), Notebook()
    rows = copied(store)

    with working(store, [billing(calls), noting(notebook)]):
        wait_until_caught_up(store, "noted")  # others are served all the same
        (status,) = store.triggers.status("billing")
        assert calls == []
        assert [(shard.added_id, shard.state) for shard in status.shards] == [(0, "COPY")] * SHARDS
        assert (status.parked, status.lag_cells) == (0, 20)
        wait_until("it is said", lambda: "waits until this store is the authority" in caplog.text)

        open_all(store, 2)
        wait_until_caught_up(store, "billing")
        assert sorted(calls) == sorted(rows)
        assert {shard.state for shard in store.triggers.status("billing")[0].shards} == {"RW"}
        assert "goes on: this store is the authority" in caplog.text

        close_all(store, 3)
        rows += copied(store)
        wait_until_caught_up(store, "noted")
        open_all(store, 4)
        wait_until_caught_up(store, "billing")

    # Who is called in the moment of closing is called again.
    assert set(calls) == set(rows)
    assert [len(store.get_history(row, "BILL")) for row in rows] == [1] * len(rows)
    assert store.triggers.parked("billing") == []


def test_functions_are_given_the_store_that_the_worker_is_given(datastore: Datastore) -> None:
    given, told = MemoryStore(shards=SHARDS), list[object]()
    elsewhere = uuid4()

    @trigger(column="BASE", start="beginning", name="plain")
    def plain(row_key: UUID, store: CellStore) -> None:
        told.append(store)
        store.put_cell(row_key, "SEEN", 1, "plain")

    @trigger(column="BASE", start="beginning", name="joined", transactional=True)
    def joined(row_key: UUID, store: CellStore) -> None:
        store.put_cell(row_key, "BILL", 1, "joins the commit")
        store.put_cell(elsewhere, "BILL", 1, "another row's goes through")

    row = uuid4()
    datastore.put_cell(row, "BASE", 1, "x")
    with serving(datastore, [plain, joined], given):
        wait_until_caught_up(datastore, "plain")
        wait_until_caught_up(datastore, "joined")

    assert set(map(id, told)) == {id(given)}
    assert given.get_cell(row, "SEEN", 1) is not None
    assert datastore.get_cell(row, "SEEN", 1) is None
    assert datastore.get_cell(row, "BILL", 1) is not None
    assert given.get_cell(row, "BILL", 1) is None
    assert given.get_cell(elsewhere, "BILL", 1) is not None
    assert datastore.get_cell(elsewhere, "BILL", 1) is None


def test_offsets_are_saved_at_once_for_the_switcher_that_has_closed_the_shards(
    datastore_engine: str, stores: Stores
) -> None:
    """A hand-over waits for them while writers are shut out."""
    patient = {**quick(), "checkpoint_seconds": 3600.0}
    with Datastore.open(stores.config(datastore_engine, shards=SHARDS, triggers=patient)) as store:
        store.create_schema(status=ShardStatus.COPY)
        open_all(store, 2)
        with working(store, [noting(notebook := Notebook())]):
            rows = copied(store)
            wait_until("all is delivered", lambda: len(notebook.cells) == len(rows))
            (status,) = store.triggers.status("noted")
            assert status.lag_cells, "there is nothing to wait for"
            close_all(store, 100)
            wait_until_caught_up(store, "noted")
