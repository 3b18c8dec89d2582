"""`StoredLatest`: the latest cells of children, of Postgres and of Schemaless: many in one call."""

from __future__ import annotations

from collections.abc import Sequence

from schemaless_core.cell.cell import Cell
from schemaless_core.cell.children import ChildKey, Children
from schemaless_core.datastore import Datastore
from schemaless_core.store import CellStore
from tripstore.backends.postgres.backend import PostgresBackend


class StoredLatest:
    """The `Latest` of both."""

    def __init__(self, children: Children) -> None:
        self._children = children

    def of(self, store: CellStore, keys: Sequence[ChildKey]) -> Sequence[Cell | None]:
        if isinstance(store, PostgresBackend):
            return store.get_children_latest(keys)
        assert isinstance(store, Datastore)
        return store.get_children_latest(keys, self._children)
