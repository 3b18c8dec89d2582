"""A query is checked in full before anything is asked; it says which entries it holds for, and in which order."""

from __future__ import annotations

import random
from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemaless_core import InvalidCell, InvalidRequest, MemoryStore, Scalar
from schemaless_core.definitions.index import IndexDefinition, IndexField, SourceColumn
from schemaless_core.definitions.query import (
    OPERATORS,
    After,
    Query,
    build_query,
    check_cells_asked,
    check_consistency,
    unknown_index,
)
from schemaless_core.definitions.values import IndexFieldType

DRIVER, ROW = UUID(int=7), UUID(int=1)
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
BY_DRIVER = IndexDefinition(
    "by_driver",
    "trips",
    (
        SourceColumn(
            "BASE", (IndexField("driver", IndexFieldType.UUID), IndexField("created_at", IndexFieldType.DATETIME))
        ),
        SourceColumn("FARE", (IndexField("fare", IndexFieldType.DECIMAL), IndexField("city", IndexFieldType.STRING))),
    ),
)
Values = tuple[Scalar | None, ...]
TRIP: Values = (DRIVER, NOON, Decimal("12.5"), "Aarhus")


def build(definition: IndexDefinition = BY_DRIVER, /, **changes: Any) -> Query:
    call: dict[str, Any] = {
        "shard_value": DRIVER,
        "where": (),
        "fields": None,
        "order_by": None,
        "descending": False,
        "limit": 10,
        "cursor": None,
    }
    return build_query(definition, **(call | changes))


def refused(**changes: Any) -> str:
    with pytest.raises(InvalidRequest) as raised:
        build(**changes)
    assert raised.value.hint
    return str(raised.value)


# ------------------------------------------------------------------------------------------------- conditions


def test_a_query_without_conditions_holds_for_its_shard_value_only() -> None:
    query = build()

    assert query.holds(TRIP)
    assert not query.holds((UUID(int=8), *TRIP[1:]))
    assert not query.holds((None, *TRIP[1:]))


@pytest.mark.parametrize(
    ("operator", "value", "holds_for"),
    [
        ("=", "b", ["b"]),
        ("!=", "b", ["a", "c"]),
        ("<", "b", ["a"]),
        ("<=", "b", ["a", "b"]),
        (">", "b", ["c"]),
        (">=", "b", ["b", "c"]),
        ("in", ["a", "c", "z"], ["a", "c"]),
        ("in", {"b"}, ["b"]),
        ("in", [], []),
        ("between", ("a", "b"), ["a", "b"]),
        ("between", ["b", "a"], []),
    ],
)
def test_each_operator_holds_for_what_it_says(operator: str, value: Any, holds_for: list[str]) -> None:
    query = build(where=[("city", operator, value)])

    assert [city for city in "abc" if query.holds((DRIVER, None, None, city))] == holds_for


@pytest.mark.parametrize("operator", OPERATORS)
def test_no_condition_holds_for_a_missing_field(operator: str) -> None:
    value = ("", "z") if operator in ("in", "between") else "b"

    assert not build(where=[("city", operator, value)]).holds((DRIVER, NOON, None, None))


def test_all_conditions_must_hold() -> None:
    assert build(where=[("city", "=", "Aarhus"), ("fare", ">", 10)]).holds(TRIP)
    assert not build(where=[("city", "=", "Aarhus"), ("fare", ">", 20)]).holds(TRIP)


def test_values_are_compared_by_value_in_their_types_form() -> None:
    same_time = (NOON + timedelta(hours=1)).isoformat().replace("+00:00", "+01:00")

    query = build(shard_value=str(DRIVER), where=[("fare", "=", "12.50"), ("created_at", "=", same_time)])

    assert query.holds(TRIP)
    assert query.shard_value == DRIVER


