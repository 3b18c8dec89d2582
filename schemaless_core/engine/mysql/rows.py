"""Rows between Python and SQL text: binary literals, VALUES lists, and the shape of what comes back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from schemaless_core.cell.stored import StoredCell
from schemaless_core.engine.mysql.names import Names
from schemaless_core.engine.mysql.wire.connection import DeadlineConnection


def values_of(connection: DeadlineConnection, rows: Iterable[bytes]) -> bytes:
    """A table of rows; MySQL wants the word ROW before each, MariaDB refuses it."""
    if connection.is_mariadb:
        return b"VALUES (" + b"), (".join(rows) + b")"
    return b"VALUES ROW(" + b"), ROW(".join(rows) + b")"


def stored_cell(names: Names, row: Sequence[Any]) -> StoredCell:
    """A row of added id, row key, column name, ref key, body, time."""
    added_id, row_key, column_name, ref_key, body, created_at = row
    return StoredCell(added_id, row_key, column_name, ref_key, names.bodies.plain(body), utc(created_at))


def utc(moment: datetime) -> datetime:
    """Our sessions speak UTC; the driver does not know."""
    return moment.replace(tzinfo=UTC)
