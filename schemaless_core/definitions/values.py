"""The types of index fields: what a body's value becomes, what a caller may ask for, and how values order.

Every value has one Python form per type, whatever wrote it: UUIDs, text of at most 512 bytes, int64, finite floats
without a negative zero, decimals without needless zeros, bools, and datetimes in UTC. All databases order these forms
alike: UUIDs and text by bytes, numbers by value, times by microseconds. A reason why a value is none of a type never
holds the value: it is stored and logged, and bodies are not.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import StrEnum
from hashlib import md5
from math import isfinite
from struct import pack
from typing import Any, NamedTuple
from uuid import UUID

from schemaless_core.cell.answers import Scalar
from schemaless_core.cell.canonical import Json
from schemaless_core.errors import InvalidRequest, shown

#: Bytes of a text that an index can hold; of any text that is to become a value.
TEXT_BYTES_MAX = 512
INT_MIN = -(2**63)
INT_MAX = 2**63 - 1
#: DECIMAL(65,30), the widest of MySQL.
DECIMAL_DIGITS_BEFORE = 35
DECIMAL_DIGITS_AFTER = 30
#: What MySQL's DATETIME holds.
YEAR_MIN = 1000

#: Longer texts are none of these, and no pattern has to look at them.
UUID_TEXT_MAX = 36
PLAIN_TIME_MAX = 27

SortKey = tuple[bool, Any]


class IndexFieldType(StrEnum):
    """The types that an index definition can name, in any case."""

    UUID = "UUID"  #: In bodies text: 32 hexadecimal digits, with or without hyphens.
    STRING = "string"  #: At most 512 bytes of UTF-8.
    INT = "int"  #: 64 bits with a sign.
    FLOAT = "float"  #: 64 bits, finite; ints are taken too.
    DECIMAL = "decimal"  #: 35 digits before the point and 30 after it; in bodies text or a number.
    BOOLEAN = "boolean"
    DATETIME = "datetime"  #: In bodies ISO 8601 text with its offset; kept in UTC, to the microsecond.


class BadValue(NamedTuple):
    """Why a value is none of a type, without the value itself."""

    reason: str


def parse(kind: IndexFieldType, value: Json) -> Scalar | BadValue:
    """Return what a value of a cell's body is as this type."""
    return _PARSERS[kind](value)


def check(kind: IndexFieldType, value: object, what: str) -> Scalar:
    """Return a caller's value in the type's Python form, or raise `InvalidRequest` that calls it `what`."""
    if value is None:
        raise InvalidRequest(
            f"{what} is None.", hint=f"{_HINTS[kind]} A missing field is found by no value and meets no condition."
        )
    found = _from_caller(kind, value)
    if isinstance(found, BadValue):
        raise InvalidRequest(f"{what}, {shown(value)}, is no {kind.value}: {found.reason}.", hint=_HINTS[kind])
    return found


