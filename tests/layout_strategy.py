"""Hypothesis strategies of what the columns of a layout can hold: bodies for property tests.

    bodies(layout.columns["BASE"], read_column_types(connection, table), {users: ["c4ca4238-…"]})

For layouts that `check` has passed.
"""

from __future__ import annotations

import math
import struct
from base64 import b64encode
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from schemaless_core import InvalidRequest, Json
from schemaless_core.cell.canonical import INT_MAX, INT_MIN
from tests.column_types import ColumnType
from tripstore.backends.postgres.codec.moments import INFINITE
from tripstore.backends.postgres.codec.values import NOT_FINITE
from tripstore.backends.postgres.layout.layout import VERSION_MAX, Field, FieldType, Lookup, MappedColumn, RefKeyKind

_INTEGER_BITS = {"smallint": 16, "integer": 32, "bigint": 64}
_TEXTS = frozenset({"text", "character varying", "character", "citext", "public.citext"})
#: Values of types that are strings in bodies, in the one form that Postgres gives them.
_SAMPLES: Mapping[str, Sequence[str]] = {
    "interval": ("00:00:00", "1 mon 2 days 03:04:05.6", "30 days", "-1 days +02:00:00", "999:00:00.000001"),
    "time without time zone": ("00:00:00", "12:30:00.5", "24:00:00"),
    "time with time zone": ("12:30:00.5+05:30",),
    "inet": ("10.0.0.1/32", "10.0.0.1/24", "::1/128"),
    "cidr": ("10.0.0.0/24",),
    "macaddr": ("08:00:2b:01:02:03",),
    "int4range": ("empty", "[1,5)", "(,)"),
    "int8range": ("empty", "[1,5)"),
    "numrange": ("(1.10,2.5]", "[1,)"),
    "daterange": ("[2014-08-01,2014-09-01)",),
    "tstzrange": ('["2014-08-01 12:00:00+00","2014-08-01 13:00:00+00")',),
    "oid": ("0", "4294967295"),
}
_MILLION = 10**6
_DIGITS_MAX = 40


def bodies(
    column: MappedColumn,
    types: Mapping[str, ColumnType],
    known: Mapping[Lookup, Sequence[str]] | None = None,
) -> SearchStrategy[dict[str, Json]]:
    """Bodies that a table can hold whose columns have these types, and whose lookups know these UUIDs."""
    required: dict[str, SearchStrategy[Json]] = {}
    optional: dict[str, SearchStrategy[Json]] = {}
    for field in column.fields:
        values, is_not_null = _values(field, types[field.column], known or {}), types[field.column].is_not_null
        if field.keeps_null and not is_not_null:
            values = st.none() | values
        (required if is_not_null or field.keeps_null else optional)[field.name] = values
    mapped: SearchStrategy[dict[str, Json]] = st.fixed_dictionaries(required, optional=optional)
    if column.extra is None:
        return mapped
    names = _text().filter(lambda name: name not in column.fields_by_name)
    extra = st.dictionaries(names, _json(st.floats(allow_nan=False, allow_infinity=False), _text(with_zero=True)))
    whole: SearchStrategy[dict[str, Json]] = st.builds(lambda fields, more: fields | more, mapped, extra)
    return whole


def ref_keys(column: MappedColumn) -> SearchStrategy[int]:
    """Ref keys that rows of the column have, small numbers among them often."""
    first = 1 if column.ref_key.kind is RefKeyKind.VERSION else 0
    keys: SearchStrategy[int] = st.integers(first, 2**31 - 1)
    if column.ref_key.kind is RefKeyKind.CHILD:
        keys = st.builds(column.compose, keys, st.integers(0, VERSION_MAX))
    return keys


def _values(field: Field, column: ColumnType, known: Mapping[Lookup, Sequence[str]]) -> Any:
    if field.lookup is not None:
        uuids = known.get(field.lookup, ())
        return st.sampled_from(list(uuids)) if uuids else st.nothing()
    if field.kind is not FieldType.ARRAY:
        values = _scalars(field.kind, column)
        return values.filter(_is_not_none) if field.keeps_null else values
    items = _scalars(field.items or FieldType.STRING, column).filter(_is_not_none)
    flat = st.lists(st.none() | items, max_size=4)
    if field.items is FieldType.JSON:
        return flat
    square = st.lists(st.tuples(items, items).map(list), min_size=1, max_size=3)
    return flat | square


def _is_not_none(value: Json) -> bool:
    return value is not None


