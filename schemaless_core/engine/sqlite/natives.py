"""Values of index fields as SQLite holds them: text and UUIDs as bytes, times as microseconds, decimals in order."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any
from uuid import UUID

from schemaless_core.answers import Scalar
from schemaless_core.engine.index_sql import Dialect, plain_decimal
from schemaless_core.engine.sqlite.file import from_microseconds, to_microseconds
from schemaless_core.indexes.values import DECIMAL_DIGITS_AFTER, DECIMAL_DIGITS_BEFORE, FieldType

COLUMN_TYPES = {
    FieldType.UUID: "BLOB",
    FieldType.STRING: "BLOB",
    FieldType.INT: "INTEGER",
    FieldType.FLOAT: "REAL",
    FieldType.DECIMAL: "BLOB",
    FieldType.BOOLEAN: "INTEGER",
    FieldType.DATETIME: "INTEGER",
}

_EXACT = Context(prec=DECIMAL_DIGITS_BEFORE + DECIMAL_DIGITS_AFTER)
#: Added to a decimal's digits, so that none is negative and bytes order as numbers do.
_ZERO: int = 10 ** (DECIMAL_DIGITS_BEFORE + DECIMAL_DIGITS_AFTER)
_DECIMAL_BYTES = ((2 * _ZERO).bit_length() + 7) // 8


def _from_decimal(number: Decimal) -> bytes:
    digits = int(number.scaleb(DECIMAL_DIGITS_AFTER, _EXACT))
    return (digits + _ZERO).to_bytes(_DECIMAL_BYTES, "big")


def _to_decimal(stored: bytes) -> Decimal:
    digits = int.from_bytes(stored, "big") - _ZERO
    return plain_decimal(Decimal(digits).scaleb(-DECIMAL_DIGITS_AFTER, _EXACT))


_TO_NATIVE: dict[FieldType, Callable[[Any], Any]] = {
    FieldType.UUID: lambda value: value.bytes,
    FieldType.STRING: str.encode,
    FieldType.INT: int,
    FieldType.FLOAT: float,
    FieldType.DECIMAL: _from_decimal,
    FieldType.BOOLEAN: int,
    FieldType.DATETIME: to_microseconds,
}
_FROM_NATIVE: dict[FieldType, Callable[[Any], Scalar]] = {
    FieldType.UUID: lambda stored: UUID(bytes=stored),
    FieldType.STRING: bytes.decode,
    FieldType.INT: int,
    FieldType.FLOAT: float,
    FieldType.DECIMAL: _to_decimal,
    FieldType.BOOLEAN: bool,
    FieldType.DATETIME: from_microseconds,
}

DIALECT = Dialect(
    placeholder=lambda _kind: "?",
    native=lambda kind, value: _TO_NATIVE[kind](value),
    value=lambda kind, stored: _FROM_NATIVE[kind](stored),
)
