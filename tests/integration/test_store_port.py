"""The port of the hand-over on Schemaless: who is refused, what is copied, what is yet to be mirrored back (I9)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any
from unittest.mock import patch
from uuid import UUID, uuid4

import pytest

from schemaless_core import (
    BatchFailed,
    Cell,
    CellConflict,
    CellStore,
    ColumnKey,
    Datastore,
    InvalidCell,
    NodeUnavailable,
    SchemalessError,
    SchemaMissing,
    ShardStatus,
    StaleEpoch,
)
from schemaless_core.engine.groups import GroupStep, ParkedCell
from tests.chaos.actors import wait_until
from tests.factories import keys_in
from tests.indexing import catch_up
from tests.stores import Stores
from tripstore.backends.schemaless.shards import REVERSE_GROUP, Shards
from tripstore.handover.ports import REFUSED, StorePort
from tripstore.ports.store import SchemalessPort

SHARDS = 4
INDEX = {"table": "by_city", "column_defs": [{"column_key": "BASE", "fields": [{"field": "city", "type": "string"}]}]}
CITY = "Aarhus"
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="session")
def stores(stores: Stores) -> Stores:
    """On servers with replicas."""
    return stores.replicated


@pytest.fixture
def config(datastore_engine: str, stores: Stores) -> dict[str, Any]:
    return stores.config(datastore_engine, shards=SHARDS, indexes=[INDEX])


@pytest.fixture
def store(config: dict[str, Any]) -> Iterator[Datastore]:
    with Datastore.open(config) as opened:
        opened.create_schema(status=ShardStatus.COPY)
        yield opened


@pytest.fixture
def refused() -> list[tuple[Cell, SchemalessError]]:
    return []


@pytest.fixture
def port(store: Datastore, refused: list[tuple[Cell, SchemalessError]]) -> StorePort:
    return SchemalessPort(store, lambda cell, why: refused.append((cell, why)))


def trip(store: Datastore, shard: int, ref_key: int = 1, body: str = CITY) -> Cell:
    return Cell(next(keys_in(store, shard)), "BASE", ref_key, {"city": body})


def one_of_each(store: Datastore) -> list[Cell]:
    return [trip(store, shard) for shard in range(SHARDS)]


def open_all(port: StorePort, epoch: int) -> None:
    assert [port.open(server, epoch, None) for server in port.servers] == [True] * len(port.servers)


def close_all(port: StorePort, epoch: int) -> None:
    assert [port.close(server, epoch) for server in port.servers] == [True] * len(port.servers)


#: Everything that an authority answers; the cells are one of each shard.
READS: dict[str, Callable[[CellStore, list[Cell]], object]] = {
    "get_cell": lambda store, cells: store.get_cell(*cells[0].key),
    "get_cell_latest": lambda store, cells: store.get_cell_latest(cells[0].row_key, "BASE"),
    "get_cells": lambda store, cells: store.get_cells([cell.key for cell in cells]),
    "get_cells_latest": lambda store, cells: store.get_cells_latest([ColumnKey(c.row_key, "BASE") for c in cells]),
    "get_row": lambda store, cells: store.get_row(cells[0].row_key),
    "get_row, columns": lambda store, cells: store.get_row(cells[0].row_key, ["BASE", "NOTES"]),
    "get_history": lambda store, cells: store.get_history(cells[0].row_key, "BASE"),
    "query_index": lambda store, cells: store.query_index("by_city", CITY),
    "query_index, columns": lambda store, cells: store.query_index("by_city", CITY, columns=["BASE"]),
    "query_index, rows": lambda store, cells: store.query_index("by_city", CITY, columns="*"),
    "query_index, verified": lambda store, cells: store.query_index("by_city", CITY, consistency="verified"),
    "get_cells_for_shard": lambda store, cells: store.get_cells_for_shard(0, 0, 10),
    "get_cells_for_shard, time": lambda store, cells: store.get_cells_for_shard(0, LONG_AGO, 10),
    "get_cells_for_shards": lambda store, cells: store.get_cells_for_shards(dict.fromkeys(range(SHARDS), 0), 10),
    "scan_rows": lambda store, cells: store.scan_rows(0),
    "checksum": lambda store, cells: store.checksum(0),
    "replica": lambda store, cells: store.using(read="replica").get_cell_latest(cells[0].row_key, "BASE"),
    "replica, many": lambda store, cells: store.using(read="replica").get_cells([cell.key for cell in cells]),
}
WRITES: dict[str, Callable[[CellStore, list[Cell]], object]] = {
    "put_cell": lambda store, cells: store.put_cell(cells[0].row_key, "NOTES", 1, "new"),
    "put_cell, expecting": lambda store, cells: store.put_cell(cells[0].row_key, "NOTES", 1, "new", expect_latest=None),
    "put_cell, again": lambda store, cells: store.put_cell(*cells[0].key, cells[0].body),
    "append_cell": lambda store, cells: store.append_cell(cells[0].row_key, "NOTES", "new"),
}


def test_every_operation_is_answered_by_the_open_authority_alone(store: Datastore, port: StorePort) -> None:
    cells = one_of_each(store)
    assert port.copy(cells, 0) == tuple(cells)
    catch_up(store)

    def is_refused(do: Callable[[CellStore, list[Cell]], object], epoch: int) -> bool:
        return port.call(lambda s: do(s, cells), epoch) is REFUSED

    def refusals(epoch: int) -> dict[str, bool]:
        return {name: is_refused(do, epoch) for name, do in (READS | WRITES).items()}

    everything = dict.fromkeys(READS | WRITES)
    with patch.object(store._places, "learn", side_effect=AssertionError("who is the authority places do not say")):
        assert refusals(0) == dict.fromkeys(everything, True)
        open_all(port, 2)
        assert refusals(2) == dict.fromkeys(everything, False)
        assert refusals(0) == refusals(4) == dict.fromkeys(everything, True)
        close_all(port, 3)
        assert refusals(2) == refusals(3) == dict.fromkeys(everything, True)
        open_all(port, 4)
        assert refusals(2) == refusals(3) == dict.fromkeys(everything, True)
        assert refusals(4) == dict.fromkeys(everything, False)


def test_copiers_read_a_closed_store(datastore_engine: str, stores: Stores, store: Datastore, port: StorePort) -> None:
    cells = one_of_each(store)
    port.copy(cells, 0)
    catch_up(store)
    stores.wait_for_replicas(datastore_engine)
    open_all(port, 2)
    close_all(port, 3)

    for name, read in READS.items():
        found = read(store.as_copier(3), cells)
        assert found is not None, name
    page = store.as_copier(3).query_index("by_city", CITY, columns=["BASE"])
    assert {entry.row_key for entry in page.entries} == {cell.row_key for cell in cells}


@pytest.mark.parametrize("consistency", ["fast", "verified"])
@pytest.mark.parametrize("closed", ["a", "b"])
def test_an_index_query_counts_only_if_all_its_parts_do(
    store: Datastore, port: StorePort, closed: str, consistency: Any
) -> None:
    """Its entries are on one server, its rows on both."""
    port.copy(one_of_each(store), 0)
    catch_up(store)
    open_all(port, 2)
    port.close(closed, 3)

    asked = port.call(lambda s: s.query_index("by_city", CITY, columns=["BASE"], consistency=consistency), 2)

    assert asked is REFUSED


def test_entries_are_written_right_after_the_commit_of_every_put(store: Datastore, port: StorePort) -> None:
    """No worker serves the index's group here."""

    def rows(epoch: int) -> set[UUID]:
        return {entry.row_key for entry in store.as_copier(epoch).query_index("by_city", CITY, limit=100).entries}

    copied, owned = one_of_each(store), one_of_each(store)
    port.copy(copied, 0)
    wait_until("the copies' entries are there", lambda: rows(0) == {cell.row_key for cell in copied})
    open_all(port, 2)
    port.call(lambda s: s.put_cells(owned), 2)
    wait_until("the owner's, too", lambda: rows(2) == {cell.row_key for cell in copied + owned})


