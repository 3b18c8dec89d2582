"""Values of json and jsonb columns: text of any writer in, canonical text out, numbers exactly or not at all."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec

from schemaless_core import InvalidCell, Json, canonical_bytes
from schemaless_core.cell.canonical import INT_MAX, INT_MIN, MAX_DEPTH
from tripstore.backends.postgres.codec.refused import Refused, step

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_INT_DIGITS_MAX = 20
#: May be beyond 64 bits, which the encoder does not mind.
_LONG_NUMBER = b"0" * 19
#: What reading and writing may raise.
_STRANGE = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)
_ZEROS = bytes.maketrans(b"123456789", b"0" * 9)


class NestedDocument:
    """Exactly what the text says, or refused: a key that stands twice, a number beyond 64 bits or with more digits.

    JSON's null is a value of the column; where it has none, SQL's NULL, the field is missing.
    """

    def read(self, text: str) -> Json:
        try:
            data = text.encode()
            value: Json = _decode(data)
            is_flat = len(data) < 2 * MAX_DEPTH or data.count(b"[") + data.count(b"{") < MAX_DEPTH
            if is_flat and _is_plain(data, value):
                return value
        except _STRANGE:
            pass  # the careful reading says why
        return _read_carefully(text)

    def write(self, value: Json) -> str:
        try:
            return canonical_bytes(value).decode()
        except InvalidCell as error:
            raise Refused(error.reason, error.path.removeprefix("$")) from None


def plain_values(texts: Sequence[str]) -> list[Json] | None:
    """What these documents say, if all of them are plain and of few levels: told of all at once."""
    try:
        data = f"[{','.join(texts)}]".encode()
        values: Json = _decode(data)
        return values if isinstance(values, list) and len(values) == len(texts) and _is_plain(data, values) else None
    except _STRANGE:
        return None


def _is_plain(data: bytes, value: Json) -> bool:
    """Most texts were written by some encoder: if they come out of ours byte for byte but for the blanks, no key stood
    twice and no number lost a digit."""
    written = _encode(value)
    if written != data and written != _without_blanks(data):
        return False
    return _LONG_NUMBER not in data.translate(_ZEROS)


def _without_blanks(data: bytes) -> bytes:
    """The same JSON without the blanks between its parts, which jsonb writes."""
    return msgspec.json.format(data, indent=-1)


class _Lost:
    """Stands where a text says more than a body can hold."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


def _read_carefully(text: str) -> Json:
    try:
        value: Json = json.loads(text, parse_int=_int, parse_float=_float, object_pairs_hook=_object)
    except RecursionError:
        raise Refused(f"it is nested deeper than {MAX_DEPTH} levels") from None
    except ValueError:
        raise Refused("it is no JSON") from None
    try:
        canonical_bytes(value)
    except InvalidCell as error:
        path, reason = _find_lost(value, "") or (error.path.removeprefix("$"), error.reason)
        raise Refused(reason, path) from None
    return value


def _int(literal: str) -> Any:
    if literal == "-0":
        return -0.0  # what C and Postgres write for it; as an integer its sign would be lost
    if len(literal) > _INT_DIGITS_MAX or not INT_MIN <= int(literal) <= INT_MAX:
        return _Lost("it is an integer beyond 64 bits")
    return int(literal)


def _float(literal: str) -> Any:
    number = float(literal)
    try:
        is_exact = number - number == 0.0 and Decimal(literal) == Decimal(repr(number))
    except InvalidOperation:  # an exponent beyond what even Decimal knows
        is_exact = False
    return number if is_exact else _Lost("it is a number that a 64-bit float does not hold exactly")


def _object(pairs: list[tuple[str, Any]]) -> Any:
    found = dict(pairs)
    return found if len(found) == len(pairs) else _Lost("it is an object with a key that stands twice")


def _find_lost(value: Any, path: str) -> tuple[str, str] | None:
    """Where the first loss is, and why."""
    if isinstance(value, _Lost):
        return path, value.reason
    if isinstance(value, dict):
        elements: Any = value.items()
    elif isinstance(value, list):
        elements = enumerate(value)
    else:
        return None
    return next((found for key, inner in elements if (found := _find_lost(inner, path + step(key)))), None)
