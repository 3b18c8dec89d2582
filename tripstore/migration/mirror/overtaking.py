"""`Overtaking`: which cells of a row the reverse mirror may carry before one of it that Postgres refuses.

A cell that is parked holds up its row: deletions, facts and children must come in order. But what a person does about
it is the next version, or tombstones on the children that are in a deletion's way, and these stand behind it. Once a
later version is there the one that was refused is history, which Postgres keeps beside its tables, whatever it holds.

What waits is known by its keys; of few it is asked whether they are tombstones.
"""

from __future__ import annotations

from collections.abc import Sequence

from schemaless_core.cell.cell import CellKey
from schemaless_core.triggers.group import Tombstones
from tripstore.backends.postgres.layout.layout import Layout, MappedColumn, RefKeyKind


class Overtaking:
    """Of one layout."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def of(self, failed: CellKey, behind: Sequence[CellKey], tombstones: Tombstones) -> Sequence[CellKey]:
        """Of the cells behind a refused one, in the order of the log, those that may go before it."""
        column = self._layout.columns.get(failed.column_name)
        if column is None or column.ref_key.kind is RefKeyKind.FACT:
            return ()  # another fact says nothing of this one
        if not column.is_child and tombstones([failed]):
            of_children = [key for key in behind if self._is_of_child(key)]
            deleted = tombstones(of_children)
            return [key for key in of_children if key in deleted]
        later = next((n for n, key in enumerate(behind) if _replaces(column, key, failed)), None)
        if later is None:
            return ()
        found, between = behind[later], behind[:later]
        is_deletion = bool(tombstones([found]))
        if is_deletion and not column.is_child:
            return [*between, found]  # the parent's deletion comes after what it deletes
        if not is_deletion and tombstones([key for key in between if key.column_name == self._layout.parent.name]):
            return ()  # of the row's next life
        return [found]

    def _is_of_child(self, key: CellKey) -> bool:
        column = self._layout.columns.get(key.column_name)
        return column is not None and column.ref_key.kind is RefKeyKind.CHILD


def _replaces(column: MappedColumn, key: CellKey, failed: CellKey) -> bool:
    """Whether a cell is a later version of the very row."""
    if key.column_name != failed.column_name or key.ref_key <= failed.ref_key:
        return False
    return column.split(key.ref_key)[0] == column.split(failed.ref_key)[0]
