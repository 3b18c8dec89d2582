"""Pages are bounded by bytes: fewer cells and a place to go on from, whatever the engine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from uuid import UUID, uuid4

import pytest

from schemaless_core import Cell, CellStore, Datastore, Json
from schemaless_core.cell.page_bytes import fitting
from tests.indexing import catch_up
from tests.legacy_databases import FLAVOURS
from tests.stores import DATASTORE_ENGINES, STORE_ENGINES, Stores

BOUND = 20_000
BODY = "x" * 4_000
#: The one that brings a page to the bound belongs to it.
CELLS_PER_PAGE = 5


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("schemaless_core.cell.page_bytes.PAGE_BYTES", BOUND)


@pytest.fixture(params=(*STORE_ENGINES, *FLAVOURS))
def store(request: pytest.FixtureRequest, stores: Stores) -> CellStore:
    return stores.fresh_store(request.param, shards=4)


def versions(store: CellStore, row_key: UUID, count: int) -> list[Cell]:
    cells = [Cell(row_key, "BASE", n, {"n": n, "text": BODY}) for n in range(1, count + 1)]
    store.put_cells(cells)
    return cells


def whole(store: CellStore, row_key: UUID) -> Iterator[list[Cell]]:
    before = None
    while page := store.get_history(row_key, "BASE", before=before):
        yield page
        before = page[-1].ref_key


def test_a_history_comes_in_pages_of_so_many_bytes(store: CellStore) -> None:
    row_key = uuid4()
    cells = versions(store, row_key, 12)

    pages = list(whole(store, row_key))

    assert [len(page) for page in pages] == [CELLS_PER_PAGE, CELLS_PER_PAGE, 2]
    assert [cell for page in pages for cell in page] == cells[::-1]


def test_i3_i7_a_log_goes_on_where_a_page_ended(store: CellStore) -> None:
    row_key = uuid4()
    cells = versions(store, row_key, 12)
    shard, at, found, sizes = store.shard_of(row_key), 0, list[Cell](), list[int]()

    while (page := store.get_cells_for_shard(shard, at, 100)).cells:
        assert page.head == 12
        found += page.cells
        sizes.append(len(page.cells))
        at = page.next_location

    assert max(sizes) <= CELLS_PER_PAGE + 1, "a driver counts what comes over the wire"
    assert found == cells


def test_i7_every_shard_of_one_look_gets_on(store: CellStore) -> None:
    """However large the cells of others are, and in whatever order they come."""
    for _ in range(12):
        versions(store, uuid4(), 4)
    places, found = dict.fromkeys(range(4), 0), 0

    for _ in range(60):
        pages = store.get_cells_for_shards(places, 100)
        for shard, page in pages.items():
            assert page.next_location > places[shard] or page.head == places[shard]
            places[shard] = page.next_location
            found += len(page.cells)

    assert found == 48


def test_rows_are_whole_on_a_page_that_was_cut(store: CellStore) -> None:
    """Also one that is larger than a page."""
    keys = [uuid4() for _ in range(30)]
    cells = [Cell(key, name, 1, {"text": BODY}) for key in keys for name in ("A", "B")]
    cells += [Cell(keys[0], f"C{n}", 1, {"text": BODY}) for n in range(10)]
    store.put_cells(cells)
    found: dict[UUID, dict[str, Cell]] = {}

    for shard in range(4):
        after = None
        while True:
            page = store.scan_rows(shard, after)
            assert len(page.rows) <= 3 or type(store).__name__ == "PostgresBackend", "it counts after each portion"
            found |= {row.row_key: row.cells for row in page.rows}
            after = page.after
            if after is None:
                break

    assert {key: len(row) for key, row in found.items()} == {key: 12 if key == keys[0] else 2 for key in keys}


BY_CITY: Json = {
    "table": "by_city",
    "column_defs": [{"column_key": "BASE", "fields": [{"field": "city", "type": "string"}]}],
}


@pytest.mark.parametrize("engine", [*STORE_ENGINES, *FLAVOURS])
def test_a_page_of_an_index_ends_with_its_rows_bytes(stores: Stores, engine: str) -> None:
    """And the cursor goes on there: 12 rows of two cells, every column asked for."""
    store = stores.fresh_store(engine, shards=4, indexes=[BY_CITY])
    keys = [uuid4() for _ in range(12)]
    store.put_cells([Cell(key, name, 1, {"city": "a", "text": BODY}) for key in keys for name in ("BASE", "MORE")])
    if isinstance(store, Datastore):
        catch_up(store)
    found, sizes, cursor = list[UUID](), list[int](), None
    while True:
        page = store.query_index("by_city", "a", columns="*", cursor=cursor)
        assert all(entry.cells is not None and len(entry.cells) == 2 for entry in page.entries)
        found += [entry.row_key for entry in page.entries]
        sizes.append(len(page.entries))
        cursor = page.cursor
        if cursor is None:
            break

    assert sorted(found) == sorted(keys)
    assert len(sizes) > 3
    assert max(sizes) <= CELLS_PER_PAGE // 2 + 1
    # The control: without the bodies one page has all of them.
    assert len(store.query_index("by_city", "a").entries) == 12


@pytest.mark.parametrize("engine", DATASTORE_ENGINES)
def test_ref_keys_are_not_bounded_by_bodies(stores: Stores, engine: str) -> None:
    store = stores.fresh(engine, shards=4)
    row_key = uuid4()
    cells = versions(store, row_key, 12)

    assert list(store.get_ref_keys(row_key, "BASE", limit=100)) == [cell.ref_key for cell in cells[::-1]]
    assert list(store.get_ref_keys(row_key, "BASE", limit=7)) == [12, 11, 10, 9, 8, 7, 6]


@pytest.mark.parametrize("engine", DATASTORE_ENGINES)
def test_calls_after_a_page_that_was_cut_get_their_own_answers(stores: Stores, engine: str) -> None:
    """What a server was still sending belongs to none of them."""
    store = stores.fresh(engine, shards=4)
    row_key, other = uuid4(), uuid4()
    cells = versions(store, row_key, 12)
    store.put_cell(other, "BASE", 1, {"small": True})
    for _ in range(10):
        assert store.get_history(row_key, "BASE") == cells[:-6:-1]
        latest = store.get_cell_latest(other, "BASE")
        assert latest is not None
        assert latest.body == {"small": True}


def test_a_page_has_one_cell_at_least() -> None:
    assert fitting([BOUND * 2, 1]) == 1
    assert fitting([]) == 0
    assert fitting([BOUND - 1, 1, 1]) == 2


@pytest.mark.parametrize("bound", [4_000_000, 1 << 40], ids=["bounded", "control"])
def test_the_memory_of_a_reader_is_flat(bound: int) -> None:
    """80 cells of a megabyte in one row, their history and their log; the control reads them at once."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.page_peak", str(bound)], capture_output=True, text=True, timeout=60, check=True
    )
    peak_megabytes = int(ran.stdout)
    assert (peak_megabytes < 40) is (bound == 4_000_000), peak_megabytes


def test_control_without_a_bound_all_of_it_comes_at_once(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("schemaless_core.cell.page_bytes.PAGE_BYTES", 1 << 40)
    store: Datastore = stores.fresh("sqlite", shards=4)
    row_key = uuid4()
    versions(store, row_key, 12)
    assert len(store.get_history(row_key, "BASE")) == 12
