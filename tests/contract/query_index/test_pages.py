"""What an entry of a page shows, and how pages follow each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

import pytest

from schemaless_core import (
    Cell,
    CellStore,
    IndexPage,
    Scalar,
)
from tests.contract.query_index.asking import ask, found, put, put_trip, rows, settle
from tests.facades import FACADES_IN_SHORT
from tests.legacy_databases import FLAVOURS
from tests.stores import HTTP_STORES, STORE_ENGINES

pytestmark = pytest.mark.parametrize(
    "cell_store", [*STORE_ENGINES, *FLAVOURS, *FACADES_IN_SHORT, *HTTP_STORES], indirect=True
)


def test_fields_selects_a_subset_in_the_order_asked_for(store: CellStore, driver: UUID) -> None:
    put_trip(store, driver, city="Aarhus", seats=3)

    def fields(chosen: Sequence[str]) -> list[tuple[str, Scalar | None]]:
        return list(ask(store, driver, fields=chosen).entries[0].fields.items())

    assert fields(["seats", "city"]) == [("seats", 3), ("city", "Aarhus")]
    assert fields(("fare",)) == [("fare", None)]
    assert fields([]) == []


def test_conditions_and_order_may_use_fields_that_are_not_selected(store: CellStore, driver: UUID) -> None:
    keys = [put_trip(store, driver, city="Aarhus", seats=seats) for seats in (2, 1, 3)]

    page = ask(store, driver, [("seats", ">", 1)], fields=["city"], order_by="seats", descending=True)

    assert rows(page) == [keys[2], keys[0]]
    assert [entry.fields for entry in page.entries] == [{"city": "Aarhus"}] * 2


def test_columns_add_the_latest_cells_that_were_asked_for(store: CellStore, driver: UUID) -> None:
    row_key = put_trip(store, driver)
    put(store, row_key, {"driver": str(driver), "seats": 2}, ref_key=2)
    put(store, row_key, "a note", column="NOTES")

    cells = ask(store, driver, columns=["BASE", "NOTES", "NOWHERE"]).entries[0].cells

    assert cells == {
        "BASE": Cell(row_key, "BASE", 2, {"driver": str(driver), "seats": 2}),
        "NOTES": Cell(row_key, "NOTES", 1, "a note"),
    }
    assert ask(store, driver, columns=["NOWHERE"]).entries[0].cells == {}
    assert ask(store, driver, columns=[]).entries[0].cells == {}
    assert ask(store, driver).entries[0].cells is None


def test_a_star_adds_the_latest_cell_of_every_column_tombstones_included(store: CellStore, driver: UUID) -> None:
    row_key = put_trip(store, driver)
    put(store, row_key, "a note", column="NOTES")
    put(store, row_key, None, column="STATUS", ref_key=3)

    entry = ask(store, driver, columns="*", fields=[]).entries[0]

    assert entry.cells == store.get_row(row_key)
    assert set(entry.cells or ()) == {"BASE", "NOTES", "STATUS"}


def test_each_entry_of_a_page_has_the_cells_of_its_own_row(store: CellStore, driver: UUID) -> None:
    keys = [put_trip(store, driver, seats=number) for number in range(20)]

    page = ask(store, driver, columns=["BASE"])

    assert rows(page) == keys
    assert [entry.cells for entry in page.entries] == [store.get_row(key) for key in keys]


def test_without_an_order_entries_come_by_the_bytes_of_their_row_keys(store: CellStore, driver: UUID) -> None:
    keys = [uuid4() for _ in range(30)]
    for key in keys:
        put(store, key, {"driver": str(driver)})

    assert found(store, driver) == sorted(keys, key=lambda key: key.bytes)
    assert found(store, driver, descending=True) == sorted(keys, key=lambda key: key.bytes, reverse=True)


def test_ties_are_ordered_by_row_key_and_reversed_with_the_rest(store: CellStore, driver: UUID) -> None:
    keys = [put_trip(store, driver, **({} if seats is None else {"seats": seats})) for seats in (1, None, 0, 1, None)]

    ordered = [keys[1], keys[4], keys[2], keys[0], keys[3]]

    assert found(store, driver, order_by="seats") == ordered
    assert found(store, driver, order_by="seats", descending=True) == ordered[::-1]


@pytest.mark.parametrize("order_by", [None, "seats", "fare", "city"])
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("limit", [1, 3, 7])
def test_pages_by_cursor_make_up_the_whole(
    store: CellStore, driver: UUID, order_by: str | None, descending: bool, limit: int
) -> None:
    for number in range(10):
        trip = put_trip(store, driver, city="ab"[number % 2], **({"seats": number // 3} if number % 4 else {}))
        if number % 3:
            put(store, trip, {"fare": f"{number % 2}.5"}, column="FARE")
    options: dict[str, Any] = {"order_by": order_by, "descending": descending}
    whole = ask(store, driver, **options).entries

    pages = all_pages(store, driver, limit=limit, **options)

    assert [entry for page in pages for entry in page.entries] == whole
    assert [len(page.entries) for page in pages[:-1]] == [limit] * (len(pages) - 1)
    assert pages[-1].entries


def all_pages(store: CellStore, driver: UUID, **options: Any) -> list[IndexPage]:
    pages = [ask(store, driver, **options)]
    while cursor := pages[-1].cursor:
        pages.append(ask(store, driver, cursor=cursor, **options))
    return pages


def test_there_is_a_cursor_exactly_when_there_is_more(store: CellStore, driver: UUID) -> None:
    for _ in range(4):
        put_trip(store, driver)

    assert ask(store, driver, limit=3).cursor is not None
    assert ask(store, driver, limit=4).cursor is None
    assert ask(store, driver, limit=5).cursor is None
    assert ask(store, driver, limit=100_000).cursor is None


@pytest.mark.parametrize("descending", [False, True])
def test_entries_that_come_and_go_between_pages_neither_repeat_nor_hide_others(
    store: CellStore, driver: UUID, descending: bool
) -> None:
    options: dict[str, Any] = {"order_by": "seats", "descending": descending, "limit": 4}
    keys = [put_trip(store, driver, seats=seats) for seats in range(0, 20, 2)]
    expected = keys[::-1] if descending else keys
    first = ask(store, driver, **options)

    for seats in range(-1, 21, 2):
        put_trip(store, driver, seats=seats)
    put(store, rows(first)[-1], None, ref_key=2)  # the entry that the cursor stands on
    settle(store)

    later: list[UUID] = []
    page = first
    while page.cursor:
        page = ask(store, driver, cursor=page.cursor, **options)
        later += rows(page)
    assert rows(first) == expected[:4]
    assert [key for key in later if key in keys] == expected[4:]
    assert len(set(later)) == len(later)
    assert not set(later) & set(rows(first))


def test_a_cursor_serves_both_consistencies_and_other_limits(store: CellStore, driver: UUID) -> None:
    keys = [put_trip(store, driver) for _ in range(6)]
    settle(store)

    first = store.query_index("trips_of_driver", driver, limit=2, consistency="verified")
    second = store.query_index("trips_of_driver", driver, limit=3, cursor=first.cursor, fields=[])
    third = store.query_index("trips_of_driver", driver, cursor=second.cursor, columns="*", consistency="verified")

    assert rows(first) + rows(second) + rows(third) == keys
    assert third.cursor is None


def test_pages_of_filtered_entries_are_full(store: CellStore, driver: UUID) -> None:
    keys = [put_trip(store, driver, seats=number % 5) for number in range(30)]

    pages = all_pages(store, driver, where=[("seats", "=", 3)], limit=4)

    assert [rows(page) for page in pages] == [keys[3::5][:4], keys[3::5][4:]]
