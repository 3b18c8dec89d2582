"""A verification of an index while rows move, and of rows that do not fit into a page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest

from schemaless_core import Datastore, Json
from schemaless_core.cell import page_bytes
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import EntryWrite
from schemaless_core.indexes import key_sums
from schemaless_core.indexes.verify import DifferenceKind, Verification
from tests.indexing import catch_up, nothing_after_commit
from tests.stores import Stores

NAME = "trips_of_driver"
ROWS = 30
INDEX: dict[str, Json] = {
    "table": NAME,
    "column_defs": [
        {"column_key": "BASE", "fields": [{"field": "driver", "type": "string"}]},
        {"column_key": "STATUS", "fields": [{"field": "word", "type": "string"}]},
    ],
}


@pytest.fixture
def store(datastore_engine: str, stores: Stores) -> Iterator[Datastore]:
    """One shard, so one index shard."""
    config = stores.config(datastore_engine, shards=1, indexes=[INDEX])
    with Datastore.open(config | {"clusters": {"a": config["clusters"]["a"]}}) as store:
        store.create_schema()
        with nothing_after_commit():
            for n in range(ROWS):
                put_row(store, f"driver {n}")
        catch_up(store)
        yield store


def put_row(store: Datastore, driver: str) -> UUID:
    row_key = uuid4()
    store.put_cell(row_key, "BASE", 1, {"driver": driver})
    store.put_cell(row_key, "STATUS", 1, {"word": "x" * 50})
    return row_key


def write(store: Datastore, entry: EntryWrite) -> None:
    (version,) = store.indexes.catalogue.kept()
    assert store.indexes.writer.put(version, [entry], Deadline(10)) == {}


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Have something happen when all rows are looked at, and no entries yet."""
    real = Verification._entry_pages

    def arrange(happen: Callable[[], None]) -> None:
        def pages(its: Verification, shard: int) -> Any:
            monkeypatch.setattr(Verification, "_entry_pages", real)
            happen()
            return real(its, shard)

        monkeypatch.setattr(Verification, "_entry_pages", pages)

    return arrange


def stale_beside_one_that_goes(store: Datastore, between: Callable[[Callable[[], None]], None]) -> UUID:
    """As many entries as there should be: a wrong one came when a right one went. The row with the wrong one."""
    leaving, wronged = put_row(store, "leaving"), put_row(store, "right")
    catch_up(store)
    write(store, EntryWrite("elsewhere", wronged.bytes, ("elsewhere", None), (1, None)))

    def leave() -> None:
        store.put_cell(leaving, "BASE", 2, None)
        catch_up(store)

    between(leave)
    return wronged


def test_i12_a_stale_entry_is_found_though_another_one_went_meanwhile(
    store: Datastore, between: Callable[[Callable[[], None]], None]
) -> None:
    wronged = stale_beside_one_that_goes(store, between)

    report = store.indexes.verify(NAME)

    assert report.counts == {DifferenceKind.MISSING: 0, DifferenceKind.STALE: 1, DifferenceKind.DIFFERENT: 0}
    assert [(each.row_key, each.shard_value) for each in report.samples] == [(wronged, "elsewhere")]


def test_control_entries_that_are_counted_and_not_summed_hide_it(
    store: Datastore, between: Callable[[Callable[[], None]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    stale_beside_one_that_goes(store, between)
    monkeypatch.setattr(key_sums, "hash", lambda _key: 1, raising=False)

    assert store.indexes.verify(NAME).counts == dict.fromkeys(DifferenceKind, 0)


def test_what_is_unlike_its_cells_counts_once_beside_a_stale_entry(store: Datastore) -> None:
    """All entries of a sum are looked at where one of them is stale."""
    with nothing_after_commit():  # it would mend what follows
        wronged = put_row(store, "right")
    catch_up(store)
    write(store, EntryWrite("right", wronged.bytes, ("right", "otherwise"), (1, 1)))
    write(store, EntryWrite("elsewhere", wronged.bytes, ("elsewhere", None), (1, None)))

    report = store.indexes.verify(NAME)

    assert report.counts == {DifferenceKind.MISSING: 0, DifferenceKind.STALE: 1, DifferenceKind.DIFFERENT: 1}


def test_i12_rows_that_do_not_fit_into_a_page_are_compared_whole(
    store: Datastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_bytes, "PAGE_BYTES", 90)  # a row and a half

    report = store.indexes.verify(NAME)

    assert (report.rows, report.entries, report.late, report.not_compared) == (ROWS, ROWS, 0, 0)
    assert report.is_clean
