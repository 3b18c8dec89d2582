"""What a request brings, read so that nothing in it is lost.

A number that would change is refused, and so is a name that stands twice in one object: Python's own reading would keep
the nearest number and the last value, and say nothing.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from math import isfinite
from typing import Any, NoReturn, TypeVar

import msgspec

from schemaless_core.cell.canonical import Json
from schemaless_core.errors import InvalidCell, InvalidRequest, shown

T = TypeVar("T")
#: More is read beside the event loop, which answers other calls meanwhile: 16 MiB of numbers can take half a minute.
AT_ONCE_BYTES_MAX = 8 * 1024
#: A float of 64 bits never has more digits that count.
_DIGITS_MAX = 1100


class Inexact(ValueError):
    """What JSON allows and we would lose."""

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


async def read_beside(read: Callable[[bytes], T], data: bytes) -> T:
    """Read what a request brings; on a thread where it is large."""
    return read(data) if len(data) <= AT_ONCE_BYTES_MAX else await asyncio.to_thread(read, data)


def exact_body(data: bytes) -> Json:
    """Return the body of a request, or raise `InvalidCell`: it is no JSON, or would not be stored as it is."""
    try:
        return _read(data)
    except Inexact as error:
        raise InvalidCell(error.reason, hint=error.hint) from None


def document_of(data: bytes, kind: type[T]) -> T:
    """Return the document of a request, or raise `InvalidRequest`."""
    try:
        return msgspec.convert(_read(data), kind)
    except Inexact as error:
        reason, hint = error.reason, error.hint
    except msgspec.ValidationError as error:
        reason, hint = str(error).rstrip("."), "/openapi.json says what it is to be."
    raise InvalidRequest(f"The document of the request is wrong: {reason}.", hint=hint)


def _read(data: bytes) -> Json:
    try:
        value: Json = _decode(data.decode())
    except UnicodeDecodeError:
        raise Inexact("it is no UTF-8", "Send JSON as UTF-8.") from None
    except RecursionError:
        raise Inexact("it is nested too deep", "Flatten it.") from None
    except json.JSONDecodeError as error:
        reason = f"it is no JSON ({error.msg} at character {error.pos})"
        raise Inexact(reason, "Send one JSON value.") from None
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        name = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise Inexact(f"the name {shown(name)} stands twice in one object", "Give each name once.")
    return values


def _float(text: str) -> float:
    """A number with a point or an exponent, if a float of 64 bits has this very value when it is written again."""
    value = float(text) if len(text) <= _DIGITS_MAX else None
    if value is None or not isfinite(value) or not _is_written_as(text, value):
        raise _changed(text)
    return value


def _is_written_as(text: str, value: float) -> bool:
    if not value:  # also of an exponent that no Decimal can have
        return not text.lower().partition("e")[0].strip("-0.")
    written = repr(value)
    return text == written or Decimal(text) == Decimal(written)


def _int(text: str) -> int:
    """The store says which it takes; of a million digits Python makes none."""
    try:
        return int(text)
    except ValueError:
        raise _changed(text) from None


def _changed(text: str) -> Inexact:
    return Inexact(f"the number {shown(text)} has more digits than a number of 64 bits keeps", "Write it as a string.")


def _constant(name: str) -> NoReturn:
    raise Inexact(f"{name} is no JSON", "Leave it out, or write null.")


_decode = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=_float, parse_int=_int, parse_constant=_constant
).decode
