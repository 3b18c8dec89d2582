"""Which entries an index has: those of the latest cells, whatever the order in which cells came."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest

from schemaless_core import (
    Cell,
    CellStore,
    Json,
)
from tests.contract.query_index.asking import Indexed, ask, found, new_row, put, put_trip, rows, settle
from tests.facades import FACADES_IN_SHORT
from tests.legacy_databases import FLAVOURS
from tests.stores import HTTP_STORES, STORE_ENGINES, Stores


def shard_index(kind: str) -> dict[str, Json]:
    """An index whose shard field has this type."""
    fields: list[Json] = [{"field": f"{kind.lower()}_value", "type": kind}, {"field": "test", "type": "string"}]
    return {"table": f"by_{kind.lower()}", "column_defs": [{"column_key": "BASE", "fields": fields}]}


pytestmark = pytest.mark.parametrize(
    "cell_store", [*STORE_ENGINES, *FLAVOURS, *FACADES_IN_SHORT, *HTTP_STORES], indirect=True
)


KINDS = ("UUID", "string", "int", "float", "decimal", "boolean", "datetime")


KIND_DEFINITIONS: list[Json] = [shard_index(kind) for kind in KINDS]


FIELDS = [
    "driver", "city", "seats", "distance", "is_shared", "created_at", "rider", "fare", "status", "attempts",
]  # fmt: skip


@pytest.fixture(scope="module")
def stores_of_kinds(stores: Stores) -> Indexed:
    """The same with the others: each cell that is put concerns all indexes of its store."""
    return Indexed(stores, KIND_DEFINITIONS)


@pytest.fixture
def store_of_kinds(cell_store: str, stores_of_kinds: Indexed) -> CellStore:
    """A store with an index for each type of shard field."""
    return stores_of_kinds[cell_store]


def test_the_index_of_the_article_finds_the_trips_of_a_driver_in_a_city_since_a_time(store: CellStore) -> None:
    driver, city, other_city = uuid4(), uuid4(), uuid4()

    def trip(of: UUID, at: UUID, hour: int) -> UUID:
        created_at = f"2026-11-20T{hour:02}:00:00.000000Z"
        body: Json = {"driver_partner_uuid": of.hex, "city_uuid": str(at), "trip_created_at": created_at, "fare": 3}
        return put(store, new_row(), body)

    early, late, elsewhere = trip(driver, city, 9), trip(driver, city, 11), trip(driver, other_city, 11)
    trip(uuid4(), city, 11)
    settle(store, "driver_partner_index")

    page = store.query_index(
        "driver_partner_index",
        driver,
        [("city_uuid", "=", city), ("trip_created_at", ">=", datetime(2026, 11, 20, 10, tzinfo=UTC))],
    )

    assert rows(page) == [late]
    assert page.entries[0].fields == {
        "driver_partner_uuid": driver,
        "city_uuid": city,
        "trip_created_at": datetime(2026, 11, 20, 11, tzinfo=UTC),
    }
    assert page.entries[0].cells is None
    assert page.cursor is None
    assert rows(store.query_index("driver_partner_index", driver)) == [early, late, elsewhere]


def test_a_shard_value_that_no_row_has_finds_nothing(store: CellStore, driver: UUID) -> None:
    page = ask(store, driver)

    assert (page.entries, page.cursor) == ([], None)


def test_fields_come_in_their_types_python_form(store: CellStore, driver: UUID) -> None:
    rider = uuid4()
    row_key = put_trip(
        store,
        driver,
        city="Århus\0🚕",
        seats=-(2**63),
        distance=12,
        is_shared=False,
        created_at="2026-11-20T14:00:00.000001+02:00",
        rider=rider.hex.upper(),
    )
    put(store, row_key, {"fare": "12345678901234567890123456789012345.50"}, column="FARE")

    fields = ask(store, driver).entries[0].fields

    created_at = datetime(2026, 11, 20, 12, 0, 0, 1, UTC)
    fare = Decimal("12345678901234567890123456789012345.5")
    expected = [driver, "Århus\0🚕", -(2**63), 12.0, False, created_at, rider, fare, None, None]
    assert list(fields) == FIELDS
    assert list(fields.values()) == expected
    assert [type(value) for value in fields.values()] == [type(value) for value in expected]


def test_a_row_without_a_shard_value_has_no_entry_until_it_gets_one(store: CellStore, driver: UUID) -> None:
    row_key = put(store, new_row(), {"city": "Aarhus"})
    put(store, row_key, {"status": "paid"}, column="STATUS")
    assert found(store, driver) == []

    put(store, row_key, {"driver": str(driver), "city": "Odense"}, ref_key=2)

    entry = ask(store, driver).entries[0]
    assert (entry.row_key, entry.fields["city"], entry.fields["status"]) == (row_key, "Odense", "paid")


@pytest.mark.parametrize("shard_field", [None, "no uuid", 7, [], {}])
def test_a_shard_value_that_does_not_parse_is_none(store: CellStore, driver: UUID, shard_field: Json) -> None:
    row_key = put_trip(store, driver)

    put(store, row_key, {"driver": shard_field}, ref_key=2)

    assert found(store, driver) == []


@pytest.mark.parametrize("order", list(itertools.permutations(["BASE", "FARE", "STATUS"])), ids="-".join)
def test_columns_may_arrive_in_any_order(store: CellStore, driver: UUID, order: Sequence[str]) -> None:
    bodies: dict[str, Json] = {
        "BASE": {"driver": str(driver), "city": "Aarhus"},
        "FARE": {"fare": 12.5},
        "STATUS": {"status": "paid", "attempts": 2},
    }
    row_key = new_row()

    for column in order:
        put(store, row_key, bodies[column], column=column)
        settle(store)

    fields = ask(store, driver).entries[0].fields
    assert [fields[name] for name in ("city", "fare", "status", "attempts")] == ["Aarhus", Decimal("12.5"), "paid", 2]


def test_an_entry_follows_the_latest_cells_of_each_column(store: CellStore, driver: UUID) -> None:
    row_key = put_trip(store, driver, city="Aarhus")
    for ref_key, status in enumerate(["asked", "refused", "paid"], start=1):
        put(store, row_key, {"status": status}, column="STATUS", ref_key=ref_key)

        assert ask(store, driver).entries[0].fields["status"] == status

    put(store, row_key, {"driver": str(driver), "seats": 3}, ref_key=2)

    fields = ask(store, driver).entries[0].fields
    assert (fields["city"], fields["seats"], fields["status"]) == (None, 3, "paid")


def test_an_older_version_arriving_late_changes_nothing(store: CellStore, driver: UUID) -> None:
    row_key = put(store, new_row(), {"driver": str(driver), "city": "Odense"}, ref_key=5)
    put(store, row_key, {"status": "paid"}, column="STATUS", ref_key=5)
    settle(store)

    put(store, row_key, {"driver": str(driver), "city": "Aarhus"}, ref_key=3)
    put(store, row_key, None, ref_key=4)
    put(store, row_key, {"status": "asked"}, column="STATUS", ref_key=-1)

    (entry,) = ask(store, driver).entries
    assert (entry.fields["city"], entry.fields["status"]) == ("Odense", "paid")


def test_a_cell_put_again_changes_nothing(store: CellStore, driver: UUID) -> None:
    row_key = put_trip(store, driver, city="Aarhus")
    put(store, row_key, {"driver": str(driver), "city": "Odense"}, ref_key=2)
    settle(store)

    put(store, row_key, {"driver": str(driver), "city": "Aarhus"})

    assert [entry.fields["city"] for entry in ask(store, driver).entries] == ["Odense"]


def test_a_changed_shard_field_moves_the_entry(store: CellStore, driver: UUID) -> None:
    other = uuid4()
    row_key = put_trip(store, driver, city="Aarhus")
    put(store, row_key, {"fare": 5}, column="FARE")
    assert found(store, driver) == [row_key]

    put(store, row_key, {"driver": str(other), "city": "Odense"}, ref_key=2)

    assert found(store, driver) == []
    (entry,) = ask(store, other).entries
    assert (entry.row_key, entry.fields["city"], entry.fields["fare"]) == (row_key, "Odense", Decimal(5))


def test_an_entry_may_move_away_and_back(store: CellStore, driver: UUID) -> None:
    other = uuid4()
    row_key = put_trip(store, driver)
    for ref_key, who in enumerate([other, driver, other, driver], start=2):
        put(store, row_key, {"driver": str(who), "seats": ref_key}, ref_key=ref_key)
        settle(store)

    assert found(store, other) == []
    assert [entry.fields["seats"] for entry in ask(store, driver).entries] == [5]


@pytest.mark.parametrize("order", list(itertools.permutations([1, 2, 3, 4])), ids=str)
def test_no_order_of_arrival_leaves_a_stale_entry(store: CellStore, order: Sequence[int]) -> None:
    """Drivers change, and between two of them the row was deleted."""
    drivers = {ref_key: uuid4() for ref_key in (1, 2, 4)}
    row_key = new_row()

    for ref_key in order:
        who = drivers.get(ref_key)
        put(store, row_key, {"driver": str(who), "seats": ref_key} if who else None, ref_key=ref_key)
        settle(store)

    assert [found(store, who) for who in drivers.values()] == [[], [], [row_key]]
    assert ask(store, drivers[4]).entries[0].fields["seats"] == 4


def test_an_older_version_arriving_late_never_brings_an_old_entry_back(store: CellStore, driver: UUID) -> None:
    now = uuid4()
    row_key = put(store, new_row(), {"driver": str(now)}, ref_key=9)
    settle(store)

    put(store, row_key, {"driver": str(driver)}, ref_key=2)
    put(store, row_key, {"fare": 1}, column="FARE")

    assert found(store, driver) == []
    assert found(store, now) == [row_key]


def test_a_tombstone_of_the_shard_column_takes_the_row_out_until_a_new_version_puts_it_back(
    store: CellStore, driver: UUID
) -> None:
    row_key = put_trip(store, driver)
    put(store, row_key, {"fare": 7}, column="FARE")
    assert found(store, driver) == [row_key]

    put(store, row_key, None, ref_key=2)
    assert found(store, driver) == []

    put(store, row_key, {"status": "paid"}, column="STATUS")
    assert found(store, driver) == []

    put(store, row_key, {"driver": str(driver)}, ref_key=3)
    fields = ask(store, driver).entries[0].fields
    assert (fields["fare"], fields["status"]) == (Decimal(7), "paid")


def test_a_tombstone_of_another_column_leaves_the_entry_without_its_fields(store: CellStore, driver: UUID) -> None:
    row_key = put_trip(store, driver)
    put(store, row_key, {"status": "paid", "attempts": 1}, column="STATUS")
    settle(store)

    put(store, row_key, None, column="STATUS", ref_key=2)

    fields = ask(store, driver).entries[0].fields
    assert (fields["status"], fields["attempts"]) == (None, None)


def test_a_body_that_is_no_object_counts_as_one_without_the_fields(store: CellStore, driver: UUID) -> None:
    row_key, gone = put_trip(store, driver), put_trip(store, driver)

    put(store, row_key, ["paid"], column="STATUS")
    put(store, gone, "no object", ref_key=2)

    (entry,) = ask(store, driver).entries
    assert (entry.row_key, entry.fields["status"]) == (row_key, None)


def test_a_value_that_is_none_of_its_type_leaves_only_its_own_field_missing(store: CellStore, driver: UUID) -> None:
    put_trip(store, driver, city="x" * 513, seats="four", distance=1.5, is_shared=1, created_at="2026-11-20T12:00:00")

    fields = ask(store, driver).entries[0].fields

    assert [name for name, value in fields.items() if value is not None] == ["driver", "distance"]


def test_a_batch_is_indexed_like_single_puts(store: CellStore, driver: UUID) -> None:
    keys = sorted(new_row() for _ in range(50))

    store.put_cells([Cell(key, "BASE", 1, {"driver": str(driver)}) for key in keys])

    assert found(store, driver) == keys


def test_columns_of_no_index_are_left_alone(store: CellStore, driver: UUID) -> None:
    put(store, new_row(), {"driver": str(driver)}, column="NOTES")

    assert found(store, driver) == []


@pytest.mark.parametrize(
    ("kind", "value", "others", "same"),
    [
        ("UUID", UUID(int=77), [UUID(int=78)], [str(UUID(int=77)), UUID(int=77).hex]),
        ("string", "Århus", ["århus", "Århus ", "Arhus", ""], []),
        ("string", "", [" ", "\0"], []),
        ("int", -7, [7, 0, 2**63 - 1], []),
        ("float", 0.0, [1e-300, -5.5], [0, -0.0]),
        ("decimal", Decimal("12.50"), [Decimal("12.51"), "-12.5"], ["12.5", Decimal("12.500"), "1250e-2"]),
        ("boolean", True, [False], []),
        (
            "datetime",
            datetime(2026, 11, 20, 12, tzinfo=UTC),
            [datetime(2026, 11, 20, 12, 0, 0, 1, UTC)],
            ["2026-11-20T12:00:00Z", datetime(2026, 11, 20, 13, tzinfo=timezone(timedelta(hours=1)))],
        ),
    ],
)
def test_a_shard_field_of_any_type_finds_equal_values_and_no_others(
    store_of_kinds: CellStore, kind: str, value: Any, others: list[Any], same: list[Any]
) -> None:
    store = store_of_kinds
    name, mark = f"by_{kind.lower()}", uuid4().hex

    def trip(given: Any) -> UUID:
        as_json = given.isoformat() if isinstance(given, datetime) else given
        body = as_json if type(as_json) in (bool, int, float) else str(as_json)
        return put(store, new_row(), {f"{kind.lower()}_value": body, "test": mark})

    wanted = [trip(each) for each in [value, *same]]
    for other in others:
        trip(other)
    settle(store, name)

    for asked in [value, *same]:
        assert rows(store.query_index(name, asked, [("test", "=", mark)])) == wanted
