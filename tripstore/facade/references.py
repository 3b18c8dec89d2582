"""`References`: whether the rows are there that a body points to, asked at the put while Schemaless is the authority.

The body holds their row keys, so no index is asked, which may be behind: the primary of each row is. That there is no
row is true at that moment. What no server answers is left to Postgres, and so is a row that is deleted a moment later.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple
from uuid import UUID

from schemaless_core.cell.cell import Cell, ColumnKey
from schemaless_core.datastore import Datastore
from schemaless_core.errors import SchemalessError
from schemaless_core.store import CellStore
from tripstore.backends.postgres.layout.layout import Layout
from tripstore.backends.postgres.rules.column_rules import Reference

#: No put waits longer for the server of another row.
REFERENCE_SECONDS = 1.0


class Dangling(NamedTuple):
    """A field that points to a row which is not there."""

    reference: Reference
    row_key: UUID
    #: Deleted; else there never was one.
    was_there: bool


class References:
    """Of one layout."""

    def __init__(self, layout: Layout) -> None:
        self._parent = layout.parent.name

    def find_dangling(self, store: CellStore, cell: Cell, references: Sequence[Reference]) -> Dangling | None:
        """One of them; all are asked for at once. `store` is Schemaless, and the answer is of its primaries."""
        pointed = list(_pointed(cell, references))
        if not pointed:
            return None
        columns = [ColumnKey(row_key, self._parent) for _reference, row_key in pointed]
        try:
            at_primaries = _at_primaries(store)
            alone = len(columns) == 1  # which needs no other thread
            found = [at_primaries.get_cell_latest(*columns[0])] if alone else at_primaries.get_cells_latest(columns)
        except SchemalessError:  # no put waits for another row's server
            return None
        for (reference, row_key), latest in zip(pointed, found, strict=True):
            # Of a row that was deleted the pair stays, and Postgres takes its key where no foreign key stands.
            if latest is None or (latest.body is None and reference.constraint is not None):
                return Dangling(reference, row_key, latest is not None)
        return None

    def rows(self, cell: Cell, references: Sequence[Reference]) -> set[UUID]:
        """The row keys of other rows that a cell points to."""
        return {row_key for _reference, row_key in _pointed(cell, references)}


def _pointed(cell: Cell, references: Sequence[Reference]) -> Iterator[tuple[Reference, UUID]]:
    """What has the form of a row key, but for that of the cell's own row: Postgres sees that one as it is written."""
    if not isinstance(cell.body, dict):
        return
    for reference in references:
        value = cell.body.get(reference.field)
        if not isinstance(value, str):
            continue
        try:
            row_key = UUID(value)
        except ValueError:
            continue
        if row_key != cell.row_key:
            yield reference, row_key


def _at_primaries(store: CellStore) -> CellStore:
    """A caller may read from replicas; that a row is not there they cannot tell."""
    own = store.deadline_seconds if isinstance(store, Datastore) else None
    return store.using(read="primary", deadline=REFERENCE_SECONDS if own is None else min(own, REFERENCE_SECONDS))
