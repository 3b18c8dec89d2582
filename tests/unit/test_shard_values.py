"""Which questions a diff asks of an index: from everywhere, others each time, and the same after a crash."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid5

import pytest

from schemaless_core import Cell, CellStore, Json, MemoryStore
from schemaless_core.cell.answers import RowPage, Scalar
from schemaless_core.definitions.index import IndexDefinition
from tripstore.engines.validation.diff import shard_values
from tripstore.engines.validation.diff.shard_values import ROWS_MAX, VALUES, ShardValues

SHARDS = 8
ROWS = 3_000
KEYS: dict[str, Callable[[int], UUID]] = {
    "spread": lambda number: uuid5(UUID(int=7), str(number)),
    "by time": lambda number: UUID(int=0x0190_0000_0000_7000_8000_0000_0000_0000 + (number << 90)),
}
FIELDS: list[Json] = [{"field": "tag", "type": "string"}]
INDEX = IndexDefinition.from_document(
    {"table": "by_tag", "datastore": "trips", "column_defs": [{"column_key": "BASE", "fields": FIELDS}]}, "here"
)


class Counting:
    """A store that counts the rows that are asked for."""

    def __init__(self, store: CellStore) -> None:
        self._store = store
        self.rows = 0

    def scan_rows(self, shard: int, after: UUID | None, limit: int, columns: Any) -> RowPage:
        page = self._store.scan_rows(shard, after, limit, columns)
        self.rows += len(page.rows)
        return page


def filled(key: Callable[[int], UUID], tag: Callable[[int], str], shards: int = SHARDS) -> MemoryStore:
    store = MemoryStore(shards=shards)
    store.put_cells([Cell(key(number), "BASE", 1, {"tag": tag(number)}) for number in range(ROWS)])
    return store


def sample(store: Any, seed: str, shards: int = SHARDS) -> list[Scalar]:
    return ShardValues(shards, seed).sample(store, INDEX)


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_values_are_from_all_shards_and_from_everywhere_in_them(key: Callable[[int], UUID]) -> None:
    store = filled(key, str)

    found = [key(int(str(value))) for value in sample(store, "diff-1")]

    assert len(set(found)) == VALUES
    assert {store.shard_of(each) for each in found} == set(range(SHARDS))
    keys = [[row.row_key for row in store.scan_rows(shard, None, ROWS).rows] for shard in range(SHARDS)]
    places = [keys[store.shard_of(each)].index(each) for each in found]
    assert min(map(len, keys)) > 300
    assert sum(place >= 50 for place in places) > VALUES / 2
    assert sum(place >= 150 for place in places) > VALUES / 5


def test_another_job_asks_about_others_and_a_resumed_one_about_the_same() -> None:
    store = filled(KEYS["spread"], str)

    first, again, other = (sample(store, seed) for seed in ("diff-1", "diff-1", "diff-2"))

    assert first == again
    assert len(set(first) & set(other)) < VALUES / 2


def test_all_values_of_a_small_store_are_asked_about() -> None:
    store = filled(KEYS["spread"], lambda number: f"tag {number % 7}")

    assert set(sample(store, "diff-1")) == {f"tag {number}" for number in range(7)}


@pytest.mark.slow
def test_what_is_read_is_bounded_where_few_values_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control reads on: shards of six rows each, some of them twice."""
    store, shards = filled(KEYS["spread"], lambda number: "one", 512), 512
    bounded, control = Counting(store), Counting(store)

    assert sample(bounded, "diff-1", shards) == ["one"]
    monkeypatch.setattr(shard_values, "ROWS_MAX", 10 * ROWS)
    assert sample(control, "diff-1", shards) == ["one"]

    assert bounded.rows < 1.5 * ROWS_MAX
    assert control.rows > bounded.rows * 1.3


def test_without_a_row_there_is_no_question() -> None:
    assert sample(MemoryStore(shards=SHARDS), "diff-1") == []
