"""What a new layout changes of the meaning of cells that there are. Pure: compares two layouts.

A cell says neither by which layout it was written nor what its ref key is made of. So all that row keys and ref keys of
a column come from stays the same for as long as it has cells. Bodies say themselves which fields they have: fields may
come, go, and change their physical column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tripstore.backends.postgres.layout.layout import Layout, MappedColumn


class MeaningChange(NamedTuple):
    """A part of a column's mapping that cells rest on."""

    column: str
    #: Below `columns.<name>` in the layout, or `row_key`.
    key: str
    was: str
    is_now: str

    def __str__(self) -> str:
        return f"was {self.was} and is {self.is_now}"


def changed_meaning(layout: Layout, before: Sequence[Layout]) -> list[MeaningChange]:
    """How columns are read in another way than their cells were written.

    `before`: the layouts that were in force, the latest first. A column is held against the latest that had it: it may
    have been left out for a while.
    """
    found = list[MeaningChange]()
    for name, column in layout.columns.items():
        known = next((each for each in before if name in each.columns), None)
        if known is not None:
            found += _of_column(layout, column, known, known.columns[name])
    return found


def _of_column(layout: Layout, column: MappedColumn, known: Layout, was: MappedColumn) -> Iterator[MeaningChange]:
    parts = {
        "row_key": (_row_key(known), _row_key(layout)),
        "table": (str(was.table), str(column.table)),
        "parent": (_parent(was), _parent(column)),
        "ref_key": (_ref_key(was), _ref_key(column)),
    }
    return (MeaningChange(column.name, key, old, new) for key, (old, new) in parts.items() if old != new)


def _row_key(layout: Layout) -> str:
    return f"{{table: {layout.row_key.table}, id: {layout.row_key.id}, uuid: {layout.row_key.uuid}}}"


def _parent(column: MappedColumn) -> str:
    return "none" if column.parent is None else f"{{column: {column.parent}, uuid: {column.uuid}}}"


def _ref_key(column: MappedColumn) -> str:
    source = column.ref_key
    pairs = {"column": source.column, "version": source.version}
    return "{" + ", ".join(f"{key}: {name}" for key, name in pairs.items() if name is not None) + "}"
