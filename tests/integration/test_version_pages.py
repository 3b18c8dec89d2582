"""All versions of a shard, page by page: each row is in one of them, and whole."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from uuid import uuid4

import pytest

from schemaless_core import Cell, Datastore
from schemaless_core.cell import page_bytes
from schemaless_core.cell.stored import Version, VersionsPage
from tests.stores import Stores

SHARDS = 2
#: Of the column BASE of a row; beside it stands one cell of another column.
LENGTHS = (1, 3, 12, 2) * 3


@pytest.fixture
def store(datastore_engine: str, stores: Stores) -> Datastore:
    store = stores.fresh(datastore_engine, shards=SHARDS)
    for length in LENGTHS:
        row_key = uuid4()
        cells = [Cell(row_key, "BASE", n - 2, f"version {n}") for n in range(length)]
        store.put_cells([*cells, Cell(row_key, "STATUS", 7, None)])
    return store


def pages(store: Datastore, limit: int, columns: list[str] | None = None) -> Iterator[VersionsPage]:
    for shard in range(SHARDS):
        page = store.scan_versions(shard, None, limit, columns)
        yield page
        while page.after is not None:
            page = store.scan_versions(shard, page.after, limit, columns)
            yield page


def everything(store: Datastore) -> list[Version]:
    found = [cell for page in pages(store, 1000) for cell in page.cells]
    assert len(found) == sum(LENGTHS) + len(LENGTHS)
    return found


def test_versions_come_in_the_order_of_their_keys_with_the_bytes_that_stand_there(store: Datastore) -> None:
    for shard in range(SHARDS):
        cells = store.scan_versions(shard).cells
        assert [cell[:3] for cell in cells] == sorted(cell[:3] for cell in cells)
    found = everything(store)
    bodies = {cell.body for cell in found}
    assert bodies == {b"null", *(f'"version {n}"'.encode() for n in range(max(LENGTHS)))}
    of_columns = [cell for page in pages(store, 1000, ["STATUS", "NONE"]) for cell in page.cells]
    assert of_columns == [cell for cell in found if cell.column_name == b"STATUS"]


@pytest.mark.parametrize("limit", [1, 4, 13, 14])
def test_a_row_is_in_one_page_and_whole_or_too_large_for_any(store: Datastore, limit: int) -> None:
    rows = {key: list(cells) for key, cells in groupby(everything(store), key=lambda cell: cell.row_key)}

    found = list(pages(store, limit))

    seen = {key: list(cells) for page in found for key, cells in groupby(page.cells, key=lambda cell: cell.row_key)}
    large = {page.too_large for page in found if page.too_large is not None}
    assert sum(len(page.cells) for page in found) == sum(map(len, seen.values()))
    assert seen == {key: cells for key, cells in rows.items() if len(cells) < limit}
    # Of a row with just so many cells it is not known whether there are more.
    assert large == rows.keys() - seen.keys()


def test_bodies_are_as_many_as_fit_into_a_page(store: Datastore, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {key: list(cells) for key, cells in groupby(everything(store), key=lambda cell: cell.row_key)}
    monkeypatch.setattr(page_bytes, "PAGE_BYTES", 100)  # some eight cells

    found = list(pages(store, 1000))

    assert max(len(page.cells) for page in found) < 20
    seen = {cell.row_key for page in found for cell in page.cells}
    large = {page.too_large for page in found if page.too_large is not None}
    assert seen | large == rows.keys()
    assert not seen & large
    assert all(len(rows[key]) > 5 for key in large)
