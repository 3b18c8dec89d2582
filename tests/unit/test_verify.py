"""What a copy reads once more: a share of the rows on average, those of whole shards; what is not there is told."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID, uuid4

import pytest

from schemaless_core import Cell
from schemaless_core.cell.encoded import EncodedCell, encode_cell
from schemaless_core.memory import MemoryStore
from tripstore.migration.backfill.verify import verify

SHARDS, ROWS, CHUNKS = 16, 400, 200


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(shards=SHARDS)


class Heard:
    """The store, and what it was asked for."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.asked: list[list[EncodedCell]] = []

    def find_unequal(self, cells: Sequence[EncodedCell]) -> list[int]:
        self.asked.append(list(cells))
        return self._store.find_unequal(cells)


@pytest.fixture
def chunk(store: MemoryStore) -> list[EncodedCell]:
    """Two cells of each row, which the store has."""
    keys = [uuid4() for _ in range(ROWS)]
    cells = [encode_cell(Cell(key, name, 1, {}), 1_000) for key in keys for name in ("BASE", "NOTES")]
    store.put_encoded(cells)
    return cells


@pytest.mark.slow
def test_a_share_of_the_rows_is_read_on_average_and_each_now_and_then(
    store: MemoryStore, chunk: list[EncodedCell]
) -> None:
    heard = Heard(store)

    counted = sum(verify(heard, SHARDS, chunk, (), 0.25).cells for _ in range(CHUNKS))

    assert counted == sum(map(len, heard.asked)) == pytest.approx(0.25 * CHUNKS * len(chunk), rel=0.2)
    assert {cell.row_key for cells in heard.asked for cell in cells} == {cell.row_key for cell in chunk}


def test_of_a_shard_all_rows_are_read_or_none(store: MemoryStore, chunk: list[EncodedCell]) -> None:
    heard = Heard(store)
    while not heard.asked:
        verify(heard, SHARDS, chunk, (), 0.25)

    shards = {store.shard_of(UUID(bytes=cell.row_key)) for cell in heard.asked[0]}

    assert heard.asked[0] == [cell for cell in chunk if store.shard_of(UUID(bytes=cell.row_key)) in shards]
    assert len(shards) < SHARDS


def test_of_a_chunk_in_few_shards_rows_are_chosen_one_by_one(chunk: list[EncodedCell]) -> None:
    """Else most chunks would not be looked at, and small copies never."""
    few = MemoryStore(shards=2)
    few.put_encoded(chunk)

    assert all(verify(few, 2, chunk, (), 0.05).cells > 0 for _ in range(20))


def test_all_and_nothing(store: MemoryStore, chunk: list[EncodedCell]) -> None:
    assert verify(store, SHARDS, chunk, (), 1.0) == (len(chunk), ())
    assert verify(store, SHARDS, chunk, (), 0.0) == (0, ())
    assert verify(store, SHARDS, chunk, range(10), 1.0).cells == len(chunk) - 10


def test_what_is_not_there_as_it_was_written_is_a_conflict(store: MemoryStore, chunk: list[EncodedCell]) -> None:
    lost = encode_cell(Cell(uuid4(), "BASE", 1, {}), 1_000)

    found = verify(store, SHARDS, [*chunk, lost], (), 1.0)

    assert found.cells == len(chunk) + 1
    assert [(each.kind, each.row_key, each.column_name) for each in found.findings] == [
        ("conflict", UUID(bytes=lost.row_key), "BASE")
    ]
