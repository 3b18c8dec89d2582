"""What `MemoryStore` has besides the contract, so that code for a `Datastore` runs on it unchanged."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

import pytest

from schemaless_core import Cell, InvalidRequest, MemoryStore, Position
from schemaless_core.definitions.index import IndexDefinition

ROW = UUID(int=7)


def test_it_is_closed_like_any_store() -> None:
    with MemoryStore() as store:
        store.put_cell(ROW, "BASE", 1, "kept")
    store.close()

    assert store.get_cell(ROW, "BASE", 1) is not None


def test_cells_of_a_row_are_put_together_while_no_other_writer_wrote_there() -> None:
    store = MemoryStore()
    shard = store.shard_of(ROW)
    before = store.end_of_log(shard)
    cells = [Cell(ROW, "BASE", 1, "a"), Cell(ROW, "NOTES", 1, "b")]

    results = store.put_together(cells, before)

    assert results is not None
    assert [result.added_id for result in results] == [1, 2]
    assert store.end_of_log(shard) == Position("trips", 1, 2)
    assert store.put_together([Cell(ROW, "BASE", 2, "late")], before) is None
    assert store.put_together([Cell(ROW, "BASE", 1, "a")], store.end_of_log(shard)) is None
    assert store.end_of_log(shard).added_id == 2
    with pytest.raises(InvalidRequest, match="of one row"):
        store.put_together([Cell(ROW, "BASE", 3, 0), Cell(UUID(int=8), "BASE", 3, 0)], before)


COLUMN = {"column_key": "BASE", "fields": [{"field": "city", "type": "string"}]}
BY_CITY = IndexDefinition.from_document({"table": "by_city", "column_defs": [COLUMN]}, "a test", "trips")


def found(store: MemoryStore, consistency: Literal["fast", "verified"] = "fast") -> list[UUID]:
    return [entry.row_key for entry in store.query_index("by_city", "SF", consistency=consistency).entries]


def test_a_fast_query_right_after_a_put_misses_it_as_one_of_servers_may() -> None:
    store = MemoryStore(indexes=[BY_CITY])
    store.put_cell(ROW, "BASE", 1, {"city": "SF"})

    assert found(store) == []
    assert found(store) == [ROW]

    store.put_cell(ROW, "BASE", 2, {"city": "LA"})
    assert found(store, "verified") == []
    assert found(store) == []


def test_control_indexes_that_do_not_lag_find_it_at_once() -> None:
    store = MemoryStore(indexes=[BY_CITY], lagging_indexes=False)
    store.put_cell(ROW, "BASE", 1, {"city": "SF"})

    assert found(store) == [ROW]
