"""The one encoder of the project: a JSON body to its canonical bytes and back.

Canonical bytes are UTF-8, keys sorted, no blanks. Two bodies are equal when their canonical bytes are: in
Python `True == 1 == 1.0`, here they differ. The walk before the encoder admits exactly the JSON types;
msgspec alone would write NaN as `null`, which is a tombstone here, and bytes, sets and UUIDs as something else.
"""

from __future__ import annotations

from math import isfinite
from typing import Any

import msgspec

from schemaless_core.errors import InvalidCell, shown

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

INT_MIN = -(2**63)
INT_MAX = 2**64 - 1
#: Levels of lists and objects. A fixed bound, so that whatever one process stores another can read.
MAX_DEPTH = 200

_PLAIN = frozenset({str, bool, type(None)})

_encode = msgspec.json.Encoder(order="sorted").encode
_decode = msgspec.json.Decoder().decode


def canonical_bytes(body: Json) -> bytes:
    """Return the canonical bytes of a body, or raise `InvalidCell` with the path of the culprit."""
    if not _is_admitted(body, 0):
        _walk(body, 0)  # finds the culprit and its path
    try:
        return _encode(body)
    except UnicodeEncodeError:
        raise InvalidCell(
            "a string holds a lone surrogate", path=_surrogate_path(body, "$"), hint="Decode its bytes as UTF-8."
        ) from None


def from_canonical(data: bytes) -> Json:
    """Return the body whose canonical bytes these are; `msgspec.DecodeError`: they are no JSON."""
    try:
        body: Json = _decode(data)
    except UnicodeDecodeError as error:  # callers that tell damaged bytes from a bug catch one kind of error
        raise msgspec.DecodeError(str(error)) from None
    return body


def _is_admitted(value: Any, depth: int) -> bool:
    """Whether a value is exactly JSON, told fast: every put passes here. Strings are checked by the encoder."""
    kind = type(value)
    if kind is dict:
        for key in value:
            if type(key) is not str:
                return False
        elements = value.values()
    elif kind is list:
        elements = value
    else:
        return _is_scalar(value)
    if depth == MAX_DEPTH:
        return False
    for element in elements:
        kind = type(element)
        if kind in _PLAIN:
            continue
        if kind is float:
            if element - element != 0.0:  # infinities and NaN
                return False
        elif kind is int:
            if not INT_MIN <= element <= INT_MAX:
                return False
        elif not _is_admitted(element, depth + 1):
            return False
    return True


def _is_scalar(value: Any) -> bool:
    kind = type(value)
    return kind in _PLAIN or (kind is int and INT_MIN <= value <= INT_MAX) or (kind is float and isfinite(value))


def _walk(value: Json, depth: int) -> None:
    """Refuse whatever is not exactly JSON, with the path of the culprit."""
    kind = type(value)
    if kind is str or value is None or kind is bool:
        return
    if kind is dict:
        if depth >= MAX_DEPTH:
            raise _too_deep()
        for key, inner in value.items():  # type: ignore[union-attr]  # kind is dict
            if type(key) is not str:
                reason = f"an object's key is a {type(key).__name__}, not a string"
                raise InvalidCell(reason, path=f"$[{shown(key)}]", hint="Write the key as a string.")
            if type(inner) is not str:
                _step(inner, depth, key)
    elif kind is list:
        if depth >= MAX_DEPTH:
            raise _too_deep()
        for position, inner in enumerate(value):  # type: ignore[arg-type]  # kind is list
            if type(inner) is not str:
                _step(inner, depth, position)
    else:
        _check_number(value)


def _step(value: Json, depth: int, step: str | int) -> None:
    try:
        _walk(value, depth + 1)
    except InvalidCell as culprit:
        path = _below("$", step) + culprit.path.removeprefix("$")
        raise InvalidCell(culprit.reason, path=path, hint=culprit.hint) from None


def _check_number(value: Json) -> None:
    kind = type(value)
    if kind is int:
        if not INT_MIN <= value <= INT_MAX:  # type: ignore[operator]  # kind is int
            raise InvalidCell(f"{shown(value)} is outside [-2^63, 2^64-1]", path="$", hint="Write it as a string.")
    elif kind is float:
        if not isfinite(value):  # type: ignore[arg-type]  # kind is float
            raise InvalidCell(f"{value} is no JSON number", path="$", hint="Leave it out, or write None.")
    else:
        hint = "Convert it to None, bool, int, float, str, list or dict, exactly these types."
        raise InvalidCell(f"a {kind.__name__} is no JSON value", path="$", hint=hint)


def _too_deep() -> InvalidCell:
    return InvalidCell(f"nested deeper than {MAX_DEPTH} levels", path="$", hint="Flatten the body.")


def _below(path: str, step: str | int) -> str:
    """The path of an element; a key that is no plain word stands quoted, so that every path can be printed."""
    return f"{path}.{step}" if isinstance(step, str) and step.isidentifier() else f"{path}[{step!r}]"


def _surrogate_path(value: Json, path: str) -> str:
    """Find where the lone surrogate is, once the encoder has said that there is one."""
    if isinstance(value, str):
        return path if not _encodable(value) else ""
    if isinstance(value, dict):
        for key, inner in value.items():
            if not _encodable(key):
                return _below(path, key)
            if found := _surrogate_path(inner, _below(path, key)):
                return found
    if isinstance(value, list):
        for position, inner in enumerate(value):
            if found := _surrogate_path(inner, _below(path, position)):
                return found
    return ""


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
