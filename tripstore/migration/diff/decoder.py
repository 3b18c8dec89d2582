"""A second opinion on what a row says: Postgres renders each value by itself, and Python's own json reads the result.

It shares no code with whatever copies, only the layout. It gives no bytes, it only says whether a body means what the
row means; of what it does not know, years before 1 and infinite times, it says nothing.
"""

from __future__ import annotations

import json
import math
from base64 import b64decode
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from tripstore.backends.postgres.layout.layout import Field, FieldType, MappedColumn, RefKeyKind, quoted

#: Where a body differs that has a field too many, or is none.
WHOLE = "$"
_NOT_FINITE = ("NaN", "Infinity", "-Infinity")
_KNOWN_TIME = "{0} BETWEEN '0001-01-01' AND '9999-12-31'"
_MISSING = object()


class Undecided(Exception):
    """Nothing is known of a value; it is not held against the body."""


def select_of(column: MappedColumn) -> str:
    """What to select of `r`, a row: its key, number and version, then each field, then what no field holds."""
    numbers = [f"r.{quoted(name)}" if name else "0" for name in (column.ref_key.column, column.ref_key.version)]
    extra = f"r.{quoted(column.extra)}::text" if column.extra else "NULL::text"
    fields = [_expression(field) for field in column.fields]
    return ", ".join([f"r.{quoted(column.uuid)}::text", *numbers, *fields, extra])


def ref_key_of(column: MappedColumn, number: int, version: int) -> int:
    """The ref key of a row's cell, as the layout's documentation says it."""
    if column.ref_key.kind is RefKeyKind.CHILD:
        return number * 1_048_576 + version
    return number if column.ref_key.kind is RefKeyKind.FACT else version


def path_of_difference(column: MappedColumn, values: Sequence[Any], body: Any) -> str | None:
    """The field in which a body says something else than the row does; None: none that is known."""
    if not isinstance(body, dict):
        return WHOLE
    *fields, extra = values
    rest = dict(body)
    for field, value in zip(column.fields, fields, strict=True):
        held = rest.pop(field.name, _MISSING)
        try:
            if not _is_same(field, value, held):
                return field.name
        except Undecided:
            continue
        except (ValueError, TypeError, ArithmeticError):
            return field.name
    return None if _is_json(_loaded(extra) if extra is not None else {}, rest) else column.extra or WHOLE


def _expression(field: Field) -> str:
    column = f"r.{quoted(field.column)}"
    if field.lookup is not None:
        table, key, value = field.lookup.table.sql, quoted(field.lookup.key), quoted(field.lookup.value)
        found = f"(SELECT l.{value}::text FROM {table} AS l WHERE l.{key} = {column})"
        return f"CASE WHEN {column} IS NOT NULL THEN COALESCE({found}, '?') END"
    match field.kind:
        case FieldType.DATETIME:
            shown = f"""pg_catalog.to_char({column}::timestamp, 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"""
            return f"CASE WHEN {_KNOWN_TIME.format(column)} THEN {shown} WHEN {column} IS NOT NULL THEN '?' END"
        case FieldType.DATE:
            shown = f"pg_catalog.to_char({column}, 'YYYY-MM-DD')"
            return f"CASE WHEN {_KNOWN_TIME.format(column)} THEN {shown} WHEN {column} IS NOT NULL THEN '?' END"
        case FieldType.BYTES:
            return f"pg_catalog.encode({column}, 'hex')"
        case FieldType.ARRAY:
            return f"pg_catalog.array_to_json({column})::text"
    return f"{column}::text"


def _is_same(field: Field, value: str | None, held: Any) -> bool:
    if value is None:
        return held is None if field.keeps_null else held is _MISSING
    if value == "?" and field.lookup is not None:
        raise Undecided  # a row that was deleted since
    if held is _MISSING:
        return False
    if field.kind is FieldType.ARRAY:
        return _is_array(field.items or FieldType.STRING, _loaded(value), held)
    return _is_scalar(field.kind, value, held)


def _is_scalar(kind: FieldType, value: str, held: Any) -> bool:
    match kind:
        case FieldType.UUID:
            return isinstance(held, str) and UUID(held) == UUID(value)
        case FieldType.INT:
            return type(held) is int and held == Decimal(value)
        case FieldType.FLOAT:
            return held == value if value in _NOT_FINITE else type(held) is float and _same_float(held, float(value))
        case FieldType.DECIMAL:
            if value in _NOT_FINITE:
                return bool(held == value)
            return isinstance(held, str) and Decimal(held).as_tuple() == Decimal(value).as_tuple()
        case FieldType.BOOLEAN:
            return type(held) is bool and held == (value in ("t", "true"))
        case FieldType.DATETIME | FieldType.DATE:
            if value == "?":
                raise Undecided
            return bool(held == value)
        case FieldType.BYTES:
            return isinstance(held, str) and b64decode(held, validate=True) == bytes.fromhex(value)
        case FieldType.JSON:
            return _is_json(_loaded(value), held)
    return bool(held == value)


def _is_array(kind: FieldType, value: Any, held: Any) -> bool:
    if kind is FieldType.JSON:
        return _is_json(value, held)
    if isinstance(value, list):
        return (
            isinstance(held, list)
            and len(held) == len(value)
            and all(_is_array(kind, one, other) for one, other in zip(value, held, strict=True))
        )
    if value is None:
        return held is None
    match kind:
        case FieldType.DATETIME if value[:4] < "0001" or not value[:1].isdigit() or value[4:5] != "-":
            raise Undecided
        case FieldType.DATETIME:
            moment = datetime.fromisoformat(value)
            moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
            return isinstance(held, str) and datetime.fromisoformat(held) == moment
        case FieldType.BYTES:
            return isinstance(held, str) and b64decode(held, validate=True) == bytes.fromhex(value[2:])
        case FieldType.BOOLEAN:
            return held is value
    return _is_scalar(kind, value if isinstance(value, str) else str(value), held)


def _is_json(value: Any, held: Any) -> bool:
    """Numbers by value, and an integer is no float."""
    if isinstance(value, dict):
        return (
            isinstance(held, dict)
            and value.keys() == held.keys()
            and all(_is_json(value[name], held[name]) for name in value)
        )
    if isinstance(value, list):
        return (
            isinstance(held, list)
            and len(value) == len(held)
            and all(_is_json(one, other) for one, other in zip(value, held, strict=True))
        )
    if isinstance(value, Decimal):  # it has a point or an exponent, or is -0
        return type(held) is float and _same_float(held, float(value))
    return type(held) is type(value) and bool(held == value)


def _same_float(one: float, other: float) -> bool:
    return one == other and math.copysign(1.0, one) == math.copysign(1.0, other)


def _loaded(text: str) -> Any:
    return json.loads(text, parse_float=Decimal, parse_int=_int)


def _int(text: str) -> int | Decimal:
    return Decimal(text) if text == "-0" else int(text)
