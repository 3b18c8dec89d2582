"""Conditions on index fields as SQL over physical columns: what is said, and what is left to Python."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from schemaless_core.cell.answers import Scalar
from schemaless_core.definitions.index import IndexField as IndexField
from schemaless_core.definitions.query import CheckedCondition
from schemaless_core.definitions.values import IndexFieldType as IndexType
from schemaless_core.engine.index_sql import Clause
from tripstore.backends.postgres.layout.layout import Field, FieldType, Lookup, MappedColumn, RefKeySource, TableName
from tripstore.backends.postgres.queries.conditions import StoredField, bindable, stored_field
from tripstore.backends.postgres.queries.physical import Physical, PhysicalTypes

TRIPS, USERS = TableName("public", "trips"), TableName("hr", 'us"ers%')
USER = Lookup(USERS, "id", "user_uuid")


def stored(
    physical: Physical,
    layout: FieldType,
    index: IndexType,
    *,
    column: str = "c",
    lookup: Lookup | None = None,
    key: Physical = Physical.INT,
) -> StoredField | None:
    """How a field called f compares whose physical column, or that of its lookup, has this type."""
    mapped = MappedColumn("BASE", TRIPS, "u", None, RefKeySource(version="v"), (Field("f", column, layout, lookup),))
    place = (TRIPS, column) if lookup is None else (lookup.table, lookup.value)
    return stored_field(mapped, IndexField("f", index), PhysicalTypes({(TRIPS, column): key, place: physical}))


def condition(field: StoredField | None, index: IndexType, operator: str, *values: Scalar) -> Clause | None:
    assert field is not None
    return field.condition("t", CheckedCondition(IndexField("f", index), operator, values))


TEXT = stored(Physical.TEXT, FieldType.STRING, IndexType.STRING)


@pytest.mark.parametrize(
    ("operator", "values", "text", "bound"),
    [
        ("=", ["a"], 't."c" = %s::text', ("a",)),
        ("!=", ["a"], 't."c" COLLATE "C" <> %s::text', ("a",)),
        ("<", ["a"], 't."c" COLLATE "C" < %s::text', ("a",)),
        (">=", ["a"], 't."c" COLLATE "C" >= %s::text', ("a",)),
        ("between", ["a", "b"], 't."c" COLLATE "C" BETWEEN %s::text AND %s::text', ("a", "b")),
        ("in", ["a", "b"], 't."c" = ANY (%s::text[])', (["a", "b"],)),
        ("in", [], "false", ()),
    ],
)
def test_every_operator_is_said(operator: str, values: list[Scalar], text: str, bound: tuple[Any, ...]) -> None:
    """Equality goes without a collation, so that the company's own indexes find it; it is the same in all of them."""
    assert condition(TEXT, IndexType.STRING, operator, *values) == Clause(text, bound)


@pytest.mark.parametrize("operator", ["!=", "<", "<=", ">", ">=", "between"])
def test_no_comparison_is_made_with_a_text_that_postgres_cannot_hold(operator: str) -> None:
    """All rows are handed out then, and Python compares: never fewer than meet the condition."""
    values = ("a\0", "b") if operator == "between" else ("a\0",)

    assert condition(TEXT, IndexType.STRING, operator, *values) is None


def test_no_row_has_a_text_that_postgres_cannot_hold() -> None:
    assert condition(TEXT, IndexType.STRING, "=", "a\0") == Clause("false", ())
    assert condition(TEXT, IndexType.STRING, "in", "a\0", "b") == Clause('t."c" = ANY (%s::text[])', (["b"],))


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (IndexType.UUID, UUID(int=5), "00000000-0000-0000-0000-000000000005"),
        (IndexType.INT, -(2**63), "-9223372036854775808"),
        (IndexType.FLOAT, 1e22, "1e+22"),
        (IndexType.FLOAT, 3, "3.0"),
        (IndexType.DECIMAL, Decimal("1E+2"), "100"),
        (IndexType.DECIMAL, Decimal("0.10"), "0.1"),
        (IndexType.BOOLEAN, True, "true"),
        (
            IndexType.DATETIME,
            datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))),
            "2026-01-01T00:00:00.000000+00:00",
        ),
        (IndexType.DATETIME, datetime(1000, 1, 1, tzinfo=UTC), "1000-01-01T00:00:00.000000+00:00"),
        (IndexType.STRING, "%s", "%s"),
        (IndexType.STRING, "a\0", None),
    ],
)
def test_values_are_bound_as_text(kind: IndexType, value: Scalar, text: str | None) -> None:
    assert bindable(kind, value) == text


def test_missing_values_are_none_in_an_order() -> None:
    """Text that is too long for an index, and times that MySQL does not know, order as missing ones."""
    time = stored(Physical.TIMESTAMPTZ, FieldType.DATETIME, IndexType.DATETIME)
    assert TEXT is not None
    assert time is not None

    assert TEXT.order("t") == 'CASE WHEN octet_length(t."c") <= 512 THEN t."c" COLLATE "C" END'
    assert time.order("t").startswith("""CASE WHEN t."c" >= '1000-01-01""")


