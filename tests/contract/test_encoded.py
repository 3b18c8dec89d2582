"""Many cells at once whose bodies are canonical bytes: the same promises as of `put_cells`, on every engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol
from uuid import UUID, uuid4

import pytest

from schemaless_core import Cell, CellConflict, CellStore, Datastore, EncodedCell, EncodedOutcome, InvalidCell, Json
from schemaless_core.calls.packets import CELLS_PER_PACKET, CELLS_PER_SHARD, lanes_of, packets
from schemaless_core.cell.encoded import decode_cell, encode_cell
from schemaless_core.cell.sharding import shard_of
from schemaless_core.engine.base import BYTES_PER_BATCH
from schemaless_core.errors import StaleEpoch
from schemaless_core.servers.routing import Router
from tests.factories import make_cell, make_trip
from tests.stores import STORE_ENGINES, ServerEngine, Stores

SHARDS = 8
MANY = 1 << 20


class EncodedStore(CellStore, Protocol):
    """A cell store that takes cells as they are stored."""

    def put_encoded(self, cells: Sequence[EncodedCell]) -> EncodedOutcome: ...

    def find_unequal(self, cells: Sequence[EncodedCell]) -> list[int]: ...


every_engine = pytest.mark.parametrize("cell_store", STORE_ENGINES, indirect=True)


def encoded(cell: Cell) -> EncodedCell:
    return encode_cell(cell, MANY)


def keys_of(shard: int) -> Iterator[UUID]:
    while True:
        if shard_of(key := uuid4(), SHARDS) == shard:
            yield key


def log_of(store: CellStore) -> list[Cell]:
    return [cell for shard in range(SHARDS) for cell in store.get_cells_for_shard(shard, 0, 10_000).cells]


@every_engine
def test_what_is_put_encoded_is_read_as_if_it_had_been_put(store: EncodedStore) -> None:
    bodies: list[Json] = [make_trip(1), None, [1.5, "é", {"b": 1, "a": None}], "a\\'\"\0b"]
    cells = [make_cell(body=body) for body in bodies]

    outcome = store.put_encoded(list(map(encoded, cells)))

    assert outcome == EncodedOutcome(len(cells), 0)
    assert store.get_cells([cell.key for cell in cells]) == cells
    assert store.put_cells(cells)[0].status == "EXISTS"


@every_engine
def test_i4_a_batch_that_is_put_again_exists(store: EncodedStore) -> None:
    cells = [encoded(make_cell()) for _ in range(20)]
    store.put_encoded(cells[:12])

    assert store.put_encoded(cells) == EncodedOutcome(8, 12)
    assert store.put_encoded(cells) == EncodedOutcome(0, 20)
    assert store.put_encoded([]) == EncodedOutcome(0, 0)


@every_engine
def test_i2_another_body_under_a_key_is_a_problem_and_stops_no_other_cell(store: EncodedStore) -> None:
    cells = [make_cell(body=n) for n in range(5)]
    store.put_cells([Cell(*cells[3].key, "stored before")])

    outcome = store.put_encoded(list(map(encoded, cells)))

    assert (outcome.created, outcome.existed, outcome.equal) == (4, 0, 4)
    ((position, error),) = outcome.problems
    assert position == 3
    assert isinstance(error, CellConflict)
    assert error.attempted == cells[3]
    assert error.stored == Cell(*cells[3].key, "stored before") == store.get_cell(*cells[3].key)


@every_engine
def test_a_key_that_occurs_twice_exists_or_conflicts_like_any_other(store: EncodedStore) -> None:
    once = make_cell(body="one")
    cells = [once, make_cell(), once, Cell(*once.key, "another")]

    outcome = store.put_encoded(list(map(encoded, cells)))

    assert (outcome.created, outcome.existed) == (2, 1)
    assert [(position, type(error)) for position, error in outcome.problems] == [(3, CellConflict)]


@every_engine
def test_a_cell_that_no_store_may_hold_is_refused_alone(store: EncodedStore) -> None:
    good = encoded(make_cell())
    bad = [
        good._replace(column_name=b""),
        good._replace(column_name=b"\xff"),
        good._replace(row_key=b"short"),
        good._replace(ref_key=2**63),
        good._replace(body=b'"' + b"x" * 5 * MANY + b'"'),
    ]
    if not isinstance(store, Datastore):
        bad = [cell for cell in bad if len(cell.row_key) == 16 and cell.column_name != b"\xff"]

    outcome = store.put_encoded([*bad, good])

    assert outcome.created == 1
    assert [(position, type(error)) for position, error in outcome.problems] == [
        (position, InvalidCell) for position in range(len(bad))
    ]


@every_engine
def test_what_is_not_there_byte_for_byte_is_found(store: EncodedStore) -> None:
    there, other, absent = (encoded(make_cell(body=body)) for body in (1, 1.0, 2))
    store.put_encoded([there, other._replace(body=b"1")])

    assert store.find_unequal([there, other, absent, there]) == [1, 2]
    assert store.find_unequal([]) == []


@every_engine
@pytest.mark.parametrize("known", [0, 1, 400], ids="{} known".format)
def test_i3_the_log_of_a_large_batch_is_dense_and_in_order(fresh_store: EncodedStore, known: int) -> None:
    """More cells of one shard than one transaction takes, and some of all others."""
    keys = keys_of(3)
    cells = sorted(
        [make_cell(next(keys), body=n) for n in range(CELLS_PER_SHARD + 120)] + [make_cell() for _ in range(100)],
        key=lambda cell: cell.row_key.bytes,
    )
    fresh_store.put_cells(cells[5 : 5 + known])

    outcome = fresh_store.put_encoded(list(map(encoded, cells)))

    assert outcome == EncodedOutcome(len(cells) - known, known)
    assert fresh_store.find_unequal(list(map(encoded, cells))) == []
    found = log_of(fresh_store)
    assert len(found) == len(cells)
    for shard in range(SHARDS):
        page = fresh_store.get_cells_for_shard(shard, 0, 10_000)
        assert [cell.added_id for cell in page.cells] == list(range(1, page.head + 1))
        new = [cell.row_key for cell in page.cells if cell not in cells[5 : 5 + known]]
        assert new == sorted(new)


@every_engine
def test_i3_what_a_batch_met_changes_nothing_of_what_becomes_of_the_next(fresh_store: EncodedStore) -> None:
    """Which way of inserting is tried first depends on the batch before: each kind of batch comes after each other."""
    keys, known, expected = keys_of(3), list[EncodedCell](), list[EncodedOutcome]()
    batches: list[list[EncodedCell]] = []
    for share in (0.0, 0.0, 0.5, 0.5, 0.0, 1.0, 1.0, 0.5, 1.0, 0.0):
        new = [encoded(make_cell(next(keys), body=n)) for n in range(round(200 * (1 - share)))]
        batches.append(sorted([*known[: 200 - len(new)], *new]))
        expected.append(EncodedOutcome(len(new), 200 - len(new)))
        known += new

    assert [fresh_store.put_encoded(batch) for batch in batches] == expected

    page = fresh_store.get_cells_for_shard(3, 0, 10_000)
    assert [cell.added_id for cell in page.cells] == list(range(1, page.head + 1))
    assert sorted(encoded(cell) for cell in page.cells) == sorted(known)


def test_what_a_batch_met_is_looked_for_first_in_the_next(
    server_engine: ServerEngine, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    datastore = stores.fresh(server_engine)
    write, tried = Router.write_many, list[bool]()

    def noted(*arguments: Any, may_exist: bool) -> Any:
        tried.append(may_exist)
        return write(*arguments, may_exist=may_exist)

    monkeypatch.setattr(Router, "write_many", noted)
    keys = keys_of(3)
    first, second, third = ([encoded(make_cell(next(keys))) for _ in range(80)] for _ in range(3))

    for batch in (first, second, [*second[:40], *third[:40]], third, third):
        datastore.put_encoded(batch)

    assert tried == [False, False, False, True, True]


def test_i9_a_copier_of_an_old_epoch_is_refused_shard_by_shard(datastore: Datastore) -> None:
    cells = [encoded(make_cell()) for _ in range(30)]
    datastore.authority.close("a", 7)

    outcome = datastore.as_copier(6).put_encoded(cells)

    refused = {position for position, error in outcome.problems if isinstance(error, StaleEpoch)}
    assert len(refused) == len(outcome.problems) > 0
    assert outcome.created == len(cells) - len(refused) > 0
    assert datastore.as_copier(7).find_unequal(cells) == sorted(refused)
    assert datastore.as_copier(7).put_encoded(cells) == EncodedOutcome(len(refused), outcome.created)


def test_i3_a_batch_of_which_some_cells_exist_says_which_id_each_of_them_has(datastore: Datastore) -> None:
    """Only those that exist are read again; the others have the ids from the counter on."""
    keys = keys_of(3)
    cells = [make_cell(next(keys), body=n) for n in range(150)]
    datastore.put_cells([*cells[::7], make_cell(next(keys))])

    results = datastore.put_cells(cells)

    assert [result.status for result in results] == ["EXISTS" if n % 7 == 0 else "CREATED" for n in range(150)]
    found = datastore.get_cells([cell.key for cell in cells])
    assert [result.added_id for result in results] == [cell.added_id for cell in found if cell is not None]


def test_an_owner_is_refused_where_only_copiers_write(datastore: Datastore) -> None:
    datastore.authority.close("a", 7)
    datastore.authority.close("b", 7)

    outcome = datastore.as_owner(7).put_encoded([encoded(make_cell())])

    assert [type(error) for _position, error in outcome.problems] == [StaleEpoch]


@pytest.mark.parametrize("body_bytes", [10, 2_000_000, BYTES_PER_BATCH + 1])
@pytest.mark.parametrize("shards", [1, 64])
def test_a_packet_has_few_shards_and_no_more_than_a_server_takes(body_bytes: int, shards: int) -> None:
    count = 5_000 if body_bytes == 10 else 7
    body = b"x" * body_bytes
    cells = sorted(EncodedCell(uuid4().bytes, b"BASE", 1, body) for _ in range(count))

    found = [packet for lane in lanes_of(cells, range(count), shards, 2) for packet in packets(cells, lane)]

    assert sorted(n for packet in found for portion in packet.values() for n in portion) == list(range(count))
    for packet in found:
        sizes = [len(portion) for portion in packet.values()]
        assert sum(sizes) <= CELLS_PER_PACKET
        assert max(sizes) <= CELLS_PER_SHARD
        assert sum(sizes) == 1 or sum(sizes) * body_bytes <= BYTES_PER_BATCH
    for shard in range(shards):
        of_shard = [n for packet in found for n in packet.get(shard, ())]
        assert of_shard == sorted(of_shard)
    if body_bytes == 10 and shards == 64:
        assert sum(map(len, found)) == shards, "a shard's cells were parted for nothing"


def test_an_encoded_cell_is_the_same_cell() -> None:
    cell = make_cell(body={"b": [1, None], "a": "é"})

    assert encoded(cell).body == '{"a":"é","b":[1,null]}'.encode()
    assert decode_cell(encoded(cell)) == cell
