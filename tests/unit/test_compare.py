"""Answers of two stores, compared entry by entry: what differs is found, named and classed; what is equal is not."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemaless_core import Cell, Json
from schemaless_core.cell.answers import Bucket, IndexEntry, IndexPage, Row, RowPage
from schemaless_core.cell.canonical import MAX_DEPTH, canonical_bytes
from tripstore.engines.validation.compare import (
    DIFFERENCES_MAX,
    AnswerDifference,
    DifferenceClass,
    compare,
    first_difference,
)
from tripstore.engines.validation.ignores import Ignore, InvalidIgnore, ignored_by
from tripstore.engines.validation.reads import Failed

A, B = UUID(int=1), UUID(int=2)
AT = datetime(2026, 1, 1, tzinfo=UTC)


def cell(ref_key: int = 1, body: Json = None, row_key: UUID = A, column: str = "BASE", **stored: Any) -> Cell:
    return Cell(row_key, column, ref_key, {"fare": "1.10"} if body is None else body, **stored)


def entry(row_key: UUID, *, fare: str = "1.10", cells: dict[str, Cell] | None = None) -> IndexEntry:
    return IndexEntry(row_key, {"fare": Decimal(fare), "city": None}, cells)


EQUAL: list[tuple[str, Any, Any]] = [
    ("get_cell", None, None),
    ("get_cell_latest", cell(added_id=1, created_at=AT), cell(added_id=None, created_at=None)),
    ("get_cells", [None, cell()], [None, cell()]),
    ("get_row", {"BASE": cell(), "X": cell(column="X")}, {"X": cell(column="X"), "BASE": cell()}),
    ("get_history", [cell(2), cell(1)], [cell(2), cell(1)]),
    ("query_index", IndexPage([entry(A)], "c"), IndexPage([entry(A)], "c")),
    ("scan_rows", RowPage([Row(A, {"BASE": cell()})], B), RowPage([Row(A, {"BASE": cell()})], B)),
    ("checksum", [Bucket(1, 2, 3, 4)], [Bucket(1, 2, 3, 4)]),
    ("resolve_ids", {1: A, 2: B}, {2: B, 1: A}),
    ("legacy_ids", {A: 1}, {A: 1}),
    ("legacy_ids", {}, {}),
]

#: No put takes it; a store may hold it all the same.
TOO_DEEP: Json = json.loads("[" * MAX_DEPTH + "]" * MAX_DEPTH)
TOO_LARGE = 10**30
BASE_1 = f"BASE@1 of {A}"
TWICE = [("extra", f"entry of {A} (2)", "")]
DIFFERENT: list[tuple[str, Any, Any, list[tuple[str, str, str]]]] = [
    ("resolve_ids", {1: A, 2: B}, {1: A}, [("missing", "legacy id 2", "")]),
    ("resolve_ids", {-1: A}, {-1: B}, [("field", "legacy id -1", "$")]),
    ("legacy_ids", {}, {A: 1}, [("extra", f"row {A}", "")]),
    ("legacy_ids", {A: 1}, {A: 2}, [("field", f"row {A}", "$")]),
    ("legacy_ids", {A: 1}, {A: "1"}, [("field", f"row {A}", "$")]),
    ("get_cell", cell(), cell(body={"a": TOO_DEEP, "fare": "1.10"}), [("field", BASE_1, "a")]),
    ("get_cell", cell(), cell(body={"a": [TOO_DEEP]}), [("field", BASE_1, "a")]),
    ("get_cell", cell(body={"a": 1}), cell(body={"a": TOO_LARGE}), [("field", BASE_1, "a")]),
    ("get_cell", cell(body={"a": TOO_LARGE}), cell(body={"a": TOO_LARGE + 1}), [("field", BASE_1, "a")]),
    ("get_cell", cell(), None, [("missing", BASE_1, "")]),
    ("get_cell", None, cell(), [("extra", BASE_1, "")]),
    ("get_cell", cell(), cell(body={"fare": "1.1"}), [("field", BASE_1, "fare")]),
    ("get_cell", cell(body={"a": [1, {"b": 2}]}), cell(body={"a": [1, {"b": 2.5}]}), [("field", BASE_1, "a[1].b")]),
    ("get_cell", cell(body=[1]), cell(body={"a": 1}), [("field", BASE_1, "$")]),
    ("get_cell_latest", cell(2), cell(1), [("field", f"BASE@2 of {A}", "ref_key")]),
    (
        "get_cells_latest",
        [cell(2), cell(1, row_key=B)],
        [cell(1), None],
        [("field", f"BASE@2 of {A}", "ref_key"), ("missing", f"BASE@1 of {B}", "")],
    ),
    ("get_row", {"BASE": cell()}, {}, [("missing", BASE_1, "")]),
    ("get_history", [cell(2), cell(1)], [cell(2)], [("missing", BASE_1, "")]),
    ("get_history", [cell(2), cell(1)], [cell(1), cell(2)], [("order", "the page", "")]),
    ("query_index", IndexPage([entry(A)], None), IndexPage([], None), [("missing", f"entry of {A}", "")]),
    ("query_index", IndexPage([], None), IndexPage([entry(A)], None), [("extra", f"entry of {A}", "")]),
    (
        "query_index",
        IndexPage([entry(A)], None),
        IndexPage([entry(A, fare="1.2")], None),
        [("field", f"entry of {A}", "fare")],
    ),
    (
        "query_index",
        IndexPage([entry(A), entry(B)], None),
        IndexPage([entry(B), entry(A)], None),
        [("order", "the page", "")],
    ),
    ("query_index", IndexPage([entry(A)], "c"), IndexPage([entry(A)], None), [("field", "the page", "cursor")]),
    (
        "query_index",
        IndexPage([entry(A, cells={"BASE": cell()})], None),
        IndexPage([entry(A, cells={})], None),
        [("missing", f"entry of {A}", "cells.BASE")],
    ),
    (
        "scan_rows",
        RowPage([Row(A, {"BASE": cell(2)})], None),
        RowPage([Row(A, {"BASE": cell(1)})], None),
        [("field", f"row {A}", "cells.BASE.[0]")],
    ),
    ("query_index", IndexPage([entry(A)], None), IndexPage([entry(A), entry(A)], None), TWICE),
    (
        "query_index",
        IndexPage([IndexEntry(A, {"n": 1})], None),
        IndexPage([IndexEntry(A, {"n": "1"})], None),
        [("field", f"entry of {A}", "n")],
    ),
    ("scan_rows", RowPage([], B), RowPage([], None), [("field", "the page", "after")]),
    ("checksum", [Bucket(1, 2, 3, 4)], [Bucket(1, 2, 3, 5)], [("field", "bucket 2 of shard 1", "[1]")]),
    ("get_cell", cell(), Failed("Unavailable", "gone"), [("error", "Unavailable", "gone")]),
    ("get_cell", cell(), Failed("Unavailable", "slow", is_late=True), [("timeout", "Unavailable", "slow")]),
]


@pytest.mark.parametrize(("operation", "wanted", "given_"), EQUAL)
def test_what_belongs_to_a_store_is_no_difference(operation: str, wanted: Any, given_: Any) -> None:
    assert compare(operation, wanted, given_) == []


@pytest.mark.parametrize(("operation", "wanted", "given_", "found"), DIFFERENT)
def test_differences_have_class_entry_and_path(
    operation: str, wanted: Any, given_: Any, found: list[tuple[str, str, str]]
) -> None:
    assert compare(operation, wanted, given_) == [
        AnswerDifference(DifferenceClass(kind), name, path) for kind, name, path in found
    ]


def test_an_answer_that_differs_everywhere_is_told_in_part() -> None:
    page = [cell(number) for number in range(1, 100)]
    found = compare("get_history", page, [])
    assert len(found) == DIFFERENCES_MAX + 1
    assert ignored_by([replace(RULE, path="*")], "get_history", found, TODAY) is None
    assert ignored_by([replace(RULE, path="*")], "get_history", found[1:], TODAY) is not None


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)


@given(one=_JSON, other=_JSON)
def test_a_path_is_found_exactly_where_bytes_differ(one: Any, other: Any) -> None:
    """I12: nothing that differs is called equal."""
    assert (first_difference(one, other) is None) == (canonical_bytes(one) == canonical_bytes(other))


TODAY = date(2026, 5, 1)
RULE = Ignore("Postgres rounds", "ada", date(2026, 6, 1), operation="get_*", path="fare*")


def test_a_rule_explains_what_it_matches_until_its_day() -> None:
    fare = AnswerDifference(DifferenceClass.FIELD, BASE_1, "fare.total")
    tip = AnswerDifference(DifferenceClass.FIELD, BASE_1, "tip")

    assert ignored_by([RULE], "get_cell", [fare], TODAY) == [RULE]
    assert ignored_by([RULE], "get_cell", [fare, tip], TODAY) is None
    assert ignored_by([RULE], "query_index:x", [fare], TODAY) is None
    assert ignored_by([RULE], "get_cell", [fare], RULE.until) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"reason": " ", "owner": "ada", "path": "x"},
        {"reason": "r", "owner": "", "path": "x"},
        {"reason": "r", "owner": "ada"},
    ],
)
def test_a_rule_says_why_who_and_what(wrong: dict[str, str]) -> None:
    with pytest.raises(InvalidIgnore) as refused:
        Ignore(until=TODAY, **wrong)  # type: ignore[arg-type]  # texts only
    assert refused.value.hint
