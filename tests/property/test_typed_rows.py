"""Typed rows lose nothing: of all values of the corpus, in any form in which a body may hold them."""

from __future__ import annotations

import datetime as dt
import types
from collections.abc import Callable
from dataclasses import fields, replace
from decimal import Decimal
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemaless_core import Cell, Json, canonical_bytes
from schemaless_core.cell.canonical import from_canonical
from tests.corpus import CASES
from tests.corpus.company import layout_of
from tests.models import imported, rows_of, written
from tripstore.backends.postgres.codec.codec import ColumnCodec
from tripstore.backends.postgres.codec.lookups import LookupCache
from tripstore.backends.postgres.layout.layout import Layout
from tripstore.typed import MISSING, NestedArray, TimeText, TypedRow, UntypedCell
from tripstore.typed.body_key import BodyKey
from tripstore.typed.forms import plain, times
from tripstore.typed.forms.form import ValueForm
from tripstore.typed.row import keys_of

READABLE = [case for case in CASES if case.rows]
#: Each body that a table of the corpus can hold, with its column.
BODIES = [(case.name, row.body) for case in READABLE for row in case.rows if row.body is not None]
ROW_KEY = UUID(int=7)
#: Of the module that is made, as long as this process lasts.
_FOLDER = TemporaryDirectory(prefix="tripstore-typed-rows-")


@cache
def corpus() -> Layout:
    return layout_of(READABLE)


@cache
def kinds() -> dict[str, type[TypedRow]]:
    return rows_of(imported(written(corpus()), Path(_FOLDER.name)))


def typed_row(column: str, body: Json) -> TypedRow:
    return kinds()[column].from_cell(Cell(ROW_KEY, column, 3, body))


SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text()
VALUES = st.recursive(
    SCALARS | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
#: The same values as tables hold them, and as other writers may.
FORMS: tuple[Json, ...] = ("12.50", "+12.5", "125e-1", 12.5, 12, "-0", "2014-08-01T12:00+05:30", "2014-08-01 12:00:00Z",
         "2014-08-01T12:00:00.123456789Z", "2016-12-31T23:59:60Z", "2014-08-01T12:00:00", "0001-01-01T00:00+14:00",
         "C4CA4238A0B923820DCC509A6F75849B", "c4ca4238-a0b9-2382-0dcc-509a6f75849b", "NaN", "-Infinity", "infinity",
         "AQ==", "AR==", 2**53 + 1, -0.0, 1e300, True, None, [], [None, ["a"]], {"a": None}, "")  # fmt: skip


def test_i2_every_body_of_the_corpus_comes_back_byte_for_byte_and_is_what_its_type_says() -> None:
    for column, body in BODIES:
        row = typed_row(column, from_canonical(body))

        assert canonical_bytes(row.to_body()) == body, column
        assert wrong_types(row) == [], column


@given(st.sampled_from(BODIES), st.dictionaries(st.text(), VALUES, max_size=3))
def test_unknown_keys_survive_a_change_of_another_field(case: tuple[str, bytes], more: dict[str, Json]) -> None:
    column, body = case
    known = from_canonical(body)
    assert isinstance(known, dict)
    names = {key.name for key in keys_of(kinds()[column]).values()}
    unknown = {name: value for name, value in more.items() if name not in names}

    row = typed_row(column, {**known, **unknown})

    assert canonical_bytes(row.to_body()) == canonical_bytes({**known, **unknown})
    above = replace(row, ref_key=row.next_ref_key if row.child_bits != 0 else 4)
    assert canonical_bytes(above.to_body()) == canonical_bytes(row.to_body())
    assert canonical_bytes(replace(row, unknown={}).to_body()) == canonical_bytes(
        {name: value for name, value in known.items() if name in names}
    )


@given(st.sampled_from(sorted(case.name for case in READABLE)), st.sampled_from(FORMS) | VALUES)
def test_i2_whatever_a_body_holds_is_written_as_it_was_or_refused_by_name(column: str, value: Json) -> None:
    body: dict[str, Json] = {"value": value}
    try:
        row = typed_row(column, body)
    except UntypedCell as refused:
        assert refused.path.startswith("$.value")  # noqa: PT017  # most values are read
    else:
        assert canonical_bytes(row.to_body()) == canonical_bytes(body)
        assert wrong_types(row) == []


#: Every zone there is, and times that have a year in UTC.
MOMENTS = st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30), timezones=st.timezones())  # noqa: DTZ001  # bounds of the strategy are naive
DECIMALS = st.decimals(allow_nan=False, allow_infinity=False).map(lambda number: number or abs(number))
WRITTEN: dict[str, st.SearchStrategy[Any]] = {
    "timestamptz": MOMENTS,
    "date": st.dates(),
    "numeric": DECIMALS,
    "float8": st.floats(),
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "bytea": st.binary(),
    "boolean": st.booleans(),
    "uuid": st.uuids(),
    "array-timestamptz": st.lists(st.none() | MOMENTS, max_size=3).map(tuple),
    "array-numeric": st.lists(st.none() | DECIMALS, max_size=3).map(tuple),
}