def _scalars(kind: FieldType, column: ColumnType) -> Any:
    match kind:
        case FieldType.UUID:
            return st.uuids().map(str)
        case FieldType.STRING:
            return _strings(column)
        case FieldType.INT:
            return _integers(column.name)
        case FieldType.FLOAT:
            return _floats(column.name) | st.sampled_from(NOT_FINITE)
        case FieldType.DECIMAL:
            return _decimals(column)
        case FieldType.BOOLEAN:
            return st.booleans()
        case FieldType.DATETIME:
            return _datetimes(column.modifiers[0] if column.modifiers else 6)
        case FieldType.DATE:
            far = ("0044-03-15 BC", "5874897-12-31", *INFINITE)
            return st.dates().map(str) | st.sampled_from(far)
        case FieldType.BYTES:
            return st.binary(max_size=20).map(lambda data: b64encode(data).decode())
        case FieldType.JSON if column.name == "json":
            return _json(st.floats(allow_nan=False, allow_infinity=False), _text(with_zero=True))
        case FieldType.JSON:
            return _json(_numeric_floats(), _text())
    raise AssertionError(kind)  # arrays have items


def _strings(column: ColumnType) -> Any:
    if column.labels:
        return st.sampled_from(column.labels)
    if column.name in _SAMPLES:
        return st.sampled_from(_SAMPLES[column.name])
    if column.name not in _TEXTS:
        raise InvalidRequest(f"No strategy knows texts of {column.name}.", hint="Give the field one of your own.")
    length = column.modifiers[0] if column.modifiers else 20
    if column.name != "character":
        return _text(max_size=length)
    if column.is_array:
        return _text(max_size=length).map(lambda text: text.ljust(length))
    return _text(max_size=length).map(lambda text: text.rstrip(" "))


def _text(max_size: int = 20, *, with_zero: bool = False) -> Any:
    refused = "" if with_zero else "\0"
    return st.text(st.characters(codec="utf-8", exclude_characters=refused), max_size=max_size)


def _integers(name: str) -> Any:
    half = 1 << (_INTEGER_BITS[name] - 1)
    return st.integers(-half, half - 1)


def _floats(name: str) -> Any:
    if name == "double precision":
        return st.floats(allow_nan=False, allow_infinity=False)
    # Six digits are what every 32-bit float keeps.
    floats = st.builds(lambda digits, exponent: float(f"{digits}e{exponent}"), st.integers(-999_999, 999_999), _small())
    return floats.filter(lambda number: not is_in_the_middle(number))


def is_in_the_middle(number: float) -> bool:
    """Whether a number lies half-way between two 32-bit floats: Postgres writes neither of them by its digits."""
    nearest: float = struct.unpack("f", struct.pack("f", number))[0]
    between = math.ulp(number) * 2**29  # 53 bits against 24
    return abs(number - nearest) * 2 == between


def _small() -> Any:
    return st.integers(-20, 20)


def _numeric_floats() -> Any:
    """Floats that jsonb gives back: a large one becomes an integer there, and -0.0 loses its sign."""
    floats = st.floats(-(10.0**15), 10.0**15)
    return floats.filter(lambda number: number != 0 or str(number) == "0.0")


def _decimals(column: ColumnType) -> Any:
    if column.name != "numeric":
        return _integers(column.name).map(str)
    if column.modifiers:
        precision, scale = column.modifiers
        bound = 10**precision - 1
        return st.integers(-bound, bound).map(lambda digits: _decimal(digits, scale)) | st.just("NaN")
    digits = st.integers(-(10**_DIGITS_MAX), 10**_DIGITS_MAX)
    return st.builds(_decimal, digits, st.integers(0, _DIGITS_MAX)) | st.sampled_from(NOT_FINITE)


def _decimal(digits: int, scale: int) -> str:
    """The digits with a point before the last `scale` of them."""
    if scale <= 0:
        return str(digits * 10**-scale)
    text = f"{abs(digits):0{scale + 1}d}"
    return f"{'-' if digits < 0 else ''}{text[:-scale]}.{text[-scale:]}"


def _datetimes(precision: int) -> Any:
    unit = 10 ** (6 - precision)

    def shown(moment: datetime) -> str:
        moment = moment.replace(microsecond=moment.microsecond // unit * unit)
        return moment.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"

    far = ("0044-03-15T12:00:00.000000Z BC", "294276-12-31T23:59:59.000000Z", *INFINITE)
    return st.datetimes(timezones=st.just(UTC)).map(shown) | st.sampled_from(far)


def _json(floats: Any, texts: Any) -> Any:
    leaves = st.none() | st.booleans() | st.integers(INT_MIN, INT_MAX) | floats | texts
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
        max_leaves=8,
    )
