"""The newest cells of columns, and pages of histories: what a server reads for them, and what comes back."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from schemaless_core import Cell, ColumnKey, Datastore
from schemaless_core.calls import lookups
from schemaless_core.cell import page_bytes
from tests.stores import ServerEngine, Stores

LENGTHS = (400, 1, 2, 9, 10, 11)


def versions(row_key: UUID, column: str, count: int) -> list[Cell]:
    return [Cell(row_key, column, ref_key, f"version {ref_key}") for ref_key in range(1, count + 1)]


@pytest.fixture
def columns() -> list[ColumnKey]:
    """As long as these, and one without cells."""
    return [ColumnKey(uuid4(), "BASE") for _length in (*LENGTHS, 0)]


def fill(store: Datastore, columns: list[ColumnKey]) -> None:
    for key, length in zip(columns, (*LENGTHS, 0), strict=True):
        store.put_cells(versions(*key, length))


def read(stores: Stores, engine: ServerEngine) -> int:
    """Rows that the server has read so far, one after the other or by a key."""
    steps = "'Handler_read_key', 'Handler_read_next', 'Handler_read_prev'"
    found = stores.clusters(engine)[0].primary.query(f"SHOW GLOBAL STATUS WHERE Variable_name IN ({steps})")
    return sum(int(str(row["Value"])) for row in found)


def test_the_newest_of_many_are_those_of_each_history(
    datastore_engine: str, stores: Stores, columns: list[ColumnKey]
) -> None:
    store = stores.fresh(datastore_engine, shards=4)
    fill(store, columns)

    for limit in (1, 10, 100):
        assert store.get_newest(columns, limit) == [store.get_history(*key, limit=limit) for key in columns]
    assert store.get_newest([], 10) == []


def test_a_long_column_is_read_once(server_engine: ServerEngine, stores: Stores, columns: list[ColumnKey]) -> None:
    store = stores.fresh(server_engine, shards=1)
    fill(store, columns)
    before = read(stores, server_engine)

    store.get_newest(columns, 10)

    assert read(stores, server_engine) - before < 4 * sum(LENGTHS)


def test_a_page_of_a_history_reads_no_newer_version(
    server_engine: ServerEngine, stores: Stores, columns: list[ColumnKey]
) -> None:
    """Else a long history, page by page, would be read as often as it has pages."""
    store = stores.fresh(server_engine, shards=1)
    fill(store, columns)
    before = read(stores, server_engine)

    page = store.get_history(*columns[0], before=100, limit=10)

    assert [cell.ref_key for cell in page] == list(range(99, 89, -1))
    assert read(stores, server_engine) - before < 100  # of 300 that are newer


def test_a_page_of_bodies_ends_an_answer_and_the_next_one_goes_on(
    datastore_engine: str, stores: Stores, columns: list[ColumnKey], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stores.fresh(datastore_engine, shards=4)
    fill(store, columns)
    wanted = [store.get_history(*key, limit=10) for key in columns]
    monkeypatch.setattr(page_bytes, "PAGE_BYTES", 100)  # some eight cells
    monkeypatch.setattr(lookups, "KEYS_PER_CALL", 20)  # two columns

    answers, found = 0, list[list[Cell]]()
    while len(found) < len(columns):
        page = store.get_newest(columns[len(found) :], 10)
        assert page
        found += page
        answers += 1

    assert found == wanted
    assert answers > 2
