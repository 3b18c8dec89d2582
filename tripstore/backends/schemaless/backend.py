"""`SchemalessBackend`: a datastore that knows legacy ids, as its sibling `PostgresBackend` does."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from schemaless_core.cell import CellKey
from schemaless_core.datastore import Datastore
from tripstore.backends.postgres.ids.ids import LEGACY_ID_REF_KEY
from tripstore.backends.postgres.ids.index import ID_FIELD, LEGACY_ID_INDEX
from tripstore.backends.postgres.layout.layout import LEGACY_ID


class SchemalessBackend(Datastore):
    """Each row has one cell of `_LEGACY_ID`, which never changes; an index finds it by the id."""

    def resolve_ids(self, numbers: Iterable[int]) -> dict[int, UUID]:
        """The row keys of many legacy ids; what has none is left out."""
        found: dict[int, UUID] = {}
        for number in dict.fromkeys(numbers):
            # A pair never changes, so an entry is right; one that is not there yet may be in the log above it.
            page = self.query_index(LEGACY_ID_INDEX, number, limit=1)
            page = page if page.entries else self.query_index(LEGACY_ID_INDEX, number, limit=1, consistency="verified")
            if page.entries:
                found[number] = page.entries[0].row_key
        return found

    def legacy_ids(self, row_keys: Iterable[UUID]) -> dict[UUID, int]:
        """The legacy ids of many row keys; what has none is left out."""
        cells = self.get_cells([CellKey(row_key, LEGACY_ID, LEGACY_ID_REF_KEY) for row_key in row_keys])
        return {cell.row_key: cell.body[ID_FIELD] for cell in cells if cell is not None and isinstance(cell.body, dict)}  # type: ignore[misc]  # such a body holds an integer
