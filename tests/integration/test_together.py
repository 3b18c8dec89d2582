"""Cells of one row that are put together, on every engine: by one commit, all or none, if the row is as it was seen."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from uuid import UUID, uuid4

import pytest

from schemaless_core import Cell, Datastore, InvalidRequest, ShardStatus
from schemaless_core.calls.puts import CELLS_TOGETHER
from schemaless_core.cell.answers import Position
from schemaless_core.errors import StaleEpoch
from tests.chaos.actors import Tailer, check_log
from tests.factories import keys_in
from tests.stores import ServerEngine, Stores

COLUMNS = ("BASE", "NOTES", "STATUS")


def cells_of(row_key: UUID, ref_key: int = 1, count: int = len(COLUMNS)) -> list[Cell]:
    return [Cell(row_key, COLUMNS[n % 3], ref_key + n, None) for n in range(count)]


def seen(store: Datastore, row_key: UUID) -> Position:
    return store.end_of_log(store.shard_of(row_key))


def log(store: Datastore, row_key: UUID) -> list[Cell]:
    return store.get_cells_for_shard(store.shard_of(row_key), 0, CELLS_TOGETHER).cells


@pytest.mark.parametrize("count", [1, 3, 200])
def test_all_of_them_are_in_the_log_in_their_order_and_nothing_between_them(datastore: Datastore, count: int) -> None:
    row_key, cells = (key := uuid4()), cells_of(key, count=count)
    datastore.put_cell(row_key, "FREE", 1, "seen")
    position = seen(datastore, row_key)

    results = datastore.put_together(cells, position)

    assert results is not None
    assert [result.added_id for result in results] == [position.added_id + 1 + n for n in range(count)]
    assert {result.status for result in results} == {"CREATED"}
    assert log(datastore, row_key)[-count:] == cells
    assert seen(datastore, row_key).added_id == position.added_id + count


@pytest.mark.parametrize("count", [3, 200])
def test_none_is_stored_when_the_row_has_got_a_cell_meanwhile(datastore: Datastore, count: int) -> None:
    row_key = uuid4()
    position = seen(datastore, row_key)
    datastore.put_cell(row_key, "FREE", 1, "not seen")
    before = log(datastore, row_key)

    assert datastore.put_together(cells_of(row_key, count=count), position) is None

    assert log(datastore, row_key) == before
    assert datastore.put_together(cells_of(row_key, count=count), seen(datastore, row_key)) is not None


@pytest.mark.parametrize("count", [3, 200])
@pytest.mark.parametrize("taken", [0, -1])
def test_none_is_stored_when_one_of_their_keys_is_taken(datastore: Datastore, count: int, taken: int) -> None:
    row_key, cells = (key := uuid4()), cells_of(key, count=count)
    datastore.put_cell(*cells[taken].key, "taken")
    before = log(datastore, row_key)

    assert datastore.put_together(cells, seen(datastore, row_key)) is None

    assert log(datastore, row_key) == before
    datastore.put_cell(uuid4(), "BASE", 1, "the counter stands where it should")
    tailer = Tailer(datastore)
    tailer.catch_up()
    assert check_log(tailer.delivered) == len(before) + 1


def test_what_other_rows_get_meanwhile_is_their_own_affair(datastore: Datastore) -> None:
    row_key = uuid4()
    position = seen(datastore, row_key)
    other = next(keys_in(datastore, datastore.shard_of(row_key)))
    datastore.put_cell(other, "BASE", 1, "another row's")

    assert datastore.put_together(cells_of(row_key), position) is not None


def test_a_replica_that_is_behind_says_not_where_the_log_ends(server_engine: ServerEngine, stores: Stores) -> None:
    store, row_key = stores.replicated.fresh(server_engine, shards=1), uuid4()
    at_replica = store.using(read="replica")
    with stores.replicated.not_applying(server_engine):
        store.put_cell(row_key, "FREE", 1, "the replica does not have it yet")
        assert at_replica.get_cell_latest(row_key, "FREE") is None
        assert seen(at_replica, row_key) == seen(store, row_key)
        assert seen(at_replica, row_key).added_id == 1


def test_of_many_who_saw_the_same_one_is_taken(datastore: Datastore) -> None:
    row_key = uuid4()
    position = seen(datastore, row_key)
    stores = [datastore.using(deadline=20.0) for _ in range(6)]

    with ThreadPoolExecutor(6) as threads:
        results = list(
            threads.map(lambda n: stores[n].put_together(cells_of(row_key, 1 + 100 * n), position), range(6))
        )

    assert sum(result is not None for result in results) == 1
    assert len(log(datastore, row_key)) == len(COLUMNS)


def test_what_was_seen_before_a_promotion_says_nothing(datastore: Datastore) -> None:
    row_key = uuid4()
    older = replace(seen(datastore, row_key), epoch=seen(datastore, row_key).epoch + 1)
    assert datastore.put_together(cells_of(row_key), older) is None
    assert log(datastore, row_key) == []


def test_i9_a_mirror_refuses_an_owners(datastore_engine: str, stores: Stores) -> None:
    with Datastore.open(stores.config(datastore_engine, shards=4)) as store:
        store.create_schema(status=ShardStatus.COPY)
        row_key = uuid4()
        position = seen(store, row_key)
        with pytest.raises(StaleEpoch):
            store.put_together(cells_of(row_key), position)
        assert log(store, row_key) == []
        assert store.as_copier().put_together(cells_of(row_key), position) is not None


def test_only_cells_of_one_row_and_not_too_many_are_put_together(datastore: Datastore) -> None:
    row_key = uuid4()
    position = seen(datastore, row_key)
    many = cells_of(row_key, count=CELLS_TOGETHER + 1)
    for wrong in ([], [*cells_of(row_key), Cell(uuid4(), "BASE", 1, None)], cells_of(row_key) * 2, many):
        with pytest.raises(InvalidRequest):
            datastore.put_together(wrong, position)
    assert datastore.using(deadline=20.0).put_together(many[:-1], position) is not None