@pytest.mark.parametrize("column", sorted(WRITTEN))
@given(data=st.data())
def test_what_python_writes_is_what_the_tables_hold_and_is_read_back(column: str, data: st.DataObject) -> None:
    value = data.draw(WRITTEN[column])
    made: Any = kinds()[column]

    body = made(row_key=ROW_KEY, ref_key=1, value=value).to_body()

    canonical_bytes(body)
    ColumnCodec(corpus().columns[column], LookupCache(corpus())).row(body)  # it refuses what no row gives back
    read: Any = typed_row(column, body)
    assert in_utc(read.value) == in_utc(value) or (value != value and repr(read.value) == "nan")


def in_utc(value: Any) -> Any:
    """The same moment: Python calls one that a clock shows twice, or never, unequal to itself in any other zone."""
    if isinstance(value, tuple):
        return tuple(map(in_utc, value))
    return value.astimezone(dt.UTC) if isinstance(value, dt.datetime) else value


def wrong_types(row: TypedRow) -> list[str]:
    """The fields whose values are not of the types that the module says."""
    hints = get_type_hints(type(row))
    return [each.name for each in fields(row) if not _is_of(hints[each.name], getattr(row, each.name))]


def _is_of(hint: Any, value: object) -> bool:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return any(_is_of(each, value) for each in get_args(hint))
    if origin is tuple:
        return type(value) is tuple and all(_is_of(get_args(hint)[0], element) for element in value)
    if hint is float:  # an int is one
        return type(value) in (int, float)
    return type(value) is hint if origin is None else isinstance(value, origin)


def lost(forms: dict[str, ValueForm]) -> set[str]:
    """The columns of the corpus, some of them with other forms, whose bodies do not come back as they were."""
    found = set()
    for column, body in BODIES:
        for key in keys_of(kinds()[column]).values():
            if column not in forms or key.name != "value":
                continue
            other = BodyKey(key.name, forms[column], key.keeps_null)
            value = from_canonical(body)
            assert isinstance(value, dict)
            try:
                back = other.write(other.read(value), None)
            except (ValueError, ArithmeticError):
                back = "refused"
            before = value.get(key.name, MISSING)
            if back is not before and (back is MISSING or canonical_bytes(back) != body_of(before)):
                found.add(column)
    return found


def body_of(value: Any) -> bytes:
    return b"" if value is MISSING else canonical_bytes(value)


SLOPPY: dict[str, tuple[str, Callable[[Any], object], Callable[[Any], Json]]] = {
    "decimals as floats": ("numeric", float, lambda value: str(value)),
    "decimals without their zeros": ("numeric-scale", Decimal, lambda value: format(value.normalize(), "f")),
    "times by Python's own reader": ("timestamptz-far", dt.datetime.fromisoformat, lambda value: value.isoformat()),
    "infinity as the last day": ("timestamptz-infinity", lambda text: dt.date.max, lambda value: value.isoformat()),
    "a float's text as a number": ("float8-not-finite", lambda value: float(value), lambda value: repr(value)),
}


@pytest.mark.parametrize("how", SLOPPY)
def test_control_a_form_that_loses_something_is_caught(how: str) -> None:
    column, read, write = SLOPPY[how]

    assert lost({column: ValueForm(read, write)}) == {column}


def test_control_the_forms_themselves_lose_nothing() -> None:
    own = {"numeric": plain.DECIMALS, "numeric-scale": plain.DECIMALS, "timestamptz-far": times.DATETIMES}

    assert lost({**own, "timestamptz-infinity": times.DATETIMES, "float8-not-finite": plain.FLOATS}) == set()


def test_control_a_value_of_another_type_is_seen() -> None:
    row: Any = typed_row("numeric", {"value": "1.5"})

    assert wrong_types(row) == []
    assert wrong_types(replace(row, value=1.5)) == ["value"]
    assert wrong_types(replace(row, value=TimeText("1"))) == ["value"]
    assert wrong_types(replace(row, value=NestedArray([]))) == ["value"]
