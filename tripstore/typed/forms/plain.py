"""Forms of texts, numbers, booleans, UUIDs and bytes."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from decimal import Decimal
from math import isfinite, isinf
from uuid import UUID

from schemaless_core.cell.canonical import Json
from tripstore.typed.forms.form import ValueForm
from tripstore.typed.unfit import Unfit, other_kind

_NAN, _INFINITY = "NaN", "Infinity"
#: What no JSON number can be; strings in bodies, of floats and decimals alike.
NOT_FINITE = (_NAN, _INFINITY, f"-{_INFINITY}")

_UUID = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE).fullmatch
#: The exponent is bounded: digits in full are what is written of it.
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]{1,4})?", re.ASCII | re.IGNORECASE).fullmatch


def _read_uuid(value: Json) -> UUID:
    if type(value) is not str or _UUID(value) is None:
        raise Unfit("it is not 32 hexadecimal digits")
    return UUID(value)


def _write_uuid(value: object) -> Json:
    if not isinstance(value, UUID):
        raise other_kind(value, "a uuid.UUID")
    return str(value)


def _read_text(value: Json) -> str:
    if type(value) is not str:
        raise other_kind(value, "a str")
    return value


def _write_text(value: object) -> Json:
    if not isinstance(value, str):
        raise other_kind(value, "a str")
    return str.__str__(value)  # of a member of an enum, its text


def _read_int(value: Json) -> int:
    if type(value) is not int:
        raise other_kind(value, "an int")
    return value


def _write_int(value: object) -> Json:
    if not isinstance(value, int) or isinstance(value, bool):
        raise other_kind(value, "an int")
    return int(value)


def _read_float(value: Json) -> float:
    if type(value) is float or type(value) is int:
        return value
    if value not in NOT_FINITE:
        raise other_kind(value, "a float")
    return float(str(value))


def _write_float(value: object) -> Json:
    if not isinstance(value, float | int) or isinstance(value, bool):
        raise other_kind(value, "a float")
    try:
        number = float(value)
    except OverflowError:
        raise Unfit("it is too large for a float") from None
    if isfinite(number):
        if number != value:
            raise Unfit("it is an int that no float holds exactly", "Pass a float.")
        return number
    return _named(is_nan=not isinf(number), is_negative=number < 0)


def _read_decimal(value: Json) -> Decimal:
    if type(value) is int or type(value) is float:
        return Decimal(repr(value))
    if type(value) is not str:
        raise other_kind(value, "a decimal number")
    if _DECIMAL(value) is None and value not in NOT_FINITE:
        raise Unfit("it is no decimal number")
    return Decimal(value)


def _write_decimal(value: object) -> Json:
    """The digits in full: 1.10 stays 1.10, and there is no exponent."""
    if not isinstance(value, Decimal | int) or isinstance(value, bool):
        raise other_kind(value, "a decimal.Decimal")
    number = Decimal(value)
    if number.is_finite():
        if number.is_zero() and number.is_signed():
            raise Unfit("decimals have no negative zero", "Add 0 to it.")
        return format(number, "f")
    if number.is_snan() or (number.is_nan() and (number.is_signed() or number.as_tuple().digits)):
        raise Unfit("it is a NaN that no database tells from others", 'Pass Decimal("NaN").')
    return _named(is_nan=number.is_nan(), is_negative=number.is_signed())


def _named(*, is_nan: bool, is_negative: bool) -> str:
    return _NAN if is_nan else f"{'-' if is_negative else ''}{_INFINITY}"


def _boolean(value: object) -> bool:
    if type(value) is not bool:
        raise other_kind(value, "a bool")
    return value


def _read_bytes(value: Json) -> bytes:
    if type(value) is not str:
        raise other_kind(value, "base64 text")
    try:
        return b64decode(value, validate=True)
    except ValueError:
        raise Unfit("it is no base64") from None


def _write_bytes(value: object) -> Json:
    if not isinstance(value, bytes):
        raise other_kind(value, "bytes")
    return binascii.b2a_base64(value, newline=False).decode()


def _json(value: Json) -> Json:
    return value


UUIDS = ValueForm(_read_uuid, _write_uuid)
#: Also the text of whatever Postgres type has none of its own: a range, an interval, an address.
STRINGS = ValueForm(_read_text, _write_text)
INTS = ValueForm(_read_int, _write_int)
FLOATS = ValueForm(_read_float, _write_float)
DECIMALS = ValueForm(_read_decimal, _write_decimal)
BOOLEANS = ValueForm(_boolean, _boolean)
BYTES = ValueForm(_read_bytes, _write_bytes)
JSON = ValueForm(_json, _json)
