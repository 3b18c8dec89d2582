"""`TakenValues`: whether another row holds what a unique constraint allows once, where an index of ours tells.

Of the parent's rows, by an index whose shard field is the constraint's only column. The cells are asked, not the
entries alone. Two puts at the same time both find nothing: the later one is parked, as without an index.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from schemaless_core.cell import Cell
from schemaless_core.errors import SchemalessError
from schemaless_core.indexes.definition import IndexDefinition
from schemaless_core.indexes.values import FieldType
from schemaless_core.store import CellStore
from tripstore.backends.postgres.layout.layout import Layout

#: In bodies they are what they are in queries.
_PLAIN = (FieldType.STRING, FieldType.INT)


class TakenValues:
    """Of one layout and its indexes."""

    def __init__(self, layout: Layout, indexes: Iterable[IndexDefinition]) -> None:
        self._column_name = layout.parent.name
        #: Names of indexes by field.
        self._indexes = {
            definition.shard_field.name: definition.name
            for definition in indexes
            if definition.columns[0].name == self._column_name and definition.shard_field.kind in _PLAIN
        }

    def find(self, store: CellStore, cell: Cell, unique: Mapping[str, str]) -> tuple[str, str] | None:
        """The field and the constraint of a value that another row has; `unique`: constraints by field."""
        if cell.column_name != self._column_name or not isinstance(cell.body, dict):
            return None
        for field, constraint in unique.items():
            value = cell.body.get(field)
            if field in self._indexes and type(value) in (str, int) and self._is_taken(store, cell, field, value):
                return field, constraint
        return None

    def _is_taken(self, store: CellStore, cell: Cell, field: str, value: object) -> bool:
        assert isinstance(value, str | int)
        try:
            page = store.query_index(self._indexes[field], value, limit=2, consistency="verified")
        except SchemalessError:  # no put waits for an index: Postgres decides
            return False
        return any(entry.row_key != cell.row_key for entry in page.entries)