@pytest.mark.parametrize(
    ("where", "says"),
    [
        (None, "where=None is no list of conditions"),
        ("city", "where='city' is no list of conditions"),
        ({"city": "Aarhus"}, "no list of conditions"),
        (("city", "=", "Aarhus"), "'city' is no condition"),
        ([("city", "Aarhus")], "is no condition"),
        (["abc"], "'abc' is no condition"),
        ([("town", "=", "Aarhus")], "has no field 'town'"),
        ([("citi", "=", "Aarhus")], "Did you mean city?"),
        ([(5, "=", "Aarhus")], "has no field 5"),
        ([("city", "==", "Aarhus")], "Did you mean '='?"),
        ([("city", "<>", "Aarhus")], "Did you mean '!='?"),
        ([("city", "like", "A%")], "Operators: = != < <= > >= in between."),
        ([("city", None, "Aarhus")], "None is no operator"),
        ([("city", [], "Aarhus")], "[] is no operator"),
        ([("city", "=", None)], "is None"),
        ([("city", "=", 5)], "is no string: it is a int"),
        ([("city", "in", "Aarhus")], "city cannot be in 'Aarhus'"),
        ([("city", "in", 5)], "Pass a list of values"),
        ([("city", "in", (name for name in "ab"))], "Pass a list of values"),
        ([("city", "in", ["a", None])], "is None"),
        ([("city", "in", [str(n) for n in range(1001)])], "1001 values"),
        ([("city", "between", "ab")], "city cannot be between 'ab'"),
        ([("city", "between", ("a", "b", "c"))], "(low, high)"),
        ([("city", "between", {"a", "b"})], "(low, high)"),
        ([("fare", "=", 0.1)], "is no decimal: it is a float"),
        ([("fare", "=", True)], "is no decimal: it is a bool"),
        ([("created_at", ">", datetime(2026, 1, 1))], "it has no time zone"),  # noqa: DTZ001  # naive on purpose
        ([("city", "=", "a")] * 101, "101 conditions"),
    ],
)  # fmt: skip
def test_conditions_that_cannot_be_are_refused(where: Any, says: str) -> None:
    assert says in refused(where=where)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"shard_value": None}, "The shard value, driver is None"),
        ({"shard_value": "no uuid"}, "is no UUID"),
        ({"shard_value": 7}, "it is a int"),
        ({"limit": 0}, "The limit 0"),
        ({"limit": True}, "The limit True"),
        ({"limit": 2.0}, "The limit 2.0"),
        ({"limit": 100_001}, "The limit 100001"),
        ({"descending": 1}, "descending=1"),
        ({"descending": None}, "descending=None"),
        ({"order_by": "far"}, "Did you mean fare?"),
        ({"order_by": "row_key"}, "has no field 'row_key'"),
        ({"order_by": ["fare"]}, "has no field ['fare']"),
        ({"fields": "fare"}, "Pass ['fare']"),
        ({"fields": 5}, "fields=5 is no list"),
        ({"fields": ["fare", "town"]}, "has no field 'town'"),
        ({"fields": [None]}, "has no field None"),
    ],
)
def test_a_call_that_cannot_be_is_refused(changes: Any, says: str) -> None:
    assert says in refused(**changes)


@pytest.mark.parametrize("columns", [None, "*", [], ["BASE"], ("BASE", "NOTES"), {"BASE"}])
def test_cells_may_be_asked_for_by_column_or_all(columns: Any) -> None:
    check_cells_asked(columns)


@pytest.mark.parametrize("columns", ["BASE", 5, (name for name in ["BASE"]), [""], [5], ["*" * 65]])
def test_columns_that_cannot_be_are_refused(columns: Any) -> None:
    with pytest.raises((InvalidRequest, InvalidCell)) as raised:
        check_cells_asked(columns)

    assert raised.value.hint


@pytest.mark.parametrize("consistency", ["FAST", "strong", None, 1, True])
def test_a_consistency_that_there_is_not_is_refused(consistency: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"consistency=.* is unknown\. Use 'fast', or 'verified'"):
        check_consistency(consistency)


@pytest.mark.parametrize(
    ("index", "known", "hint"),
    [
        ("by_drivers", ["by_rider", "by_driver"], "Did you mean by_driver?"),
        ("x", ["by_rider", "by_driver"], "Indexes: by_driver, by_rider."),
        (5, ["by_rider"], "Indexes: by_rider."),
        ("by_driver", [], "This store has no indexes"),
    ],
)
def test_an_unknown_index_is_named_with_the_one_that_was_meant(index: Any, known: list[str], hint: str) -> None:
    error = unknown_index(index, known)

    assert str(error).startswith(f"There is no index {index!r}. {hint}")


# ---------------------------------------------------------------------------------------------- fields, order


def test_all_fields_are_selected_unless_some_are_named() -> None:
    assert list(build().selected(TRIP)) == ["driver", "created_at", "fare", "city"]
    assert build(fields=("city", "fare", "city")).selected(TRIP) == {"city": "Aarhus", "fare": Decimal("12.5")}
    assert build(fields=[]).selected(TRIP) == {}


