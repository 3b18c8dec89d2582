"""What one value of a body is as text of Postgres: what is taken comes back the same, all else is refused."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from contextlib import suppress
from fractions import Fraction
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemaless_core import Json, canonical_bytes
from schemaless_core.cell.canonical import INT_MAX, INT_MIN
from tests.unit.test_canonical import JSON, nested
from tripstore.backends.postgres.codec.nested import NestedDocument
from tripstore.backends.postgres.codec.refused import Refused, joined
from tripstore.backends.postgres.codec.value import Value
from tripstore.backends.postgres.codec.values import value_of
from tripstore.backends.postgres.layout.layout import Field, FieldType

#: Any text at all, and what looks like a value but is none.
TEXTS = st.text() | st.from_regex(re.compile(r"[-+ 0-9a-fA-FT:._eZ{},NULxyBCt]{0,40}"), fullmatch=True)


def field(kind: FieldType, items: FieldType | None = None) -> Field:
    return Field("value", "value", kind, items=items)


def same(one: Json, other: Json) -> bool:
    return canonical_bytes(one) == canonical_bytes(other)


#: Types that look at every character of a text. The others trust that the check has seen the column's type.
STRICT = (
    FieldType.UUID,
    FieldType.INT,
    FieldType.FLOAT,
    FieldType.DECIMAL,
    FieldType.BOOLEAN,
    FieldType.BYTES,
    FieldType.JSON,
)


@pytest.mark.parametrize("kind", STRICT)
@given(text=TEXTS)
def test_i2_a_text_is_refused_or_what_it_becomes_is_written_and_read_again(kind: FieldType, text: str) -> None:
    value = value_of(field(kind))
    with suppress(Refused):
        found = value.read(text)
        assert_comes_back(value, found)


def assert_comes_back(value: Value, body: Json) -> None:
    try:
        written = value.write(body)
    except Refused as refused:
        raise AssertionError(f"{body!r} was read and cannot be written") from refused
    assert same(value.read(written), body)


@pytest.mark.parametrize("kind", FieldType)
@given(body=JSON)
def test_i2_whatever_a_body_holds_is_refused_or_written_and_read_again(kind: FieldType, body: Json) -> None:
    value = value_of(field(kind))
    with suppress(Refused):
        text = value.write(body)
        if kind not in (FieldType.DATETIME, FieldType.ARRAY):  # in Postgres' own form they are another text
            assert same(value.read(text), body)


@pytest.mark.parametrize(
    ("kind", "text", "body"),
    [
        (FieldType.INT, "-7", -7),
        (FieldType.FLOAT, "1e+15", 1e15),
        (FieldType.FLOAT, "-0", -0.0),
        (FieldType.FLOAT, "NaN", "NaN"),
        (FieldType.DECIMAL, "1.10", "1.10"),
        (FieldType.BOOLEAN, "true", True),
        (FieldType.BOOLEAN, "f", False),
        (FieldType.BYTES, "\\x00ff", "AP8="),
        (FieldType.DATETIME, "2014-08-01 12:00:00+00", "2014-08-01T12:00:00.000000Z"),
        (FieldType.DATETIME, "2014-08-01 12:00:00.5+00", "2014-08-01T12:00:00.500000Z"),
        (FieldType.DATETIME, "2014-08-01 12:00:00.123456", "2014-08-01T12:00:00.123456Z"),
        (FieldType.DATETIME, "0044-03-15 12:00:00.5+00 BC", "0044-03-15T12:00:00.500000Z BC"),
        (FieldType.DATETIME, "0044-03-15 12:00:00.5 BC", "0044-03-15T12:00:00.500000Z BC"),
        (FieldType.DATETIME, "20014-08-01 12:00:00+00", "20014-08-01T12:00:00.000000Z"),
        (FieldType.JSON, ' {"b": 1, "a": null} ', {"a": None, "b": 1}),
    ],
)
def test_texts_of_postgres_become_values_of_bodies(kind: FieldType, text: str, body: Json) -> None:
    assert same(value_of(field(kind)).read(text), body)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (FieldType.INT, "1_000"),
        (FieldType.INT, " 7"),
        (FieldType.INT, "1.0"),
        (FieldType.INT, "٣"),
        (FieldType.INT, "9223372036854775808"),
        (FieldType.FLOAT, "1e400"),
        (FieldType.FLOAT, "nan"),
        (FieldType.FLOAT, "x"),
        (FieldType.DECIMAL, "1e5"),
        (FieldType.DECIMAL, "٣"),
        (FieldType.BOOLEAN, "yes"),
        (FieldType.BYTES, "abc"),
        (FieldType.BYTES, "\\x0"),
        (FieldType.DATETIME, "2014-08-01 12:00:00+05:30"),
        (FieldType.DATETIME, "2014-08-01 12:00:00.5+05:30"),
        (FieldType.DATETIME, "2014-08-01 12:00:00.5-07"),
        (FieldType.DATETIME, "01/08/2014 12:00:00 IST"),
        (FieldType.DATETIME, "2014-08-01"),
        (FieldType.DATE, "01.08.2014"),
        (FieldType.UUID, "C4CA4238-A0B9-2382-0DCC-509A6F75849B"),
        (FieldType.JSON, "{"),
        (FieldType.JSON, ""),
        (FieldType.ARRAY, "1,2"),
        (FieldType.ARRAY, "{1"),
        (FieldType.ARRAY, "{1}}"),
        (FieldType.ARRAY, "{1}{2}"),
        (FieldType.ARRAY, '{"a}'),
        (FieldType.ARRAY, "[0:0]={1}"),
    ],
)
def test_texts_that_pinned_settings_never_give_are_refused(kind: FieldType, text: str) -> None:
    with pytest.raises(Refused):
        value_of(field(kind)).read(text)


def test_a_reason_never_holds_the_value() -> None:
    secret = "4711"
    for kind in FieldType:
        for value in (f"x{secret}", [f"{secret}"], {"a": float(secret)}, int(secret * 8)):
            with pytest.raises(Refused) as refused:
                value_of(field(kind, FieldType.UUID)).write(_refusable(kind, value))
            assert secret not in refused.value.reason
    with pytest.raises(Refused) as unread:
        NestedDocument().read('{"a": 471147114711471147114711}')
    assert secret not in unread.value.reason


def _refusable(kind: FieldType, value: Any) -> Any:
    """A value that this type refuses; strings and json take nearly all."""
    if kind is FieldType.STRING and isinstance(value, str):
        return value + "\0"
    return float("inf") if kind is FieldType.JSON else value


# ------------------------------------------------------------------------------------------------------ documents


@given(JSON)
def test_a_document_comes_back_as_it_was(body: Json) -> None:
    assert same(NestedDocument().read(NestedDocument().write(body)), body)


@given(JSON, st.sampled_from([None, 1, "\t"]), st.booleans())
def test_a_document_is_read_whatever_its_blanks_and_escapes(body: Json, indent: Any, is_ascii: bool) -> None:
    assert same(NestedDocument().read(json.dumps(body, indent=indent, ensure_ascii=is_ascii)), body)


LITERALS = st.from_regex(re.compile(r"-?(0|[1-9][0-9]{0,24})(\.[0-9]{1,24})?([eE][+-]?[0-9]{1,3})?"), fullmatch=True)


@given(LITERALS)
def test_i2_a_number_is_read_exactly_or_refused(literal: str) -> None:
    for text in (literal, f'{{"a":[{literal}]}}', f'{{"a": [{literal}]}}'):
        try:
            found = NestedDocument().read(text)
        except Refused:
            continue
        number = found if not isinstance(found, dict) else found["a"][0]  # type: ignore[index]  # a list
        assert isinstance(number, (int, float))
        assert Fraction(repr(number)) == Fraction(literal)
        assert literal.startswith("-") == (repr(number).startswith("-"))
        assert not isinstance(number, int) or INT_MIN <= number <= INT_MAX


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_float_is_read_exactly(number: float) -> None:
    found = NestedDocument().read(repr(number))

    assert isinstance(found, (int, float))
    assert found.hex() == number.hex() if isinstance(found, float) else found == number


@given(st.integers(INT_MIN - 3, INT_MAX + 3) | st.integers(-10, 10))
def test_integers_are_read_up_to_64_bits_and_refused_beyond(number: int) -> None:
    if INT_MIN <= number <= INT_MAX:
        assert NestedDocument().read(f"[{number}]") == [number]
    else:
        with pytest.raises(Refused) as refused:
            NestedDocument().read(f"[{number}]")
        assert refused.value.path == "[0]"


def test_control_the_fast_reader_alone_loses_what_the_document_refuses() -> None:
    assert msgspec.json.decode('{"a":1,"a":2}') == {"a": 2}
    assert msgspec.json.decode("1e-400") == 0.0
    assert msgspec.json.decode("0.12345678901234567890") == 0.12345678901234568
    for text in ('{"a":1,"a":2}', "1e-400", "0.12345678901234567890"):
        with pytest.raises(Refused):
            NestedDocument().read(text)


def test_documents_are_nested_as_deep_as_bodies_are() -> None:
    deepest = nested(200)

    assert same(NestedDocument().read(json.dumps(deepest)), deepest)
    for depth in (201, 5000):
        with pytest.raises(Refused, match="deeper"):
            NestedDocument().read("[" * depth + "]" * depth)


# --------------------------------------------------------------------------------------------------------- arrays


ITEMS: dict[FieldType, st.SearchStrategy[Json]] = {
    FieldType.STRING: st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5)
    | st.sampled_from(["NULL", "null", "", " ", "{", "}", ",", '"', "\\", '\\"', "a b"]),
    FieldType.INT: st.integers(-(2**63), 2**63 - 1),
    FieldType.FLOAT: st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(["NaN", "Infinity"]),
    FieldType.BOOLEAN: st.booleans(),
    FieldType.UUID: st.uuids().map(str),
    FieldType.BYTES: st.binary().map(lambda data: b64encode(data).decode()),
    FieldType.JSON: JSON.filter(lambda value: value is not None),
}


@pytest.mark.parametrize("items", ITEMS)
@given(data=st.data())
def test_an_array_comes_back_as_it_was(items: FieldType, data: st.DataObject) -> None:
    array = value_of(field(FieldType.ARRAY, items))
    body: Json = list(data.draw(st.lists(st.none() | ITEMS[items], max_size=5)))

    assert same(array.read(array.write(body)), body)


@given(st.data(), st.lists(st.integers(1, 3), min_size=2, max_size=6))
def test_an_array_of_several_dimensions_comes_back_as_it_was(data: st.DataObject, sizes: list[int]) -> None:
    array = value_of(field(FieldType.ARRAY, FieldType.STRING))

    def drawn(sizes: list[int]) -> Json:
        if not sizes:
            return data.draw(st.none() | ITEMS[FieldType.STRING])
        return [drawn(sizes[1:]) for _ in range(sizes[0])]

    body = drawn(sizes)

    assert same(array.read(array.write(body)), body)


@pytest.mark.parametrize(
    "body", [[[]], [["a"], []], [["a"], ["b", "c"]], [["a"], None], [["a"], "b"], [[["a"]], ["b"]]]
)
def test_lists_that_make_no_array_are_refused(body: Json) -> None:
    with pytest.raises(Refused, match="make no array"):
        value_of(field(FieldType.ARRAY, FieldType.STRING)).write(body)


def test_a_culprit_within_an_array_has_a_path() -> None:
    array = value_of(field(FieldType.ARRAY, FieldType.JSON))

    with pytest.raises(Refused) as refused:
        array.read('{"{\\"a\\":[1e400]}"}')

    assert refused.value.path == "[0].a[0]"


def test_paths_can_be_printed_whatever_the_keys() -> None:
    assert joined("fare", "two words", 3, "\ud800") == "fare['two words'][3]['\\ud800']"
    assert joined("two words") == "['two words']"
