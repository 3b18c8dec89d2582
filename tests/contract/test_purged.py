"""What was purged stays away: the same promises on every engine, whatever way a cell comes back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Protocol
from uuid import UUID, uuid4

import pytest

from schemaless_core import (
    BatchFailed,
    Cell,
    CellConflict,
    CellPurged,
    CellStore,
    Datastore,
    EncodedCell,
    EncodedOutcome,
    MemoryStore,
)
from schemaless_core.cell.answers import Position, PutResult
from schemaless_core.cell.encoded import encode_cell
from tests.factories import keys_in, make_cell
from tests.stores import STORE_ENGINES

SHARDS = 8
LATER = timedelta(days=1)


class PurgedStore(CellStore, Protocol):
    """A cell store that can purge, by what its own test below gives it."""

    def put_encoded(self, cells: Sequence[EncodedCell]) -> EncodedOutcome: ...

    def find_unequal(self, cells: Sequence[EncodedCell]) -> list[int]: ...

    def put_together(self, cells: Sequence[Cell], seen: Position) -> list[PutResult] | None: ...

    def end_of_log(self, shard: int) -> Position: ...


every_engine = pytest.mark.parametrize("cell_store", STORE_ENGINES, indirect=True)


def purge_rows(store: CellStore, *row_keys: UUID) -> int:
    if isinstance(store, MemoryStore):
        return store.purge_rows(row_keys)
    assert isinstance(store, Datastore)
    done = store.purges.rows(row_keys)
    assert store.purges.finish_rows(row_keys) == []
    return done.cells


def purge_superseded(store: CellStore, *columns: str, until: datetime | None = None) -> int:
    if isinstance(store, MemoryStore):
        return store.purge_superseded(columns, until or datetime.now(UTC) + LATER)
    assert isinstance(store, Datastore)
    count = 0
    for shard in range(SHARDS):
        after, last = 0, store.purges.last_before(shard, until or datetime.now(UTC) + LATER)
        while after < last:
            step = store.purges.superseded(shard, columns, after, last)
            count, after = count + step.cells, step.reached
    return count


def encoded(cell: Cell) -> EncodedCell:
    return encode_cell(cell, 1 << 20)


def log_of(store: CellStore, shard: int) -> list[Cell]:
    found, location = list[Cell](), 0
    while True:
        page = store.get_cells_for_shard(shard, location, 3)
        if page.next_location == location:
            assert location == page.head, "a reader waits for a purged id"
            return found
        found, location = [*found, *page.cells], page.next_location


def row_of(store: CellStore) -> list[Cell]:
    key = uuid4()
    cells = [make_cell(key, "BASE", 1, "a"), make_cell(key, "BASE", 2, "b"), make_cell(key, "NOTE", 5, "c")]
    store.put_cells([*cells, make_cell()])
    return cells


@every_engine
def test_a_purged_row_is_gone_and_its_neighbours_stay(store: PurgedStore) -> None:
    cells, other = row_of(store), make_cell()
    store.put_cells([other])
    key = cells[0].row_key

    assert purge_rows(store, key) == 3

    assert store.get_row(key) == {}
    assert store.get_cells([cell.key for cell in cells]) == [None] * 3
    assert store.get_history(key, "BASE") == []
    assert store.get_cell(*other.key) == other
    assert key not in {cell.row_key for cell in log_of(store, store.shard_of(key))}
    assert purge_rows(store, key) == 0


@every_engine
def test_a_caller_is_told_that_a_row_was_purged(store: PurgedStore) -> None:
    cells = row_of(store)
    key = cells[0].row_key
    purge_rows(store, key)

    for cell in (*cells, make_cell(key, "NEW", 9, "d")):
        with pytest.raises(CellPurged) as purged:
            store.put_cell(*cell.key, cell.body)
        assert (purged.value.row_key, purged.value.is_of_row) == (key, True)
    with pytest.raises(CellPurged):
        store.append_cell(key, "BASE", "e")
    with pytest.raises(CellPurged):
        store.put_cell(key, "BASE", 1, "f", expect_latest=None)
    assert store.get_row(key) == {}


@every_engine
def test_a_batch_stores_what_was_not_purged(store: PurgedStore) -> None:
    cells, fresh = row_of(store), [make_cell() for _ in range(3)]
    purge_rows(store, cells[0].row_key)

    with pytest.raises(BatchFailed) as failed:
        store.put_cells([fresh[0], *cells, *fresh[1:]])

    assert [isinstance(each, CellPurged) for each in failed.value.results] == [False, True, True, True, False, False]
    assert store.get_cells([cell.key for cell in fresh]) == fresh
    assert store.get_row(cells[0].row_key) == {}


@every_engine
@pytest.mark.parametrize("count", [1, 3, 100])
def test_a_copier_has_nothing_left_to_do_for_what_was_purged(store: PurgedStore, count: int) -> None:
    cells = row_of(store)
    key = cells[0].row_key
    purge_rows(store, key)
    beside = keys_in(store, store.shard_of(key))
    fresh = [make_cell(next(beside)) for _ in range(count)]
    late = [*cells, make_cell(key, "BASE", 7, "late")]

    outcome = store.put_encoded(list(map(encoded, [*late, *fresh])))

    assert outcome == EncodedOutcome(count, 0, (), len(late))
    assert store.find_unequal(list(map(encoded, [*late, *fresh]))) == []
    assert store.put_encoded(list(map(encoded, fresh))) == EncodedOutcome(0, count)
    assert store.get_row(key) == {}
    log = log_of(store, store.shard_of(key))
    assert [cell.added_id for cell in log] == sorted(cell.added_id or 0 for cell in log)


@every_engine
def test_cells_that_go_together_are_refused_together(store: PurgedStore) -> None:
    key = row_of(store)[0].row_key
    seen = store.end_of_log(store.shard_of(key))
    purge_rows(store, key)

    with pytest.raises(CellPurged):
        store.put_together([make_cell(key, "BASE", 8, "x"), make_cell(key, "NOTE", 8, "y")], seen)

    assert store.get_row(key) == {}
    other = next(keys_in(store, store.shard_of(key)))
    both = [make_cell(other, "BASE", 1, "x"), make_cell(other, "NOTE", 1, "y")]
    assert store.put_together(both, store.end_of_log(store.shard_of(key))) is not None
    assert store.put_together(both, store.end_of_log(store.shard_of(key))) is None


@every_engine
def test_superseded_versions_go_and_the_latest_stays(store: PurgedStore) -> None:
    key = uuid4()
    versions = [make_cell(key, "BASE", ref_key, ref_key) for ref_key in (1, 2, 5)]
    others = [make_cell(key, "NOTE", 1, "kept"), make_cell(key, "NOTE", 2, "too")]
    store.put_cells([*versions, *others])

    assert purge_superseded(store, "BASE") >= 2

    assert store.get_history(key, "BASE") == [versions[2]]
    assert store.get_row(key) == {"BASE": versions[2], "NOTE": others[1]}
    assert store.get_cells([cell.key for cell in others]) == others
    for ref_key in (1, 2, 0):
        with pytest.raises(CellPurged) as purged:
            store.put_cell(key, "BASE", ref_key, "back")
        assert (purged.value.up_to, purged.value.is_of_row) == (2, False)
    assert store.put_encoded([encoded(cell) for cell in versions]) == EncodedOutcome(0, 1, (), 2)
    assert store.put_cell(key, "BASE", 3, "between").status == "CREATED"
    assert store.append_cell(key, "BASE", "next").ref_key == 6
    with pytest.raises(CellConflict):
        store.put_cell(key, "BASE", 5, "another")
    log_of(store, store.shard_of(key))
    assert purge_superseded(store, "BASE") == 2


@every_engine
def test_what_is_too_young_stays(store: PurgedStore) -> None:
    key = uuid4()
    store.put_cells([make_cell(key, "BASE", 1), make_cell(key, "BASE", 2)])

    purge_superseded(store, "BASE", until=datetime.now(UTC) - LATER)

    assert len(store.get_history(key, "BASE")) == 2