def test_entries_are_ordered_by_value_with_missing_ones_first_then_by_row_key() -> None:
    entries: list[tuple[Values, UUID]] = [
        ((DRIVER, None, fare, None), UUID(int=number))
        for fare in (None, Decimal(-1), Decimal("2.5"), Decimal(10))
        for number in (1, 2**64, 2**127)
    ]
    shuffled = random.Random(7).sample(entries, len(entries))

    up, down = build(order_by="fare"), build(order_by="fare", descending=True)

    assert sorted(shuffled, key=lambda entry: up.sort_key(*entry)) == entries
    assert sorted(shuffled, key=lambda entry: down.sort_key(*entry), reverse=True) == entries[::-1]


def test_without_an_order_entries_stand_by_row_key() -> None:
    assert build().sort_key(TRIP, UUID(int=1)) < build().sort_key((DRIVER, None, None, None), UUID(int=2))


# ---------------------------------------------------------------------------------------------------- cursors


@pytest.mark.parametrize("order_by", [None, "driver", "created_at", "fare", "city"])
@pytest.mark.parametrize("values", [TRIP, (DRIVER, None, None, None), (DRIVER, NOON, Decimal(0), "\0é🚕" * 64)])
@pytest.mark.parametrize("descending", [False, True])
def test_a_cursor_brings_back_the_place_it_was_made_of(order_by: str | None, values: Values, descending: bool) -> None:
    query = build(order_by=order_by, descending=descending)

    next_page = build(order_by=order_by, descending=descending, cursor=query.cursor_after(values, ROW))

    expected = None if order_by is None else values[BY_DRIVER.position_of(order_by)]
    assert next_page.after == After(expected, ROW)
    assert not next_page.is_after_cursor(values, ROW)
    assert next_page.is_after_cursor(values, UUID(int=2)) == (not descending)
    assert next_page.is_after_cursor(values, UUID(int=0)) == descending


def test_everything_stands_behind_no_cursor() -> None:
    assert build().is_after_cursor(TRIP, ROW)


def test_a_cursor_is_text_for_a_url() -> None:
    cursor = build(order_by="city").cursor_after((DRIVER, None, None, "å?&/+" * 20), ROW)

    assert cursor.isascii()
    assert set(cursor) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


def test_a_cursor_goes_with_another_limit_other_fields_and_conditions_in_another_order() -> None:
    where = [("fare", "in", [2, Decimal("1.0")]), ("city", "=", "Aarhus")]
    cursor = build(where=where, limit=5).cursor_after(TRIP, ROW)

    again = build(
        where=[("city", "=", "Aarhus"), ("fare", "in", (1, "2.00"))],
        shard_value=str(DRIVER),
        limit=7,
        fields=[],
        cursor=cursor,
    )

    assert again.after == After(None, ROW)


def test_a_cursor_goes_on_when_a_new_version_of_the_index_has_another_field() -> None:
    base, fare = BY_DRIVER.columns
    wider = IndexDefinition(
        "by_driver", "trips", (SourceColumn("BASE", (*base.fields, IndexField("rider", IndexFieldType.UUID))), fare)
    )
    cursor = build(order_by="fare", where=[("city", "=", "Aarhus")]).cursor_after(TRIP, ROW)

    next_page = build(wider, order_by="fare", where=[("city", "=", "Aarhus")], cursor=cursor)

    assert next_page.after == After(Decimal("12.5"), ROW)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"order_by": "city"}, "in the order of 'fare (decimal)', not of 'city (string)'"),
        ({"order_by": None}, "not of 'row_key'"),
        ({"descending": True}, "in the other direction"),
        ({"shard_value": UUID(int=8)}, "another shard value or other conditions"),
        ({"where": [("city", "=", "Odense")]}, "another shard value or other conditions"),
        ({"where": [("city", "!=", "Aarhus")]}, "another shard value or other conditions"),
        ({"where": ()}, "another shard value or other conditions"),
    ],
)
def test_a_cursor_of_another_query_is_refused(changes: Any, says: str) -> None:
    call = {"order_by": "fare", "where": [("city", "=", "Aarhus")]}
    cursor = build(**call).cursor_after(TRIP, ROW)

    assert says in refused(**(call | {"cursor": cursor} | changes))


def test_a_cursor_of_another_index_or_of_a_field_with_another_type_is_refused() -> None:
    cursor = build(order_by="fare").cursor_after(TRIP, ROW)
    base, _fare = BY_DRIVER.columns
    renamed = IndexDefinition("by_rider", "trips", BY_DRIVER.columns)
    retyped = IndexDefinition(
        "by_driver", "trips", (base, SourceColumn("FARE", (IndexField("fare", IndexFieldType.FLOAT),)))
    )

    with pytest.raises(InvalidRequest, match="of index 'by_driver', not of 'by_rider'"):
        build(renamed, order_by="fare", cursor=cursor)
    with pytest.raises(InvalidRequest, match=r"'fare \(decimal\)', not of 'fare \(float\)'"):
        build(retyped, order_by="fare", cursor=cursor)


