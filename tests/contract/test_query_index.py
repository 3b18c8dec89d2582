"""What callers may rely on for indexes, whichever store stands behind them. A store earns its place by passing it.

The store is shared: each test asks for a shard value of its own.
"""

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
    Condition,
    Datastore,
    IndexPage,
    Invalid,
    InvalidRequest,
    Json,
    Scalar,
)
from schemaless_core.indexes import lookup
from tests.facades import FACADES_IN_SHORT, Carrying
from tests.indexing import catch_up
from tests.legacy_databases import FLAVOURS
from tests.stores import STORE_ENGINES, Stores
from tripstore.backends.postgres.queries import queries


def shard_index(kind: str) -> dict[str, Json]:
    """An index whose shard field has this type."""
    fields: list[Json] = [{"field": f"{kind.lower()}_value", "type": kind}, {"field": "test", "type": "string"}]
    return {"table": f"by_{kind.lower()}", "column_defs": [{"column_key": "BASE", "fields": fields}]}


pytestmark = pytest.mark.parametrize("cell_store", [*STORE_ENGINES, *FLAVOURS, *FACADES_IN_SHORT], indirect=True)

KINDS = ("UUID", "string", "int", "float", "decimal", "boolean", "datetime")
DEFINITIONS: list[Json] = [
    {
        "table": "driver_partner_index",
        "column_defs": [
            {
                "column_key": "BASE",
                "fields": [
                    {"field": "driver_partner_uuid", "type": "UUID"},
                    {"field": "city_uuid", "type": "UUID"},
                    {"field": "trip_created_at", "type": "datetime"},
                ],
            }
        ],
    },
    {
        "table": "trips_of_driver",
        "column_defs": [
            {
                "column_key": "BASE",
                "fields": [
                    {"field": "driver", "type": "UUID"},
                    {"field": "city", "type": "string"},
                    {"field": "seats", "type": "int"},
                    {"field": "distance", "type": "float"},
                    {"field": "is_shared", "type": "boolean"},
                    {"field": "created_at", "type": "datetime"},
                    {"field": "rider", "type": "UUID"},
                ],
            },
            {"column_key": "FARE", "fields": [{"field": "fare", "type": "decimal"}]},
            {
                "column_key": "STATUS",
                "fields": [{"field": "status", "type": "string"}, {"field": "attempts", "type": "int"}],
            },
        ],
    },
]
KIND_DEFINITIONS: list[Json] = [shard_index(kind) for kind in KINDS]
FIELDS = [
    "driver", "city", "seats", "distance", "is_shared", "created_at", "rider", "fare", "status", "attempts",
]  # fmt: skip


@pytest.fixture(autouse=True)
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries look at so few entries, cells and rows at once that they must come back for more."""
    monkeypatch.setattr(lookup, "ENTRIES_PER_PAGE", 2)
    monkeypatch.setattr(lookup, "CELLS_PER_PAGE", 3)
    monkeypatch.setattr(queries, "ROWS_PER_PORTION", 3)


class Indexed(dict[str, CellStore]):
    """One store per engine with the same indexes."""

    def __init__(self, stores: Stores, definitions: Sequence[Json]) -> None:
        self._stores = stores
        self._definitions = definitions

    def __missing__(self, engine: str) -> CellStore:
        made = self._stores.fresh_store(engine, shards=4, indexes=self._definitions)
        # The oracle looks at every row for each question, so each test gets an empty one.
        return made if engine == "memory" else self.setdefault(engine, made)


@pytest.fixture(scope="module")
def indexed_stores(stores: Stores) -> Indexed:
    """Stores with the first indexes above, for most tests of this file."""
    return Indexed(stores, DEFINITIONS)


def settle(store: CellStore, index: str = "trips_of_driver") -> None:
    """Write whatever entries of an index are not written yet. Only a datastore has any to write, or a facade's."""
    if isinstance(store, Datastore):
        catch_up(store, index)
    elif isinstance(store, Carrying):
        store.settle()


@pytest.fixture
def store(cell_store: str, indexed_stores: Indexed) -> CellStore:
    return indexed_stores[cell_store]


@pytest.fixture(scope="module")
def stores_of_kinds(stores: Stores) -> Indexed:
    """The same with the others: each cell that is put concerns all indexes of its store."""
    return Indexed(stores, KIND_DEFINITIONS)


