"""`Staged`: what the facade has to say of cells that functions of transactional triggers put.

They are committed in Schemaless with an offset, past the facade: what the layout refuses is refused as they are staged,
and rows that were written are remembered, as with any put.
"""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from schemaless_core.cell.cell import Cell
from schemaless_core.errors import InvalidRequest
from schemaless_core.store import CellStore
from tripstore.facade.known import Known
from tripstore.facade.lag import Lag
from tripstore.facade.layout_rules import LayoutRules


class Staged:
    """Of one process, with a legacy store."""

    def __init__(self, rules: LayoutRules, lag: Lag, known: Known) -> None:
        self._rules = rules
        self._lag = lag
        self._known = known

    def check(self, store: CellStore, cell: Cell) -> None:
        self._rules.check(store, cell)
        if self._rules.takes_children(cell):  # which of them there are would have to be true at the commit
            raise InvalidRequest(
                f"A tombstone of {cell.column_name} takes rows of other columns, and cannot join the offset's commit.",
                hint="Put it in a function that is not transactional.",
            )

    def next_ref_key(self, column_name: str, latest: Cell | None) -> int:
        return self._rules.keys.after(column_name, latest)

    def wrote(self, row_keys: Collection[UUID]) -> None:
        self._lag.wrote(row_keys)

    def authority_epoch(self) -> int | None:
        """A process learns only those of its own layout. To stage a cell is to read, so one is known by then."""
        sight = self._known.sight
        return None if sight is None else sight.authority.epoch