AGREEING: Mapping[tuple[Physical, FieldType], set[IndexType]] = {
    (Physical.UUID, FieldType.UUID): {IndexType.UUID, IndexType.STRING},
    (Physical.TEXT, FieldType.STRING): {IndexType.STRING},
    (Physical.WORDS, FieldType.STRING): {IndexType.STRING},
    (Physical.INT, FieldType.INT): {IndexType.INT, IndexType.FLOAT, IndexType.DECIMAL},
    (Physical.FLOAT8, FieldType.FLOAT): {IndexType.FLOAT},
    (Physical.FLOAT4, FieldType.FLOAT): {IndexType.FLOAT},
    (Physical.NUMERIC, FieldType.DECIMAL): {IndexType.DECIMAL},
    (Physical.BOOLEAN, FieldType.BOOLEAN): {IndexType.BOOLEAN},
    (Physical.TIMESTAMPTZ, FieldType.DATETIME): {IndexType.DATETIME},
    (Physical.TIMESTAMP, FieldType.DATETIME): {IndexType.DATETIME},
}


def test_what_does_not_agree_is_left_to_python() -> None:
    """Each pair here has cases in the differential test; add the values of a new one there."""
    found: dict[tuple[Physical, FieldType], set[IndexType]] = {}
    for physical in Physical:
        for layout in FieldType:
            agreeing = {index for index in IndexType if stored(physical, layout, index) is not None}
            found |= {(physical, layout): agreeing} if agreeing else {}

    assert found == AGREEING


def test_a_column_whose_type_is_unknown_is_left_to_python() -> None:
    column = MappedColumn("BASE", TRIPS, "u", None, RefKeySource(version="v"), (Field("f", "c", FieldType.STRING),))

    assert stored_field(column, IndexField("f", IndexType.STRING), PhysicalTypes({})) is None
    assert stored_field(column, IndexField("extra", IndexType.STRING), PhysicalTypes({})) is None


def test_names_of_the_company_are_quoted_and_their_percent_signs_are_not_places() -> None:
    strange = stored(Physical.INT, FieldType.INT, IndexType.INT, column='a"b %s')

    assert condition(strange, IndexType.INT, "=", 1) == Clause('t."a""b %%s" = %s::bigint', ("1",))


PRESENT = 'FROM "hr"."us""ers%%" l WHERE'
DELETED = """FROM tripstore.pair p WHERE p.lookup = 'hr.us"ers%%.id.user_uuid' AND"""


def test_a_looked_up_field_is_searched_by_its_keys() -> None:
    """Few keys come first, so that an index on the key's column is of use; a wide condition looks row by row."""
    driver = stored(Physical.UUID, FieldType.UUID, IndexType.UUID, lookup=USER)
    assert driver is not None
    value = UUID(int=1)
    order = (
        f'COALESCE((SELECT l."user_uuid" {PRESENT} l."id" = t."c"), '
        f'(SELECT p.value::uuid {DELETED} p.key = t."c"::text))'
    )

    assert condition(driver, IndexType.UUID, "=", value) == Clause(
        f't."c" = ANY (ARRAY(SELECT l."id" {PRESENT} l."user_uuid" = %s::uuid'
        f" UNION ALL SELECT p.key::bigint {DELETED} p.value = %s::text))",
        (str(value), str(value)),
    )
    assert condition(driver, IndexType.UUID, ">", value) == Clause(f"{order} > %s::uuid", (str(value),))
    assert driver.order("t") == order


@pytest.mark.parametrize(
    ("key", "column", "own", "of_pair"),
    [
        (Physical.UUID, 't."c"', 'l."id"', "p.key::uuid"),
        (Physical.TEXT, 't."c"', 'l."id"', "p.key::text"),
        (Physical.WORDS, 't."c"::text', 'l."id"::text', "p.key::text"),
    ],
)
def test_keys_of_deleted_pairs_are_cast_so_that_an_index_finds_their_rows(
    key: Physical, column: str, own: str, of_pair: str
) -> None:
    driver = stored(Physical.UUID, FieldType.UUID, IndexType.UUID, lookup=USER, key=key)
    values = UUID(int=1), UUID(int=2)
    bound = [str(value) for value in values]

    assert condition(driver, IndexType.UUID, "in", *values) == Clause(
        f'{column} = ANY (ARRAY(SELECT {own} {PRESENT} l."user_uuid" = ANY (%s::uuid[])'
        f" UNION ALL SELECT {of_pair} {DELETED} p.value = ANY (%s::text[])))",
        (bound, bound),
    )


@pytest.mark.parametrize(
    ("physical", "layout", "index", "is_searchable"),
    [
        (Physical.UUID, FieldType.UUID, IndexType.UUID, True),
        (Physical.TEXT, FieldType.STRING, IndexType.STRING, True),
        (Physical.INT, FieldType.INT, IndexType.INT, True),
        (Physical.WORDS, FieldType.STRING, IndexType.STRING, False),
        (Physical.FLOAT4, FieldType.FLOAT, IndexType.FLOAT, False),
        (Physical.INT, FieldType.INT, IndexType.DECIMAL, False),
    ],
)
def test_only_a_bare_column_is_found_by_a_plain_index(
    physical: Physical, layout: FieldType, index: IndexType, is_searchable: bool
) -> None:
    found = stored(physical, layout, index)

    assert found is not None
    assert found.is_searchable is is_searchable