@pytest.fixture
def store_of_kinds(cell_store: str, stores_of_kinds: Indexed) -> CellStore:
    """A store with an index for each type of shard field."""
    return stores_of_kinds[cell_store]


@pytest.fixture
def driver() -> UUID:
    return uuid4()


_row_numbers = itertools.count(1)


def new_row() -> UUID:
    """Row keys of a test grow in the order of their making, whatever their shards."""
    return UUID(int=next(_row_numbers) << 64 | uuid4().int & (2**64 - 1))


def put(store: CellStore, row_key: UUID, body: Json, *, column: str = "BASE", ref_key: int = 1) -> UUID:
    store.put_cell(row_key, column, ref_key, body)
    return row_key


def put_trip(store: CellStore, driver: UUID, **fields: Json) -> UUID:
    """A new row whose BASE names the driver."""
    return put(store, new_row(), {"driver": str(driver), **fields})


def ask(store: CellStore, shard_value: Scalar, where: Sequence[Condition] = (), **options: Any) -> IndexPage:
    """The same answer from both consistencies, once everything is settled."""
    settle(store)
    fast = store.query_index("trips_of_driver", shard_value, where, consistency="fast", **options)
    verified = store.query_index("trips_of_driver", shard_value, where, consistency="verified", **options)
    assert verified.entries == fast.entries
    return fast


def rows(page: IndexPage) -> list[UUID]:
    return [entry.row_key for entry in page.entries]


def found(store: CellStore, shard_value: Scalar, where: Sequence[Condition] = (), **options: Any) -> list[UUID]:
    return rows(ask(store, shard_value, where, **options))


# --------------------------------------------------------------------------------------------------- entries


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


@pytest.mark.parametrize("shard_field", [None, "nobody", 7, [], {}])
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


# ------------------------------------------------------------------------------------------------ conditions

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
#: Three values of each type in their order, as bodies hold them and as callers name them.
THREE: dict[str, tuple[list[Json], list[Any]]] = {
    "city": (["", "Zoo", "Århus"], ["", "Zoo", "Århus"]),
    "seats": ([-5, 0, 2**40], [-5, 0, 2**40]),
    "distance": ([-1.5, 0, 1e10], [-1.5, 0.0, 1e10]),
    "created_at": (
        ["2026-11-20T12:00:00Z", "2026-11-20T13:00:00.000001+01:00", "2026-11-20T12:00:01Z"],
        [NOON, NOON + timedelta(microseconds=1), NOON + timedelta(seconds=1)],
    ),
    "rider": (
        [str(UUID(int=1)), str(UUID(int=2**64)), str(UUID(int=2**127))],
        [UUID(int=1), UUID(int=2**64), UUID(int=2**127)],
    ),
    "fare": (["-3", "10.00", "10.000000000000000000000000000001"],
             [Decimal(-3), Decimal(10), Decimal("10.000000000000000000000000000001")]),
    "status": (["B", "a", "a "], ["B", "a", "a "]),
    "attempts": ([1, 2, 10], [1, 2, 10]),
}  # fmt: skip
COLUMN_OF = {"fare": "FARE", "status": "STATUS", "attempts": "STATUS"}


def put_three(store: CellStore, driver: UUID, field: str) -> tuple[list[UUID], list[Any]]:
    """Rows with the three values of a field in their order, and one where it is missing; the values as callers name."""
    bodies, values = THREE[field]
    keys = [new_row() for _ in bodies]
    for key, body in zip(keys, bodies, strict=True):
        if field in COLUMN_OF:
            put(store, key, {"driver": str(driver)})
            put(store, key, {field: body}, column=COLUMN_OF[field])
        else:
            put(store, key, {"driver": str(driver), field: body})
    put_trip(store, driver)
    return keys, values


@pytest.mark.parametrize("field", THREE)
def test_every_operator_compares_by_value_and_leaves_missing_fields_out(
    store: CellStore, driver: UUID, field: str
) -> None:
    (low, middle, high), (a, b, c) = put_three(store, driver, field)
    expected: list[tuple[Condition, list[UUID]]] = [
        ((field, "=", b), [middle]),
        ((field, "!=", b), [low, high]),
        ((field, "<", b), [low]),
        ((field, "<=", b), [low, middle]),
        ((field, ">", b), [high]),
        ((field, ">=", b), [middle, high]),
        ((field, "in", [c, a]), [low, high]),
        ((field, "in", {b}), [middle]),
        ((field, "in", ()), []),
        ((field, "between", (a, b)), [low, middle]),
        ((field, "between", [a, c]), [low, middle, high]),
        ((field, "between", (c, a)), []),
    ]

    for condition, keys in expected:
        assert found(store, driver, [condition]) == keys, condition