def test_a_refusal_is_told_at_once_and_without_a_repeat(store: Datastore, port: StorePort) -> None:
    cells = one_of_each(store)
    port.copy(cells, 0)
    patient = store.using(deadline=30).as_owner(2)

    started = time.monotonic()
    for calls in (READS, WRITES):
        for do in calls.values():
            with pytest.raises(StaleEpoch) as raised:
                do(patient, cells)
            assert raised.value.is_of_authority
    with pytest.raises(BatchFailed) as failed:
        patient.put_cells(cells)
    assert all(isinstance(each, StaleEpoch) and each.is_of_authority for each in failed.value.results)
    assert time.monotonic() - started < 5


def test_a_batch_that_is_stored_in_part_says_so(store: Datastore, port: StorePort) -> None:
    cells = one_of_each(store)
    store.authority.open("a", 2)

    with pytest.raises(BatchFailed) as failed:
        port.call(lambda s: s.put_cells(cells), 2)

    refusals = [isinstance(each, StaleEpoch) and each.is_of_authority for each in failed.value.results]
    on_b = set(store.schema.plan().topology.shards_of("b"))
    assert refusals == [store.shard_of(cell.row_key) in on_b for cell in cells]


def test_an_unfenced_owner_learns_the_authority_epoch(store: Datastore, port: StorePort) -> None:
    cell = trip(store, 0)
    with pytest.raises(StaleEpoch):
        store.put_cell(*cell.key, cell.body)

    for epoch in (2, 4):
        open_all(port, epoch)
        store.put_cell(cell.row_key, "BASE", epoch, "found out")
        close_all(port, epoch + 1)

    assert [found.ref_key for found in store.get_history(cell.row_key, "BASE")] == [4, 2]


def test_what_is_there_is_copied_and_what_can_never_be_is_told(
    store: Datastore, port: StorePort, refused: list[tuple[Cell, SchemalessError]]
) -> None:
    new, equal, other = one_of_each(store)[:3]
    unfit = Cell(uuid4(), "", 1, "no column")
    port.copy([equal, other], 0)
    conflict = Cell(*other.key, "another body")

    assert port.copy([conflict, new, unfit, equal, new], 0) == (new, equal, new)

    assert {(cell.key, type(why)) for cell, why in refused} == {(conflict.key, CellConflict), (unfit.key, InvalidCell)}
    assert store.get_cell(*other.key) == other
    assert port.copy([], 0) == port.copy([unfit], 0) == ()


