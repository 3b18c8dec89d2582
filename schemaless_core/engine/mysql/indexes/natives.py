"""Values of index fields as MySQL and MariaDB hold them. Text is bytes, and compares by them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from schemaless_core.cell.answers import Scalar
from schemaless_core.definitions.values import (
    DECIMAL_DIGITS_AFTER,
    DECIMAL_DIGITS_BEFORE,
    TEXT_BYTES_MAX,
    IndexFieldType,
)
from schemaless_core.engine.index_sql import Dialect, plain_decimal
from schemaless_core.engine.mysql.rows import utc

COLUMN_TYPES = {
    IndexFieldType.UUID: "BINARY(16)",
    IndexFieldType.STRING: f"VARBINARY({TEXT_BYTES_MAX})",
    IndexFieldType.INT: "BIGINT",
    IndexFieldType.FLOAT: "DOUBLE",
    IndexFieldType.DECIMAL: f"DECIMAL({DECIMAL_DIGITS_BEFORE + DECIMAL_DIGITS_AFTER}, {DECIMAL_DIGITS_AFTER})",
    IndexFieldType.BOOLEAN: "TINYINT",
    IndexFieldType.DATETIME: "DATETIME(6)",
}


def _placeholder(kind: IndexFieldType) -> str:
    # A time that is bound is text, and in some comparisons it would be compared as text.
    return "CAST(%s AS DATETIME(6))" if kind is IndexFieldType.DATETIME else "%s"


def _naive(moment: datetime) -> datetime:
    """Our sessions speak UTC; the driver does not know."""
    return moment.astimezone(UTC).replace(tzinfo=None)


_TO_NATIVE: dict[IndexFieldType, Callable[[Any], Any]] = {
    IndexFieldType.UUID: lambda value: value.bytes,
    IndexFieldType.STRING: str.encode,
    IndexFieldType.INT: int,
    IndexFieldType.FLOAT: float,
    IndexFieldType.DECIMAL: Decimal,
    IndexFieldType.BOOLEAN: bool,
    IndexFieldType.DATETIME: _naive,
}
_FROM_NATIVE: dict[IndexFieldType, Callable[[Any], Scalar]] = {
    IndexFieldType.UUID: lambda stored: UUID(bytes=stored),
    IndexFieldType.STRING: bytes.decode,
    IndexFieldType.INT: int,
    IndexFieldType.FLOAT: float,
    IndexFieldType.DECIMAL: plain_decimal,
    IndexFieldType.BOOLEAN: bool,
    IndexFieldType.DATETIME: utc,
}

DIALECT = Dialect(
    placeholder=_placeholder,
    native=lambda kind, value: _TO_NATIVE[kind](value),
    value=lambda kind, stored: _FROM_NATIVE[kind](stored),
)