@pytest.mark.parametrize("field", THREE)
def test_order_by_a_field_puts_missing_ones_first_and_descending_is_the_reverse(
    store: CellStore, driver: UUID, field: str
) -> None:
    keys, _values = put_three(store, driver, field)
    missing = next(key for key in found(store, driver) if key not in keys)

    assert found(store, driver, order_by=field) == [missing, *keys]
    assert found(store, driver, order_by=field, descending=True) == [*keys[::-1], missing]


def test_booleans_compare_with_false_first(store: CellStore, driver: UUID) -> None:
    shared, alone = put_trip(store, driver, is_shared=True), put_trip(store, driver, is_shared=False)
    unknown = put_trip(store, driver)

    assert found(store, driver, [("is_shared", "=", True)]) == [shared]
    assert found(store, driver, [("is_shared", "!=", True)]) == [alone]
    assert found(store, driver, [("is_shared", "<", True)]) == [alone]
    assert found(store, driver, [("is_shared", "in", [True, False])]) == [shared, alone]
    assert found(store, driver, order_by="is_shared") == [unknown, alone, shared]


def test_conditions_on_fields_of_several_columns_must_all_hold(store: CellStore, driver: UUID) -> None:
    def trip(city: str, status: str) -> UUID:
        return put(store, put_trip(store, driver, city=city), {"status": status}, column="STATUS")

    wanted = trip("Aarhus", "paid")
    trip("Aarhus", "asked")
    trip("Odense", "paid")

    assert found(store, driver, [("city", "=", "Aarhus"), ("status", "=", "paid")]) == [wanted]
    assert found(store, driver, [("city", "=", "Aarhus"), ("city", "=", "Odense")]) == []


def test_the_shard_field_takes_conditions_too(store: CellStore, driver: UUID) -> None:
    row_key = put_trip(store, driver)

    assert found(store, driver, [("driver", "=", driver)]) == [row_key]
    assert found(store, driver, [("driver", "!=", driver)]) == []
    assert found(store, driver, order_by="driver", descending=True) == [row_key]


def test_text_is_text_whatever_it_means_to_a_database(store: CellStore, driver: UUID) -> None:
    texts = ["%", "_", "a'b", 'a"b', "a\\b", "a\nb", "a\0b", "%s", ":x", "?", "-- ", "NULL", "🚕", "é", "e\u0301"]
    keys = {text: put_trip(store, driver, city=text) for text in texts}

    for text, key in keys.items():
        assert found(store, driver, [("city", "=", text)]) == [key], text
        assert found(store, driver, [("city", "in", [text])]) == [key], text
    by_bytes = sorted(texts, key=str.encode)
    assert found(store, driver, order_by="city") == [keys[text] for text in by_bytes]


def test_the_extremes_of_every_type_are_found_and_ordered(store: CellStore, driver: UUID) -> None:
    extremes: dict[str, list[Any]] = {
        "seats": [-(2**63), 2**63 - 1],
        "distance": [-1.7976931348623157e308, 2.2250738585072014e-308, 1.7976931348623157e308],
        "created_at": ["1000-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"],
        "city": ["", "\U0010ffff" * 128],
    }
    for field, values in extremes.items():
        of = uuid4()
        keys = [put_trip(store, of, **{field: value}) for value in values]

        assert found(store, of, order_by=field, descending=True) == keys[::-1]
        for key, value in zip(keys, values, strict=True):
            assert found(store, of, [(field, "=", value)]) == [key]


# ------------------------------------------------------------------------------------------ fields and columns


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


# ---------------------------------------------------------------------------------------------- order and pages


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


