"""`TakenValues`: whether another row holds what a unique constraint allows once, where an index of ours tells.

Of the parent's rows, by an index whose shard field is the constraint's only column. The cells are asked, not the
entries alone: a row that has the value by its latest cell is proof, however far behind the index is. That none was
found is no proof, and refuses nothing. Two puts at the same time both find nothing: the later one is parked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from schemaless_core.cell.cell import Cell, ColumnKey
from schemaless_core.definitions.index import IndexDefinition
from schemaless_core.definitions.values import IndexFieldType
from schemaless_core.errors import SchemalessError
from schemaless_core.store import CellStore
from tripstore.backends.postgres.layout.layout import Layout

#: In bodies they are what they are in queries.
_PLAIN = (IndexFieldType.STRING, IndexFieldType.INT)
#: Of one value, that are looked at when the index is behind: more than one is left from the past.
ENTRIES_MAX = 10


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
        except SchemalessError:
            return self._is_seen(store, cell, field, value)
        return any(entry.row_key != cell.row_key for entry in page.entries)

    def _is_seen(self, store: CellStore, cell: Cell, field: str, value: str | int) -> bool:
        """The same of an index that is too far behind to answer for its cells: its entries, and the cells of these."""
        try:
            page = store.query_index(self._indexes[field], value, limit=ENTRIES_MAX)
            others = [
                ColumnKey(each.row_key, self._column_name) for each in page.entries if each.row_key != cell.row_key
            ]
            found = store.using(read="primary").get_cells_latest(others) if others else []
        except SchemalessError:  # no put waits for an index: Postgres decides
            return False
        return any(each is not None and _holds(each, field, value) for each in found)


def _holds(cell: Cell, field: str, value: str | int) -> bool:
    found = cell.body.get(field) if isinstance(cell.body, dict) else None
    return type(found) is type(value) and found == value