def json_form(kind: IndexFieldType, value: Scalar) -> None | bool | int | float | str:
    """Return the JSON value that `parse` makes this value of again."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds")
    if isinstance(value, Decimal):
        return _plain_text(value)
    if isinstance(value, UUID):
        return str(value)
    return float(value) if kind is IndexFieldType.FLOAT else value


def value_bytes(kind: IndexFieldType, value: Scalar) -> bytes:
    """Return bytes that are equal exactly when values are; the shard of an index value is made of them."""
    if isinstance(value, UUID):
        return value.bytes
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, Decimal):
        return _plain_text(value).encode()
    if isinstance(value, datetime):
        return pack(">q", (value - _EPOCH) // timedelta(microseconds=1))
    if kind is IndexFieldType.FLOAT:
        return pack(">d", value + 0.0)
    return pack(">?" if kind is IndexFieldType.BOOLEAN else ">q", value)


def index_shard_of(kind: IndexFieldType, value: Scalar, shards: int) -> int:
    """The shard whose index tables hold the entries of a shard value, chosen as for row keys."""
    digest = md5(value_bytes(kind, value), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big") % shards


def sort_key(kind: IndexFieldType, value: Scalar | None) -> SortKey:
    """What values of one type are compared by, missing ones first: Python then orders them as the databases do."""
    if value is None:
        return (False, None)
    if isinstance(value, str):
        return (True, value.encode())
    if isinstance(value, UUID):
        return (True, value.bytes)
    return (True, value)


# ------------------------------------------------------------------------------------------------ from bodies

_UUID = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE)
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]{1,4})?", re.ASCII | re.IGNORECASE)
_DATETIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d+))?)? ?(Z|([+-])(\d\d)(?::?(\d\d))?)?",
    re.ASCII | re.IGNORECASE,
)
#: What most bodies hold: 2026-11-20T12:00:00Z, or with six more digits.
_PLAIN_UTC = re.compile(r"[1-9]\d{3}-\d\d-\d\dT(?:[01]\d|2[0-3]):\d\d:\d\d(?:\.\d{6})?Z", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _uuid(value: object) -> Scalar | BadValue:
    if type(value) is str and len(value) <= UUID_TEXT_MAX and _UUID.fullmatch(value):
        return UUID(int=int(value.replace("-", ""), 16))
    text = _text(value)
    if isinstance(text, BadValue):
        return text
    return BadValue("it is not 32 hexadecimal digits")


def _text(value: object) -> str | BadValue:
    if type(value) is not str:
        return _other_type(value)
    try:
        size = len(value.encode()) if len(value) <= TEXT_BYTES_MAX else len(value)
    except UnicodeEncodeError:
        return BadValue("it holds a lone surrogate")
    if size > TEXT_BYTES_MAX:
        return BadValue(f"it is longer than {TEXT_BYTES_MAX} bytes")
    return value


def _int(value: object) -> Scalar | BadValue:
    if type(value) is not int:
        return _other_type(value)
    return value if INT_MIN <= value <= INT_MAX else BadValue("it does not fit into 64 bits with a sign")


def _float(value: object) -> Scalar | BadValue:
    if type(value) is not float and type(value) is not int:
        return _other_type(value)
    try:
        number = float(value)
    except OverflowError:
        return BadValue("it is too large")
    return number + 0.0 if isfinite(number) else BadValue("it is not finite")


def _decimal(value: object) -> Scalar | BadValue:
    if type(value) is int:
        return _plain(Decimal(value))
    if type(value) is float:
        return _plain(Decimal(repr(value)))
    text = _text(value)
    if isinstance(text, BadValue):
        return text
    return _plain(Decimal(text)) if _DECIMAL.fullmatch(text) else BadValue("it is no number")


def _boolean(value: object) -> Scalar | BadValue:
    return value if type(value) is bool else _other_type(value)


def _datetime(value: object) -> Scalar | BadValue:
    if (moment := _plain_utc(value)) is not None:
        return moment
    text = _text(value)
    if isinstance(text, BadValue):
        return text
    parts = _DATETIME.fullmatch(text)
    if parts is None:
        return BadValue("it is not in ISO 8601, like 2026-11-20T12:00:00Z")
    if parts[8] is None:
        return BadValue("it has no offset from UTC")
    year, month, day, hour, minute, second = (int(part or 0) for part in parts.groups()[:6])
    # Whatever is finer than a microsecond is cut off, which keeps the order.
    microsecond = int((parts[7] or "0")[:6].ljust(6, "0"))
    try:
        return _utc(datetime(year, month, day, hour, minute, second, microsecond, _offset(parts)))
    except ValueError:
        return BadValue("there is no such time")


_PARSERS: dict[IndexFieldType, Callable[[object], Scalar | BadValue]] = {
    IndexFieldType.UUID: _uuid,
    IndexFieldType.STRING: _text,
    IndexFieldType.INT: _int,
    IndexFieldType.FLOAT: _float,
    IndexFieldType.DECIMAL: _decimal,
    IndexFieldType.BOOLEAN: _boolean,
    IndexFieldType.DATETIME: _datetime,
}


def _plain_utc(value: object) -> datetime | None:
    """What most bodies hold, as Python's own parser reads it, which is fast and takes more notations than we do.

    None: it is not written so, or there is no such time, and the reason has to be found.
    """
    if type(value) is not str or len(value) > PLAIN_TIME_MAX or not _PLAIN_UTC.fullmatch(value):
        return None
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        return None


def _offset(parts: re.Match[str]) -> timezone:
    hours, minutes = int(parts[10] or 0), int(parts[11] or 0)
    if minutes > 59:
        raise ValueError("no hour has so many minutes")
    offset = timedelta(hours=hours, minutes=minutes)
    return timezone(-offset if parts[9] == "-" else offset)


def _utc(moment: datetime) -> Scalar | BadValue:
    """The moment as a plain datetime in UTC, also if it is of a subclass."""
    try:
        at = moment.astimezone(UTC)
    except OverflowError:
        return BadValue("its year in UTC is not 1000 to 9999")
    if at.year < YEAR_MIN:
        return BadValue("its year in UTC is not 1000 to 9999")
    return datetime(at.year, at.month, at.day, at.hour, at.minute, at.second, at.microsecond, UTC)


def _plain(number: Decimal) -> Scalar | BadValue:
    """The decimal without trailing zeros or exponent. Python's own `normalize` would round to 28 digits."""
    if not number.is_finite():
        return BadValue("it is not finite")
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)  # finite
    if not any(digits):
        return Decimal(0)
    if number.adjusted() >= DECIMAL_DIGITS_BEFORE:
        return BadValue(f"it has more than {DECIMAL_DIGITS_BEFORE} digits before the point")
    zeros = next(count for count, digit in enumerate(reversed(digits)) if digit)
    significant, exponent = digits[: len(digits) - zeros], exponent + zeros
    if -exponent > DECIMAL_DIGITS_AFTER:
        return BadValue(f"it has more than {DECIMAL_DIGITS_AFTER} digits after the point")
    return Decimal((sign, significant + (0,) * max(exponent, 0), min(exponent, 0)))