# ------------------------------------------------------------------------------------------------- wrong input


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"index": "trips_of_drivers"}, "There is no index 'trips_of_drivers'. Did you mean trips_of_driver?"),
        ({"index": "zzz"}, "Indexes: driver_partner_index, "),
        ({"index": "trips_of_driver_v1"}, "There is no index"),
        ({"index": None}, "There is no index None"),
        ({"index": ["trips_of_driver"]}, "There is no index"),
        ({"shard_value": None}, "The shard value, driver is None"),
        ({"shard_value": "nobody"}, "is no UUID"),
        ({"shard_value": 7}, "is no UUID"),
        ({"where": [("citi", "=", "Aarhus")]}, "Did you mean city?"),
        ({"where": [("city", "==", "Aarhus")]}, "Did you mean '='?"),
        ({"where": [("city", "like", "Aarhus")]}, "Operators: ="),
        ({"where": [("city", "=", None)]}, "A missing field"),
        ({"where": [("city", "=", b"Aarhus")]}, "is no string"),
        ({"where": [("city", "=", "x" * 513)]}, "longer than 512 bytes"),
        ({"where": [("city", "=", "\ud800")]}, "lone surrogate"),
        ({"where": [("seats", "=", True)]}, "is no int: it is a bool"),
        ({"where": [("seats", "=", 2**63)]}, "64 bits"),
        ({"where": [("distance", "=", float("nan"))]}, "not finite"),
        ({"where": [("is_shared", "=", 1)]}, "is no boolean: it is a int"),
        ({"where": [("fare", "=", 0.1)]}, "is no decimal: it is a float"),
        ({"where": [("created_at", ">", datetime(2026, 1, 1))]}, "it has no time zone"),  # noqa: DTZ001  # on purpose
        ({"where": [("created_at", ">", "2026-01-01T00:00:00")]}, "it has no offset from UTC"),
        ({"where": [("city", "in", "Aarhus")]}, "Pass a list of values"),
        ({"where": [("city", "between", ["a"])]}, "(low, high)"),
        ({"where": ("city", "=", "Aarhus")}, "is no condition"),
        ({"where": "city = Aarhus"}, "is no list of conditions"),
        ({"fields": ["town"]}, "has no field 'town'"),
        ({"fields": "city"}, "Pass ['city']"),
        ({"columns": "BASE"}, "Pass ['BASE'], or \"*\""),
        ({"columns": [""]}, "is empty"),
        ({"order_by": "row_key"}, "has no field 'row_key'"),
        ({"descending": "yes"}, "descending='yes'"),
        ({"limit": 0}, "The limit 0"),
        ({"limit": True}, "The limit True"),
        ({"limit": 10**6}, "The limit 1000000"),
        ({"cursor": "garbage"}, "'garbage' is no cursor"),
        ({"cursor": 5}, "5 is no cursor"),
        ({"consistency": "strong"}, "consistency='strong' is unknown"),
    ],
)
def test_a_wrong_call_is_refused_with_a_way_out(store: CellStore, driver: UUID, changes: Any, says: str) -> None:
    call: Any = {"index": "trips_of_driver", "shard_value": driver} | changes

    with pytest.raises(Invalid) as refused:
        store.query_index(**call)

    assert says in str(refused.value)
    assert refused.value.hint


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"shard_value": UUID(int=1)}, "another shard value or other conditions"),
        ({"where": [("city", "=", "Odense")]}, "another shard value or other conditions"),
        ({"where": ()}, "another shard value or other conditions"),
        ({"order_by": "city"}, "in the order of 'seats (int)'"),
        ({"order_by": None}, "in the order of 'seats (int)'"),
        ({"descending": True}, "in the other direction"),
        ({"index": "driver_partner_index", "where": (), "order_by": None}, "of index 'trips_of_driver'"),
    ],
)
def test_a_cursor_of_another_query_is_refused(store: CellStore, driver: UUID, changes: Any, says: str) -> None:
    for seats in (1, 2):
        put_trip(store, driver, city="Aarhus", seats=seats)
    settle(store)
    call: Any = {
        "index": "trips_of_driver",
        "shard_value": driver,
        "where": [("city", "=", "Aarhus")],
        "order_by": "seats",
    }
    cursor = store.query_index(**call, limit=1).cursor
    assert cursor is not None
    assert len(store.query_index(**call, cursor=cursor).entries) == 1

    with pytest.raises(InvalidRequest) as refused:
        store.query_index(**(call | changes), cursor=cursor)

    assert says in str(refused.value)
    assert refused.value.hint
