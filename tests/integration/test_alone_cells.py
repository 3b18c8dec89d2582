"""Cells that are all that their columns hold: their shards say which they are, and indexes are filled from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch
from uuid import UUID, uuid4

import pytest

from schemaless_core import Cell, Datastore, Json, canonical_bytes
from schemaless_core.cell.stored import NewCell
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import Node
from schemaless_core.engine.mysql.indexes import alone
from schemaless_core.engine.mysql.node import MySQLNode
from schemaless_core.errors import SchemalessError
from tests.indexing import catch_up, only_maintained
from tests.stores import ServerEngine, Stores

INDEX = "trips_of_driver"
DEFINITION: dict[str, Json] = {
    "table": INDEX,
    "column_defs": [
        {"column_key": "BASE", "fields": [{"field": "driver", "type": "string"}, {"field": "seats", "type": "int"}]},
        {"column_key": "STATUS", "fields": [{"field": "status", "type": "string"}]},
    ],
}
SHARDS = 4


@pytest.fixture
def indexed(datastore_engine: str, stores: Stores) -> Datastore:
    store = stores.fresh(datastore_engine, shards=SHARDS, indexes=[DEFINITION])
    only_maintained(store)
    return store


def trip(row: UUID, ref_key: int, driver: str, seats: int = 1) -> Cell:
    return Cell(row, "BASE", ref_key, {"driver": driver, "seats": seats})


def alone_of(store: Datastore, cells: Sequence[Cell]) -> list[Cell]:
    """Those of these cells that are alone, in any order."""
    keyed = [(cell.row_key.bytes, cell) for cell in cells]
    found = store.indexes.writer._rows.alone(keyed, Deadline(20))
    return [cell for cell in cells if found.get((cell.row_key.bytes, cell.column_name)) is cell]


@contextmanager
def counted_reads() -> Iterator[Counter[str]]:
    """How many columns were asked for by key, on servers."""
    asked: Counter[str] = Counter()

    def counting(name: str) -> Any:
        verb = getattr(MySQLNode, name)

        def call(node: Node, keys: Mapping[int, Sequence[object]], deadline: Deadline) -> Any:
            asked[name] += sum(map(len, keys.values()))
            return verb(node, keys, deadline)

        return patch.object(MySQLNode, name, call)

    with counting("find_latest_many"), counting("find_before_many"), counting("find_not_alone"):
        yield asked


def test_a_cell_is_alone_when_its_column_holds_nothing_else_and_these_very_bytes(indexed: Datastore) -> None:
    rows = [uuid4() for _ in range(8)]
    odd = "it's a \\ name"
    only = [trip(rows[0], 5, "a"), Cell(rows[1], odd, -(2**63), None), trip(rows[2], 2**63 - 1, "'\\\0")]
    versions = [trip(rows[3], ref, "a") for ref in (-1, 3, 7)]
    beside = [trip(rows[4], 1, "a"), Cell(rows[4], "STATUS", 1, {"status": "paid"})]
    indexed.put_cells([*only, *versions, *beside])
    other_bytes, other_key, gone = trip(rows[0], 5, "b"), trip(rows[0], 6, "a"), trip(rows[5], 1, "a")

    assert alone_of(indexed, [*only, *beside, gone]) == [*only, *beside]
    for version in versions:
        assert alone_of(indexed, [version]) == []
    assert alone_of(indexed, [other_bytes]) == []
    assert alone_of(indexed, [other_key]) == []
    assert alone_of(indexed, []) == []


def test_a_shard_that_is_not_there_says_so(indexed: Datastore) -> None:
    node = next(iter(indexed.clusters.values())).primary.node
    cell = NewCell(uuid4().bytes, b"BASE", 1, canonical_bytes({}))

    with pytest.raises(SchemalessError):
        node.find_not_alone({SHARDS + 9: [cell]}, Deadline(20))


def test_i6_behind_a_backfill_nothing_is_read_by_key_and_all_entries_are_there(
    server_engine: ServerEngine, stores: Stores
) -> None:
    store = stores.fresh(server_engine, shards=SHARDS, indexes=[DEFINITION])
    only_maintained(store)
    rows = [uuid4() for _ in range(120)]
    paid = [Cell(row, "STATUS", 4, {"status": "paid"}) for row in rows]
    store.put_cells([*(trip(row, 1, f"driver {n % 3}", n) for n, row in enumerate(rows)), *paid])

    with counted_reads() as asked:
        assert catch_up(store, INDEX) == 240

    assert asked == {"find_not_alone": 240}
    assert_entries(store, {row: (f"driver {n % 3}", n, "paid") for n, row in enumerate(rows)})


def test_i6_halves_of_a_portion_that_are_written_together_miss_no_entry(indexed: Datastore) -> None:
    cells = [trip(uuid4(), 1, f"driver {n % 7}", n) for n in range(1_500)]
    changed = [trip(cell.row_key, 2, "another") for cell in cells[:300]]
    indexed.put_cells([*cells, *changed])

    assert catch_up(indexed, INDEX) >= 1_800

    report = indexed.indexes.verify(INDEX)
    assert report.is_clean
    assert report.rows == 1_500
    assert drivers(indexed, "another") == {cell.row_key for cell in changed}


def test_i6_what_is_not_alone_is_read_as_ever(indexed: Datastore) -> None:
    moved, kept, deleted, late = (uuid4() for _ in range(4))
    indexed.put_cells([trip(moved, 1, "a"), trip(moved, 2, "b"), trip(deleted, 1, "a"), Cell(deleted, "BASE", 2, None)])
    indexed.put_cells([trip(kept, 1, "a"), Cell(kept, "STATUS", 1, {"status": "x"}), trip(late, 9, "b")])
    catch_up(indexed, INDEX)
    indexed.put_cells([trip(late, 3, "a")])
    catch_up(indexed, INDEX)

    assert drivers(indexed, "a") == {kept}
    assert drivers(indexed, "b") == {moved, late}
    assert indexed.indexes.verify(INDEX).is_clean


def test_i6_a_cell_that_was_mended_after_its_page_was_read_is_read_anew(indexed: Datastore) -> None:
    row = uuid4()
    indexed.put_cells([trip(row, 1, "mended")])

    write_alone(indexed, trip(row, 1, "as the page had it"))

    assert drivers(indexed, "mended") == {row}
    assert drivers(indexed, "as the page had it") == set()


def test_control_without_a_look_at_the_bytes_the_entry_is_that_of_the_page(
    server_engine: ServerEngine, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alone, "NOT_ALONE", alone.NOT_ALONE.replace("NOT IN (w.hash, w.kept)", "= ''"))
    store = stores.fresh(server_engine, shards=SHARDS, indexes=[DEFINITION])
    only_maintained(store)
    row = uuid4()
    store.put_cells([trip(row, 1, "mended")])

    write_alone(store, trip(row, 1, "as the page had it"))

    assert drivers(store, "as the page had it") == {row}


def write_alone(store: Datastore, cell: Cell) -> None:
    """Process a cell of a page as the maintainer does."""
    writer = store.indexes.writer
    for plan in writer.plan(store.indexes.catalogue.kept(), [cell], Deadline(20), may_be_alone=True):
        assert writer.carry_out(plan, [cell], Deadline(20)) == [None]


def drivers(store: Datastore, driver: str) -> set[UUID]:
    return {entry.row_key for entry in store.query_index(INDEX, driver, limit=1_000).entries}


def assert_entries(store: Datastore, expected: Mapping[UUID, tuple[str, int, str]]) -> None:
    found = {
        entry.row_key: (entry.fields["driver"], entry.fields["seats"], entry.fields["status"])
        for driver in {driver for driver, _seats, _status in expected.values()}
        for entry in store.query_index(INDEX, driver, limit=1_000).entries
    }
    assert found == expected
