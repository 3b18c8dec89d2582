"""Values as the driver gave them, and as bodies hold them. None is NULL everywhere."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Decimal
from math import isfinite
from typing import Any
from uuid import UUID

from schemaless_core.cell.canonical import Json
from schemaless_core.errors import InvalidRequest, shown

_WHOLE = re.compile(r"\s*[+-]?[0-9]+\s*", re.ASCII)


def as_decimal(text: Any) -> Decimal | None:
    """With its scale."""
    return None if text is None else Decimal(text)


def as_float(value: Any) -> float | None:
    """What is not finite is a text in bodies."""
    return None if value is None else float(value)


def float_value(value: float | None) -> float | str | None:
    """A whole number is a float as well; NaN and infinities are texts."""
    if value is None or isfinite(value):
        return None if value is None else float(value)
    return "NaN" if value != value else f"{'-' if value < 0 else ''}Infinity"


def as_datetime(text: Any) -> datetime | None:
    """Aware, in UTC. Times beyond Python's years are refused, as the driver refuses them."""
    return None if text is None else datetime.fromisoformat(text)


def as_date(text: Any) -> date | None:
    """Dates beyond Python's years are refused."""
    return None if text is None else date.fromisoformat(text)


def as_uuid(text: Any) -> UUID | None:
    """As a UUID, whatever form the text has."""
    return None if text is None else UUID(text)


def as_bytes(text: Any) -> bytes | None:
    """Of base64."""
    return None if text is None else b64decode(text, validate=True)


def whole_number(value: Any) -> Any:
    """What an integer column is compared with: Postgres takes '7' for 7, and a service may have it from a URL."""
    return int(value) if isinstance(value, str) and _WHOLE.fullmatch(value) else value


def text_value(value: Any, length: int | None = None) -> str | None:
    """As a column of texts keeps it, of so many characters, if it says so. Spaces beyond them go, as in Postgres."""
    if value is None:
        return None
    if not isinstance(value, str) or "\0" in value:
        raise InvalidRequest(f"{shown(value)} is no text that Postgres keeps.", hint="Pass a str without NUL.")
    plain = str.__str__(value)
    if length is not None and plain[length:].strip(" "):
        raise InvalidRequest(f"{shown(plain)} has more than {length} characters.", hint="Pass a shorter text.")
    return plain[:length]


def int_value(value: int | None, bits: int = 64) -> int | None:
    """As a column of so many bits keeps it."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidRequest(f"{shown(value)} is no whole number.", hint="Pass an int.")
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise InvalidRequest(f"{shown(value)} is out of range.", hint=f"The column has {bits} bits.")
    return int(value)


def bool_value(value: bool | None) -> bool | None:
    """As a column of booleans keeps it."""
    if value is None or isinstance(value, bool):
        return value
    raise InvalidRequest(f"{shown(value)} is no boolean.", hint="Pass True or False.")


def decimal_text(value: Decimal | int | None, scale: int, precision: int | None = None) -> str | None:
    """As a column of this scale keeps it: rounded half away from zero, and never minus zero.

    With more digits than the column has, it is refused, as Postgres refuses it.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, Decimal | int):
        raise InvalidRequest(f"{shown(value)} is no decimal number.", hint="Pass a Decimal or an int.")
    rounded = Decimal(value).quantize(Decimal(1).scaleb(-scale), rounding=ROUND_HALF_UP)
    if precision is not None and rounded.is_finite() and abs(rounded) >= Decimal(1).scaleb(precision - scale):
        raise InvalidRequest(f"{shown(value)} is out of range.", hint=f"The column has {precision} digits.")
    return f"{abs(rounded) if rounded == 0 else rounded:f}"


def datetime_text(value: datetime | None) -> str | None:
    """In UTC, with microseconds. A time without zone means another moment in each session, so it is refused."""
    if value is None:
        return None
    if value.tzinfo is None:
        raise InvalidRequest(f"{shown(value)} has no time zone.", hint="Say which: value.replace(tzinfo=UTC).")
    moment = value.astimezone(UTC).replace(tzinfo=None)
    return f"{moment.isoformat(timespec='microseconds')}Z"


def date_text(value: date | None) -> str | None:
    """As a body holds it. A time is another day in each zone, so it is refused."""
    if value is None:
        return None
    if isinstance(value, datetime) or not isinstance(value, date):
        raise InvalidRequest(f"{shown(value)} is no date.", hint="Say which day: value.date().")
    return value.isoformat()


def uuid_text(value: UUID | str | None) -> str | None:
    """As a body holds it, whatever form it has."""
    return None if value is None else str(value if isinstance(value, UUID) else UUID(value))


def bytes_text(value: bytes | None) -> str | None:
    """Base64, as a body holds it."""
    return None if value is None else b64encode(value).decode("ascii")


def as_list(values: Any, item: Callable[[Any], Any] = lambda value: value) -> list[Any] | None:
    """A list of its own, with what each of its values becomes."""
    return None if values is None else [None if value is None else item(value) for value in values]


def list_value(values: Any, item: Callable[[Any], Json]) -> list[Json] | None:
    """As a column of arrays of one dimension keeps it."""
    if values is None:
        return None
    if not isinstance(values, list):
        raise InvalidRequest(f"{shown(values)} is no list.", hint="Pass a list of values.")
    return [item(value) for value in values]


def json_value(value: Any) -> Json:
    """As a column of jsonb keeps it. What that would write in another form is refused."""
    if isinstance(value, str):
        return text_value(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return _json_number(value)
    if isinstance(value, list):
        return [json_value(each) for each in value]
    if isinstance(value, dict) and all(isinstance(name, str) and "\0" not in name for name in value):
        return {name: json_value(each) for name, each in value.items()}
    raise InvalidRequest(f"{shown(value)} is no JSON.", hint="Pass dicts by text, lists, texts, numbers.")


def json_object(value: Any) -> Json:
    """The same of a dict; a text is another value to a driver, and a list an array."""
    if value is None or isinstance(value, dict):
        return json_value(value)
    raise InvalidRequest(f"{shown(value)} is no dict.", hint="Pass a dict, which the driver writes as json.")


def _json_number(value: float) -> float:
    """jsonb writes the digits of a number out: a float that is written with an exponent would come back as an int."""
    if isinstance(value, int):
        return int_value(value) or 0
    if not isfinite(value) or "e+" in repr(value) or (value == 0 and repr(value) != "0.0"):
        raise InvalidRequest(f"{shown(value)} is no number that jsonb keeps as it is.", hint="Pass a smaller one.")
    return float(value)
