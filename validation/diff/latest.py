"""`Latest`: asks a store for the latest cells of children, which is the unit that two stores are compared by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol
from uuid import UUID

from schemaless_core.cell.cell import Cell
from schemaless_core.cell.children import FACTS, NO_CHILDREN, ChildKey, Children
from schemaless_core.cell.page_bytes import is_last
from schemaless_core.store import CellStore

VERSIONS_PER_PAGE = 100


class Latest(Protocol):
    """How each store of a comparison is asked."""

    def of(self, store: CellStore, keys: Sequence[ChildKey]) -> Sequence[Cell | None]:
        """The latest cell or None per child, in order; of a fact the tombstone above it, if there is one."""
        ...


class PlainLatest:
    """Of stores that show no more than the cell store's own calls."""

    def __init__(self, children: Children = NO_CHILDREN) -> None:
        self._children = children

    def of(self, store: CellStore, keys: Sequence[ChildKey]) -> Sequence[Cell | None]:
        if all(key.child is None for key in keys):
            return store.get_cells_latest([key.column for key in keys])
        return [self._of(store, key) for key in keys]

    def _of(self, store: CellStore, key: ChildKey) -> Cell | None:
        bits = None if key.child is None else self._children.get(key.column_name)
        if bits is None or key.child is None:
            return store.get_cell_latest(*key.column)
        cells = {cell.ref_key: cell for cell in whole_history(store, *key.column)}
        own = [ref_key for ref_key in cells if ref_key >> bits == key.child]
        if bits == FACTS:
            own += [ref_key for ref_key in cells if ref_key > key.child and cells[ref_key].is_tombstone]
        return cells[max(own)] if own else None


def whole_history(store: CellStore, row_key: UUID, column_name: str) -> Iterator[Cell]:
    """Every cell of a column, newest first."""
    before: int | None = None
    while True:
        page = store.get_history(row_key, column_name, before=before, limit=VERSIONS_PER_PAGE)
        yield from page
        if is_last(page, VERSIONS_PER_PAGE):
            return
        before = page[-1].ref_key
