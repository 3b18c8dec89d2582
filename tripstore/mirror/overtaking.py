"""`Overtaking`: which cells of a row the reverse mirror may carry before one of it that Postgres refuses.

A cell that is parked holds up its row: deletions, facts and children must come in order. But what a person does about
it is the next version, or tombstones on the children that are in a deletion's way, and these stand behind it. Once a
later version is there the one that was refused is history, which Postgres keeps beside its tables, whatever it holds.
"""

from __future__ import annotations

from collections.abc import Sequence

from schemaless_core.cell import Cell
from tripstore.backends.postgres.layout.layout import Layout, MappedColumn, RefKeyKind


class Overtaking:
    """Of one layout."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def of(self, failed: Cell, behind: Sequence[Cell]) -> Sequence[Cell]:
        """Of the cells behind a refused one, in the order of the log, those that may go before it."""
        column = self._layout.columns.get(failed.column_name)
        if column is None or column.ref_key.kind is RefKeyKind.FACT:
            return ()  # another fact says nothing of this one
        if failed.body is None and not column.is_child:
            return [cell for cell in behind if self._is_deletion_of_child(cell)]
        later = next((n for n, cell in enumerate(behind) if _replaces(column, cell, failed)), None)
        if later is None:
            return ()
        found, between = behind[later], behind[:later]
        if found.body is None and not column.is_child:
            return [*between, found]  # the parent's deletion comes after what it deletes
        if found.body is not None and any(self._is_deletion_of_parent(cell) for cell in between):
            return ()  # of the row's next life
        return [found]

    def _is_deletion_of_child(self, cell: Cell) -> bool:
        column = self._layout.columns.get(cell.column_name)
        return cell.body is None and column is not None and column.ref_key.kind is RefKeyKind.CHILD

    def _is_deletion_of_parent(self, cell: Cell) -> bool:
        return cell.body is None and cell.column_name == self._layout.parent.name


def _replaces(column: MappedColumn, cell: Cell, failed: Cell) -> bool:
    """Whether a cell is a later version of the very row."""
    if cell.column_name != failed.column_name or cell.ref_key <= failed.ref_key:
        return False
    return column.split(cell.ref_key)[0] == column.split(failed.ref_key)[0]
