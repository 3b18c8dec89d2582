"""Values of index fields as SQLite holds them: text and UUIDs as bytes, times as microseconds, decimals in order."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any
from uuid import UUID

from schemaless_core.cell.answers import Scalar
from schemaless_core.definitions.values import DECIMAL_DIGITS_AFTER, DECIMAL_DIGITS_BEFORE, IndexFieldType
from schemaless_core.engine.index_sql import Dialect, plain_decimal
from schemaless_core.engine.sqlite.file import from_microseconds, to_microseconds

COLUMN_TYPES = {
    IndexFieldType.UUID: "BLOB",
    IndexFieldType.STRING: "BLOB",
    IndexFieldType.INT: "INTEGER",
    IndexFieldType.FLOAT: "REAL",
    IndexFieldType.DECIMAL: "BLOB",
    IndexFieldType.BOOLEAN: "INTEGER",
    IndexFieldType.DATETIME: "INTEGER",
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


_TO_NATIVE: dict[IndexFieldType, Callable[[Any], Any]] = {
    IndexFieldType.UUID: lambda value: value.bytes,
    IndexFieldType.STRING: str.encode,
    IndexFieldType.INT: int,
    IndexFieldType.FLOAT: float,
    IndexFieldType.DECIMAL: _from_decimal,
    IndexFieldType.BOOLEAN: int,
    IndexFieldType.DATETIME: to_microseconds,
}
_FROM_NATIVE: dict[IndexFieldType, Callable[[Any], Scalar]] = {
    IndexFieldType.UUID: lambda stored: UUID(bytes=stored),
    IndexFieldType.STRING: bytes.decode,
    IndexFieldType.INT: int,
    IndexFieldType.FLOAT: float,
    IndexFieldType.DECIMAL: _to_decimal,
    IndexFieldType.BOOLEAN: bool,
    IndexFieldType.DATETIME: from_microseconds,
}

DIALECT = Dialect(
    placeholder=lambda _kind: "?",
    native=lambda kind, value: _TO_NATIVE[kind](value),
    value=lambda kind, stored: _FROM_NATIVE[kind](stored),
)