def _plain_text(number: Decimal) -> str:
    """The same text for equal decimals, also for one that a database filled up with zeros."""
    text = format(number, "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _other_type(value: object) -> BadValue:
    return BadValue(f"it is a {type(value).__name__}")


# ----------------------------------------------------------------------------------------------- from callers

_HINTS = {
    IndexFieldType.UUID: "Pass a uuid.UUID, or its text.",
    IndexFieldType.STRING: f"Pass a str of at most {TEXT_BYTES_MAX} bytes of UTF-8.",
    IndexFieldType.INT: "Pass an int from -2^63 to 2^63-1.",
    IndexFieldType.FLOAT: "Pass a finite float, or an int.",
    IndexFieldType.DECIMAL: (
        "Pass a decimal.Decimal, an int or the number's text, with at most"
        f" {DECIMAL_DIGITS_BEFORE} digits before the point and {DECIMAL_DIGITS_AFTER} after it."
    ),
    IndexFieldType.BOOLEAN: "Pass True or False.",
    IndexFieldType.DATETIME: "Pass an aware datetime, like datetime.now(UTC), or ISO 8601 text with its offset.",
}


def _from_caller(kind: IndexFieldType, value: object) -> Scalar | BadValue:
    """The native forms, and whatever a body may hold; but no float for a decimal, which rarely is what was meant."""
    if kind is IndexFieldType.UUID and isinstance(value, UUID):
        return UUID(int=value.int)
    if kind is IndexFieldType.DATETIME and isinstance(value, datetime):
        return BadValue("it has no time zone") if value.utcoffset() is None else _utc(value)
    if kind is IndexFieldType.DECIMAL and isinstance(value, Decimal):
        return _plain(value)
    if kind is IndexFieldType.DECIMAL and type(value) is float:
        return _other_type(value)
    return _PARSERS[kind](value)