@pytest.mark.parametrize(
    "cursor",
    [
        "", "x", "not a cursor", "ååå", "====", "A" * 9000, 5, b"AAAA", True, ["x"],
        urlsafe_b64encode(b"{}").decode(),
        urlsafe_b64encode(b'{"index":"by_driver"}').decode(),
        urlsafe_b64encode(b"[" * 3000).decode(),
        urlsafe_b64encode(b"\xff\xfe").decode(),
    ],
    ids=lambda cursor: repr(cursor)[:20],
)  # fmt: skip
def test_what_is_no_cursor_is_refused_with_a_way_out(cursor: Any) -> None:
    message = refused(cursor=cursor)

    assert "is no cursor. Pass the cursor of the last page as it is, or None to start." in message
    assert len(message) < 250


def test_a_truncated_or_prolonged_cursor_is_refused() -> None:
    whole = build(order_by="fare").cursor_after(TRIP, ROW)

    for damaged in [*(whole[:end] for end in range(len(whole))), whole + "AAAA", whole + whole]:
        assert "is no cursor" in refused(order_by="fare", cursor=damaged)


def test_a_cursor_with_a_value_of_another_type_is_refused() -> None:
    whole = build(order_by="fare").cursor_after(TRIP, ROW)
    text = urlsafe_b64decode(whole + "=" * (-len(whole) % 4)).decode()
    assert '"12.5"' in text

    forged = urlsafe_b64encode(text.replace('"12.5"', '"a lot"').encode()).decode().rstrip("=")

    assert "is no cursor" in refused(order_by="fare", cursor=forged)


# ------------------------------------------------------------------------------------------ against the oracle

cities = st.none() | st.sampled_from(["", "a", "B", "é", "\U0001f695"])
fares = st.none() | st.sampled_from([Decimal("-1"), Decimal("0.1"), Decimal("10")])
trips = st.lists(st.tuples(st.sampled_from([DRIVER, UUID(int=8)]), cities, fares), max_size=12)
conditions = st.lists(
    st.tuples(st.just("city"), st.sampled_from(OPERATORS[:6]), st.sampled_from(["", "a", "b", "é"]))
    | st.tuples(st.just("fare"), st.sampled_from(OPERATORS[:6]), st.sampled_from(["0.10", -1, 5]))
    | st.tuples(st.just("city"), st.just("in"), st.lists(st.sampled_from(["a", "é", "x"]), max_size=3))
    | st.tuples(st.just("fare"), st.just("between"), st.tuples(st.integers(-2, 11), st.integers(-2, 11))),
    max_size=2,
)


@given(trips, conditions, st.sampled_from([None, "city", "fare", "created_at"]), st.booleans(), st.integers(1, 5))
def test_a_query_says_of_entries_what_the_oracle_finds_by_brute_force(
    rows: list[tuple[UUID, str | None, Decimal | None]],
    where: Any,
    order_by: str | None,
    descending: bool,
    limit: int,
) -> None:
    store = MemoryStore(indexes=[BY_DRIVER], lagging_indexes=False)
    entries: list[tuple[Values, UUID]] = []
    for number, (driver, city, fare) in enumerate(rows):
        row_key = UUID(int=(number * 7 % 13) << 120)
        store.put_cell(row_key, "BASE", 1, {"driver": str(driver)})
        store.put_cell(row_key, "FARE", 1, {"city": city, "fare": None if fare is None else str(fare)})
        entries.append(((driver, None, fare, city), row_key))
    options: dict[str, Any] = {"where": where, "order_by": order_by, "descending": descending, "limit": limit}

    cursor, pages = None, 0
    while cursor or pages == 0:
        query = build(**options, cursor=cursor)
        asked = [entry for entry in entries if query.holds(entry[0]) and query.is_after_cursor(*entry)]
        expected = sorted(asked, key=lambda entry: query.sort_key(*entry), reverse=descending)
        page = store.query_index("by_driver", DRIVER, cursor=cursor, **options)

        assert [entry.row_key for entry in page.entries] == [row_key for _values, row_key in expected[:limit]]
        assert [entry.fields for entry in page.entries] == [query.selected(values) for values, _ in expected[:limit]]
        assert page.cursor == (query.cursor_after(*expected[limit - 1]) if len(expected) > limit else None)
        cursor, pages = page.cursor, pages + 1
