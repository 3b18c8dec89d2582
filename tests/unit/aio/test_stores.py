"""The stores for asyncio have the verbs of the protocol, and close as the stores below them do."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import uuid4

import pytest

import tripstore.aio
from schemaless_core import CellStore, Datastore, JointStore, MemoryStore, StoreClosed
from schemaless_core.aio import AsyncCellStore, CallThreads, ThreadLimits
from schemaless_core.aio import Datastore as AsyncDatastore
from tests.models import imported, written
from tests.unit.test_protocol import VERBS, defaults, parameters
from tests.unit.typed.conftest import DRIVERS
from tripstore.aio import AsyncTripStore, AsyncTypedColumn, AsyncTypedIndex
from tripstore.store import TripStore
from tripstore.typed import TypedColumn, TypedIndex

NOT_AWAITED = {"shard_of", "using", "typed", "at_authority"}


def config(folder: Path) -> dict[str, Any]:
    return {"datastore": "trips", "shards": 2, "clusters": {"a": {"primary": f"sqlite:///{folder}"}}}


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_has_the_parameters_of_the_protocol_and_is_awaited(verb: str) -> None:
    method = getattr(AsyncCellStore, verb)

    assert parameters(method) == parameters(getattr(CellStore, verb))
    assert inspect.iscoroutinefunction(method) == (verb not in NOT_AWAITED)
    if verb != "using":  # it keeps what is not named
        assert defaults(method) == defaults(getattr(CellStore, verb))


@pytest.mark.parametrize(
    ("above", "below", "names"),
    [
        (AsyncDatastore, JointStore, {"end_of_log", "put_together"}),
        (AsyncDatastore, Datastore, {"first_rows"}),
        (AsyncTripStore, TripStore, {"resolve_id", "resolve_ids", "legacy_id", "legacy_ids", "typed", "at_authority"}),
        (AsyncTypedColumn, TypedColumn, {name for name in vars(TypedColumn) if not name.startswith("_")}),
        (AsyncTypedIndex, TypedIndex, {"query"}),
    ],
)
def test_what_a_store_does_besides_is_awaited_with_the_same_parameters(above: Any, below: Any, names: set[str]) -> None:
    for name in names:
        assert parameters(getattr(above, name)) == parameters(getattr(below, name))
        assert defaults(getattr(above, name)) == defaults(getattr(below, name))
        assert inspect.iscoroutinefunction(getattr(above, name)) == (name not in NOT_AWAITED)


def test_a_closed_store_refuses_calls(tmp_path: Path) -> None:
    async def ask() -> None:
        async with AsyncDatastore.open(config(tmp_path)) as store:
            await store.create_schema()
            row = uuid4()
            await store.put_cell(row, "BASE", 1, {"n": 1})
            assert (await store.get_row(row)).keys() == {"BASE"}
            assert store.shard_of(row) in (0, 1)
        with pytest.raises(StoreClosed):
            await store.using(deadline=1.0).get_cell(row, "BASE", 1)

    asyncio.run(ask())


def test_connect_has_as_many_threads_as_connections(tmp_path: Path) -> None:
    store = tripstore.aio.connect({**config(tmp_path), "pool": {"size": 5, "overflow": 1, "reads": 2}}, wait_seconds=3)

    assert store.threads.limits == ThreadLimits(threads=6, writers=4, wait_seconds=3)
    assert store.using(deadline=2.0).threads is store.threads
    assert repr(store).startswith("<AsyncTripStore over <TripStore")
    asyncio.run(store.close())


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return imported(written(None, [DRIVERS]), tmp_path_factory.mktemp("models"))


def test_typed_rows_are_awaited(models: ModuleType) -> None:
    memory = MemoryStore(shards=2, indexes=[DRIVERS], lagging_indexes=False)
    store = AsyncCellStore(memory, CallThreads(ThreadLimits(2, 1)))

    async def ask() -> None:
        trips: AsyncTypedColumn[Any] = tripstore.aio.typed(store, models.TripBase)
        drivers: AsyncTypedIndex[Any] = AsyncTypedIndex(store, models.DriverIndex)
        row, driver = uuid4(), uuid4()
        trip = models.TripBase(row_key=row, ref_key=1, driver_uuid=driver)
        await trips.put(trip)
        await trips.put_many([models.TripBase(row_key=uuid4(), ref_key=1, driver_uuid=driver)])

        assert await trips.latest(row) == await trips.at(row, 1) == trip
        assert await trips.latest_of([row]) == await trips.history(row) == [trip]
        assert len((await trips.query(models.DriverIndex, driver)).rows) == 2
        assert len((await drivers.query(driver, limit=1)).rows) == 1
        await trips.delete(row, 2, expect_latest=1)
        assert await trips.latest(row) is None

    asyncio.run(ask())
