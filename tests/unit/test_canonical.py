"""Canonical bytes: exactly JSON is admitted, and equal bytes mean equal values."""

from __future__ import annotations

import json
from collections import OrderedDict
from datetime import UTC, datetime
from decimal import Decimal
from enum import IntEnum, StrEnum
from math import inf, nan
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemaless_core import InvalidCell, Json, canonical_bytes
from schemaless_core.cell.canonical import INT_MAX, INT_MIN, MAX_DEPTH, from_canonical


class Fare(IntEnum):
    BASE = 1


class Status(StrEnum):
    DONE = "done"


class Text(str):
    """A subclass that looks like its parent."""


class Whole(int):
    pass


class Real(float):
    pass


class Point(NamedTuple):
    x: int


class Struct(msgspec.Struct):
    x: int = 1


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(INT_MIN, INT_MAX)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


def nested(levels: int) -> Json:
    body: Json = []
    for _ in range(levels - 1):
        body = [body]
    return body


def same(a: Json, b: Json) -> bool:
    """Whether two values are the same JSON value, told without any encoder: types first, then values."""
    if type(a) is not type(b):
        return False
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, float):
        return repr(a) == repr(b)  # 0.0 and -0.0 are written differently
    return a == b


@given(JSON)
def test_every_json_value_comes_back_as_it_was(body: Json) -> None:
    assert same(from_canonical(canonical_bytes(body)), body)


@given(JSON)
def test_any_json_reader_reads_canonical_bytes(body: Json) -> None:
    assert same(json.loads(canonical_bytes(body)), body)


@given(JSON, JSON)
def test_bytes_are_equal_exactly_when_the_values_are(a: Json, b: Json) -> None:
    assert (canonical_bytes(a) == canonical_bytes(b)) == same(a, b)


@given(st.dictionaries(st.text(max_size=5), JSON, min_size=2, max_size=5))
def test_the_order_of_keys_does_not_matter(body: dict[str, Json]) -> None:
    assert canonical_bytes(dict(reversed(body.items()))) == canonical_bytes(body)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"b": [1, 2.5], "a": None}, b'{"a":null,"b":[1,2.5]}'),
        ({"ø": "æ", "z": True}, '{"z":true,"ø":"æ"}'.encode()),
        (1.0, b"1.0"),
        (1, b"1"),
        (True, b"true"),
        (None, b"null"),
        ("\u0000\"\\", b'"\\u0000\\"\\\\"'),
    ],
)  # fmt: skip
def test_canonical_bytes_are_utf8_sorted_and_without_blanks(body: Json, expected: bytes) -> None:
    assert canonical_bytes(body) == expected


@pytest.mark.parametrize(("a", "b"), [(1, 1.0), (1, True), (0, False), (0.0, -0.0), ("", None), ([], {})])
def test_what_python_calls_equal_differs_here(a: Json, b: Json) -> None:
    assert canonical_bytes(a) != canonical_bytes(b)


def test_the_encoder_alone_would_write_nan_as_a_tombstone() -> None:
    """The control for the walk."""
    assert msgspec.json.encode(nan) == msgspec.json.encode(None) == b"null"
    assert msgspec.json.encode({1: Fare.BASE}) == b'{"1":1}'


@pytest.mark.parametrize(
    "culprit",
    [
        nan, inf, -inf, INT_MAX + 1, INT_MIN - 1, 10**5_000,
        b"bytes", bytearray(b"b"), (1, 2), {1, 2}, frozenset(), range(3), object(), Ellipsis, int, 1j,
        Decimal("1.5"), UUID(int=1), datetime(2026, 1, 1, tzinfo=UTC),
        Fare.BASE, Status.DONE, Text("text"), Whole(1), Real(1.5), Point(1), Struct(), OrderedDict(a=1),
    ],
    ids=lambda culprit: type(culprit).__name__,
)  # fmt: skip
def test_whatever_is_not_exactly_json_is_refused_with_its_path(culprit: Any) -> None:
    for body, path in [
        (culprit, "$"),
        ([1, culprit], "$[1]"),
        ({"fare": culprit}, "$.fare"),
        ({"route": [{}, {"at": [0, culprit]}]}, "$.route[1].at[1]"),
        ({"two words": {"": culprit}}, "$['two words']['']"),
    ]:
        with pytest.raises(InvalidCell) as refused:
            canonical_bytes(body)

        assert refused.value.path == path
        assert refused.value.hint
        assert path in str(refused.value)


@pytest.mark.parametrize("key", [1, True, None, 1.5, b"k", ("a",), Text("k"), Status.DONE, UUID(int=1)])
def test_a_key_that_is_no_plain_string_is_refused(key: Any) -> None:
    with pytest.raises(InvalidCell, match="not a string") as refused:
        canonical_bytes({"outer": [{key: 1}]})

    assert refused.value.path == f"$.outer[0][{key!r}]"


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ("\ud800", "$"),
        (["fine", "a\udfff"], "$[1]"),
        ({"a": {"b": "\ud83d"}}, "$.a.b"),
        ({"a": [{"k\ud800": 1}]}, "$.a[0]['k\\ud800']"),
        ({"k\ud800": {"x": nan}}, "$['k\\ud800'].x"),
    ],
)
def test_a_lone_surrogate_is_refused_with_a_path_that_can_be_printed(body: Json, path: str) -> None:
    with pytest.raises(InvalidCell) as refused:
        canonical_bytes(body)

    assert refused.value.path == path
    assert str(refused.value).encode()


def test_a_pair_of_surrogates_made_by_hand_is_no_character() -> None:
    with pytest.raises(InvalidCell, match="surrogate"):
        canonical_bytes("\ud83d\ude95")

    assert canonical_bytes("🚕") == '"🚕"'.encode()


def test_bodies_are_nested_up_to_the_bound_and_no_deeper() -> None:
    assert MAX_DEPTH == 200
    assert same(from_canonical(canonical_bytes(nested(200))), nested(200))
    with pytest.raises(InvalidCell, match="deeper than 200 levels") as refused:
        canonical_bytes(nested(201))

    assert refused.value.path == "$" + "[0]" * 200


def test_objects_and_lists_count_alike_for_the_depth() -> None:
    deepest: Json = {"k": nested(199)}

    assert canonical_bytes(deepest)
    with pytest.raises(InvalidCell, match="deeper"):
        canonical_bytes([deepest])


def test_a_body_that_holds_itself_is_refused() -> None:
    body: list[Json] = []
    body.append(body)

    with pytest.raises(InvalidCell, match="deeper"):
        canonical_bytes(body)


@pytest.mark.parametrize("torn", [b"", b'{"fare":1', b'"\xff"', b'{"name":"\xc3"}', b"NaN", b"1 2"])
def test_bytes_that_are_no_json_are_one_kind_of_error(torn: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        from_canonical(torn)


@pytest.mark.parametrize("value", [INT_MIN, INT_MAX, 0, -1, 2**53 + 1])
def test_ints_up_to_64_bits_keep_their_value(value: int) -> None:
    assert from_canonical(canonical_bytes([value])) == [value]


@pytest.mark.parametrize("value", [0.1, 1e300, 5e-324, 1e16, -0.0, 1.7976931348623157e308])
def test_floats_keep_every_bit(value: float) -> None:
    found = from_canonical(canonical_bytes(value))

    assert isinstance(found, float)
    assert found.hex() == value.hex()
