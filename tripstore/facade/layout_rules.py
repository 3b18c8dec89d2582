"""`LayoutRules`: what the layout says of cells, kept by the facade while Schemaless is the authority.

What the layout can see that Postgres cannot hold is refused at once. It would be parked by the reverse mirror
otherwise, and close the way back. What only Postgres knows, lengths, labels and rows that are pointed to, is still
parked there.

Tombstones of rows with children mean the same as at the legacy store: refused, or, where the layout says so, the
children go with the parent. These are cells of their own here, put after the parent's. What is appended to child rows
that change is a new row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any
from uuid import UUID

from schemaless_core.answers import ANY, PutResult
from schemaless_core.cell import REF_KEY_MAX, Cell, no_free_ref_key
from schemaless_core.errors import CellConflict
from schemaless_core.store import CellStore
from tripstore.backends.postgres.codec.codec import ColumnCodec
from tripstore.backends.postgres.codec.lookups import LookupCache
from tripstore.backends.postgres.errors import LegacyRefused, Unrepresentable
from tripstore.backends.postgres.layout.layout import (
    LEGACY_ID,
    Layout,
    MappedColumn,
    RefKeyKind,
    TombstonePolicy,
)

HISTORY_PAGE = 1000
_ONLY_WITH_PARENT = "facts are deleted with their parent only"


class LayoutRules:
    """Of one layout. `is_promised`: whether there is to be a way back."""

    def __init__(self, layout: Layout, is_promised: Callable[[], bool] = lambda: True) -> None:
        self._layout = layout
        self._is_promised = is_promised
        # Which rows there are, only Postgres knows: a UUID that points to one is a UUID like any other here.
        columns = {
            name: replace(column, fields=tuple(replace(field, lookup=None) for field in column.fields))
            for name, column in layout.columns.items()
        }
        lookups = LookupCache(Layout(layout.datastore, layout.row_key, columns))
        self._codecs = {name: ColumnCodec(column, lookups) for name, column in columns.items()}

    def check(self, store: CellStore, cell: Cell) -> None:
        """Raise what Postgres would, before anything is written. `store` is Schemaless."""
        if not self._is_promised():
            return
        column = self._layout.columns.get(cell.column_name)
        if column is None:
            if cell.column_name == LEGACY_ID and store.get_cell(*cell.key) != cell:
                hint = "Put the row; its legacy id comes with it."
                raise Unrepresentable("", f"{LEGACY_ID} says what Postgres gave a row", hint=hint)
            return
        if column.ref_key.kind is RefKeyKind.CHILD:
            column.compose(*column.split(cell.ref_key))  # refuses what no row can be
        if cell.body is not None:
            self._check_body(store, cell)
        elif column.ref_key.kind is RefKeyKind.FACT:
            self._check_fact(store, cell)
        elif not column.is_child and self._layout.parent.on_tombstone is not TombstonePolicy.DELETE:
            self._check_children(store, cell)

    def next_ref_key(self, column_name: str, latest: Cell | None) -> int:
        """The ref key after the latest: of child rows that change, the first version of the next row."""
        column = self._layout.columns.get(column_name)
        if column is not None and column.ref_key.kind is RefKeyKind.CHILD:
            number = 1 if latest is None else column.split(latest.ref_key)[0] + 1
            return column.compose(number, 0)
        if latest is not None and latest.ref_key == REF_KEY_MAX:
            raise no_free_ref_key(column_name)
        return 1 if latest is None else latest.ref_key + 1

    def looks_around(self, cell: Cell) -> bool:
        """Whether what may become of it depends on other cells: on those of the same batch, too."""
        return cell.body is None and cell.column_name in self._layout.columns

    def takes_children(self, cell: Cell) -> bool:
        """Whether this is a tombstone with which, by the layout, the children go."""
        parent = self._layout.parent
        is_deletion = cell.column_name == parent.name and cell.body is None
        return is_deletion and parent.on_tombstone is TombstonePolicy.DELETE

    def put_deletion(self, store: CellStore, cell: Cell, expect_latest: Any) -> PutResult:
        """Put such a tombstone, and after it those of the children that were there before it.

        Nothing is taken for a tombstone that is refused or that becomes history. Whoever dies in between puts it again.
        """
        while True:
            latest = store.get_cell_latest(cell.row_key, cell.column_name)
            is_alive = latest is not None and latest.body is not None and latest.ref_key < cell.ref_key
            expected = latest.ref_key if latest is not None and is_alive and expect_latest is ANY else expect_latest
            try:
                result = store.put_cell(*cell.key, None, expect_latest=expected)
            except CellConflict as lost:
                if expected is expect_latest or (lost.stored is not None and lost.stored.key == cell.key):
                    raise
                continue  # somebody moved the row: what is there is to be looked at again
            if is_alive or latest == cell:
                self._take_children(store, cell.row_key, result.added_id)
            return result

    def _take_children(self, store: CellStore, row_key: UUID, added_id: int | None) -> None:
        """What was put after the tombstone is of the row's next life."""
        assert added_id is not None  # Schemaless gives one
        for child in self._layout.children:
            if child.ref_key.kind is RefKeyKind.CHILD:
                found = list(_live_children(store, row_key, child))
            else:
                found = [fact] if (fact := _live_fact(store, row_key, child)) is not None else []
            for cell in found:
                if cell.added_id is not None and cell.added_id < added_id:
                    with suppress(CellConflict):  # somebody has put there meanwhile
                        store.put_cell(row_key, child.name, cell.ref_key + 1, None)

    def _check_body(self, store: CellStore, cell: Cell) -> None:
        try:
            self._codecs[cell.column_name].row(cell.body)
        except Unrepresentable:
            if store.get_cell(*cell.key) != cell:  # it may have been put when there was no such promise
                raise

    def _check_fact(self, store: CellStore, cell: Cell) -> None:
        latest = store.get_cell_latest(cell.row_key, cell.column_name)
        if latest is None or latest.body is None or cell.ref_key < latest.ref_key:
            return
        hint = "Delete the parent, or map the column with a version."
        raise Unrepresentable("", _ONLY_WITH_PARENT, hint=hint)

    def _check_children(self, store: CellStore, cell: Cell) -> None:
        latest = store.get_cell_latest(cell.row_key, cell.column_name)
        if latest is None or latest.body is None or cell.ref_key <= latest.ref_key:
            return
        for child in self._layout.children:
            if child.ref_key.kind is RefKeyKind.FACT:
                is_live = _live_fact(store, cell.row_key, child) is not None
            else:
                is_live = next(_live_children(store, cell.row_key, child), None) is not None
            if is_live:
                raise LegacyRefused(
                    f"The row has rows of {child.name}, which a tombstone of {cell.column_name} would take with it.",
                    hint="Put tombstones on them first, or write on_tombstone: delete into the layout.",
                )


def _live_fact(store: CellStore, row_key: UUID, column: MappedColumn) -> Cell | None:
    """The highest fact that is not deleted."""
    latest = store.get_cell_latest(row_key, column.name)
    return None if latest is None or latest.body is None else latest


def _live_children(store: CellStore, row_key: UUID, column: MappedColumn) -> Iterator[Cell]:
    """The latest version of each child row that is not deleted."""
    before: int | None = None
    last_number: int | None = None
    while page := store.get_history(row_key, column.name, before=before, limit=HISTORY_PAGE):
        for cell in page:
            number, _version = column.split(cell.ref_key)
            if number != last_number and cell.body is not None:
                yield cell
            last_number = number
        before = page[-1].ref_key
