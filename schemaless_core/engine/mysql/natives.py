"""Values of index fields as MySQL and MariaDB hold them. Text is bytes, and compares by them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from schemaless_core.answers import Scalar
from schemaless_core.engine.index_sql import Dialect, plain_decimal
from schemaless_core.engine.mysql.rows import utc
from schemaless_core.indexes.values import DECIMAL_DIGITS_AFTER, DECIMAL_DIGITS_BEFORE, TEXT_BYTES_MAX, FieldType

COLUMN_TYPES = {
    FieldType.UUID: "BINARY(16)",
    FieldType.STRING: f"VARBINARY({TEXT_BYTES_MAX})",
    FieldType.INT: "BIGINT",
    FieldType.FLOAT: "DOUBLE",
    FieldType.DECIMAL: f"DECIMAL({DECIMAL_DIGITS_BEFORE + DECIMAL_DIGITS_AFTER}, {DECIMAL_DIGITS_AFTER})",
    FieldType.BOOLEAN: "TINYINT",
    FieldType.DATETIME: "DATETIME(6)",
}


def _placeholder(kind: FieldType) -> str:
    # A time that is bound is text, and in some comparisons it would be compared as text.
    return "CAST(%s AS DATETIME(6))" if kind is FieldType.DATETIME else "%s"


def _naive(moment: datetime) -> datetime:
    """Our sessions speak UTC; the driver does not know."""
    return moment.astimezone(UTC).replace(tzinfo=None)


_TO_NATIVE: dict[FieldType, Callable[[Any], Any]] = {
    FieldType.UUID: lambda value: value.bytes,
    FieldType.STRING: str.encode,
    FieldType.INT: int,
    FieldType.FLOAT: float,
    FieldType.DECIMAL: Decimal,
    FieldType.BOOLEAN: bool,
    FieldType.DATETIME: _naive,
}
_FROM_NATIVE: dict[FieldType, Callable[[Any], Scalar]] = {
    FieldType.UUID: lambda stored: UUID(bytes=stored),
    FieldType.STRING: bytes.decode,
    FieldType.INT: int,
    FieldType.FLOAT: float,
    FieldType.DECIMAL: plain_decimal,
    FieldType.BOOLEAN: bool,
    FieldType.DATETIME: utc,
}

DIALECT = Dialect(
    placeholder=_placeholder,
    native=lambda kind, value: _TO_NATIVE[kind](value),
    value=lambda kind, stored: _FROM_NATIVE[kind](stored),
)
