"""A body as a person types it → the body that is stored. What could not be stored exactly is refused, not bent."""

from __future__ import annotations

import json
from decimal import Decimal

from schemaless_core.cell.canonical import Json
from schemaless_core.errors import InvalidCell


def parse_body(text: str) -> Json:
    """Return the JSON value of a text, or raise `InvalidCell`."""
    try:
        body: Json = json.loads(text, parse_float=_exact, parse_constant=_no_number, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        raise InvalidCell(
            f"the body is no JSON ({error})", hint="""Quote it for the shell: '{"status": "completed"}'."""
        ) from error
    except RecursionError:
        raise InvalidCell("the body is nested too deeply") from None
    return body


def _exact(text: str) -> float:
    number = float(text)
    if Decimal(repr(number)) != Decimal(text):
        raise InvalidCell(f"the number {text} would be stored as {number}", hint="Write it as a string.")
    return number


def _no_number(text: str) -> float:
    raise InvalidCell(f"{text} is no JSON number", hint="Leave it out, or write null or a string.")


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        double = next(name for name in names if names.count(name) > 1)
        raise InvalidCell(f"an object has the key {double!r} twice", hint="Only one of them could be stored.")
    return found
