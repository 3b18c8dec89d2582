"""Which entries a condition finds, and in which order they come."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest

from schemaless_core import (
    CellStore,
    Condition,
    Json,
)
from tests.contract.query_index.asking import found, new_row, put, put_trip
from tests.facades import FACADES_IN_SHORT
from tests.legacy_databases import FLAVOURS
from tests.stores import HTTP_STORES, STORE_ENGINES

pytestmark = pytest.mark.parametrize(
    "cell_store", [*STORE_ENGINES, *FLAVOURS, *FACADES_IN_SHORT, *HTTP_STORES], indirect=True
)


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