def test_shards_of_a_later_epoch_take_no_copies(
    store: Datastore, port: StorePort, refused: list[tuple[Cell, SchemalessError]]
) -> None:
    """They may come again: nothing is said of them."""
    cells = one_of_each(store)
    on_a = set(store.schema.plan().topology.shards_of("a"))
    store.authority.open("a", 2)

    copied = port.copy(cells, 1)

    assert copied == tuple(cell for cell in cells if store.shard_of(cell.row_key) not in on_a)
    assert port.copy(cells, 2) == tuple(cells)
    assert refused == []


def test_a_server_that_hangs_keeps_no_other_shut(
    store: Datastore, port: StorePort, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I9, after the decision: callers of the others need not wait for it."""
    let_go = threading.Event()
    open_one = Shards.open

    def opened(shards: Shards, cluster: str, epoch: int, said: bytes | None) -> bool:
        return (cluster != "a" or let_go.wait(30)) and open_one(shards, cluster, epoch, said)

    monkeypatch.setattr(Shards, "open", opened)
    waiting = threading.Thread(target=port.open, args=("a", 2, None))
    waiting.start()
    cell = next(cell for cell in one_of_each(store) if store.shard_of(cell.row_key) >= SHARDS // 2)
    owner = store.as_owner(2)
    until = time.monotonic() + 20
    while True:
        try:
            owner.put_cell(*cell.key, cell.body)
            break
        except StaleEpoch:
            assert time.monotonic() < until
    assert not let_go.is_set()
    let_go.set()
    waiting.join()


@pytest.mark.parametrize("datastore_engine", ["sqlite", "mariadb"], indirect=True)
def test_a_server_that_does_not_answer_has_not_acknowledged(
    store: Datastore, config: dict[str, Any], datastore_engine: str
) -> None:
    cells = one_of_each(store)
    nowhere = "sqlite:////nowhere/at/all" if datastore_engine == "sqlite" else "mysql://root@127.0.0.1:1"
    clusters = config["clusters"] | {"b": {"primary": nowhere}}
    with Datastore.open(config | {"clusters": clusters}) as half:
        port = SchemalessPort(half, lambda cell, why: None)
        assert port.copy(cells, 0) == tuple(c for c in cells if store.shard_of(c.row_key) < SHARDS // 2)

        assert [port.open(server, 2, None) for server in port.servers] == [True, False]
        assert [port.close(server, 3) for server in port.servers] == [True, False]
        assert port.unmirrored("a") == 2
        with pytest.raises((NodeUnavailable, SchemaMissing)):
            port.unmirrored("b")
        seen = half.authority.find()
        assert seen is not None
        assert (seen.epoch, seen.shards_seen) == (3, SHARDS // 2)


def test_a_cluster_without_shards_has_nothing_to_close(datastore_engine: str, stores: Stores) -> None:
    with Datastore.open(stores.config(datastore_engine, shards=1)) as store:
        store.create_schema(status=ShardStatus.COPY)
        port = SchemalessPort(store, lambda cell, why: None)

        open_all(port, 2)
        close_all(port, 3)
        assert [port.unmirrored(server) for server in port.servers] == [0, 0]


def test_the_reverse_mirror_has_yet_to_pass_what_follows_its_offsets(store: Datastore, port: StorePort) -> None:
    cells = [trip(store, shard, body=f"{n}") for shard in range(SHARDS) for n in range(5)]
    port.copy(cells, 0)
    assert sum(map(port.unmirrored, port.servers)) == 20  # no worker has begun

    store.triggers.register_group(REVERSE_GROUP, "now")
    assert sum(map(port.unmirrored, port.servers)) == 0
    port.copy(one_of_each(store), 0)
    assert sum(map(port.unmirrored, port.servers)) == SHARDS

    store.triggers.offsets.claim(REVERSE_GROUP, {0: 7})
    store.triggers.offsets.advance(REVERSE_GROUP, {0: GroupStep(7, 1, 6, 1)})
    assert sum(map(port.unmirrored, port.servers)) == SHARDS - 1


def test_a_parked_cell_is_not_mirrored(store: Datastore, port: StorePort) -> None:
    """An offset passes what it sets aside; the way back must not."""
    cell = trip(store, 0)
    port.copy([cell], 0)
    store.triggers.register_group(REVERSE_GROUP, "beginning")
    store.triggers.offsets.claim(REVERSE_GROUP, {0: 7})
    parked = ParkedCell(1, cell.row_key.bytes, b"BASE", 1, 5, False, "Postgres refuses it", 60.0)

    store.triggers.offsets.advance(REVERSE_GROUP, {0: GroupStep(7, 1, 1, 1, (parked,))})

    assert [port.unmirrored(server) for server in port.servers] == [1, 0]
