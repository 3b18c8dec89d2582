"""`Bodies`: what Postgres holds of a cell becomes its canonical bytes, and the cell.

Rows are rendered by the codec of the layout they were written by; cells of our own are stored as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from schemaless_core.cell.canonical import Json, from_canonical
from schemaless_core.cell.cell import Cell
from tripstore.backends.postgres.cells.rows import Found
from tripstore.backends.postgres.codec.codec import TOMBSTONE
from tripstore.backends.postgres.codec.codecs import Codecs
from tripstore.backends.postgres.wire.wire import LegacyConnection


class StoredRow(NamedTuple):
    """What was found, and of which row and column."""

    row_key: UUID
    column_name: str
    found: Found


class Bodies:
    """Renders cells. What a row points to is looked up on the way; for many rows at once if they are prefetched."""

    def __init__(self, codecs: Codecs) -> None:
        self._codecs = codecs

    def data(self, connection: LegacyConnection, stored: StoredRow) -> bytes:
        """The canonical bytes of a cell."""
        found = stored.found
        if found.body is not None:
            return bytes(found.body)
        if found.row is None:
            return TOMBSTONE
        if found.layout is None:
            return found.row.encode()
        return self._codecs.of(connection, found.layout, stored.column_name).canonical(found.row)

    def cell(self, connection: LegacyConnection, stored: StoredRow) -> Cell:
        found = stored.found
        body = self._body(connection, stored)
        return Cell(stored.row_key, stored.column_name, found.ref_key, body, None, found.created_at)

    def cells(self, connection: LegacyConnection, stored: list[StoredRow]) -> list[Cell]:
        """Many cells, with one look at each table that their rows point to."""
        self.prefetch(connection, stored)
        return [self.cell(connection, each) for each in stored]

    def prefetch(self, connection: LegacyConnection, stored: Iterable[StoredRow]) -> None:
        rows = [
            (found.layout, name, found.row)
            for _row_key, name, found in stored
            if found.row is not None and found.layout is not None
        ]
        if rows:
            self._codecs.prefetch(connection, rows)

    def _body(self, connection: LegacyConnection, stored: StoredRow) -> Json:
        found = stored.found
        if found.body is not None:
            return from_canonical(bytes(found.body))
        if found.row is None:
            return None
        if found.layout is None:
            return from_canonical(found.row.encode())
        return self._codecs.of(connection, found.layout, stored.column_name).body(found.row)
