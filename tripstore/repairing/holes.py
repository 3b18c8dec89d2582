"""`Holes`: puts cells that a mirror lacks behind the heads. Each closes a hole of its log, if there is one.

A log is looked through once, when the first cell of its shard is missing. Holes come only by damage.
"""

from __future__ import annotations

from collections.abc import Sequence

from schemaless_core.cell import Cell
from schemaless_core.datastore import Datastore
from schemaless_core.errors import BatchFailed, SchemalessError
from schemaless_core.mends import Mends


class Holes:
    """What one process knows of the logs' holes."""

    def __init__(self) -> None:
        self._of: dict[int, list[int]] = {}

    def put(self, mends: Mends, store: Datastore, cells: Sequence[Cell]) -> list[SchemalessError | None]:
        """Of each cell why it is not there, if it is not."""
        outcomes: list[SchemalessError | None] = [None] * len(cells)
        plain = []
        for number, cell in enumerate(cells):
            try:
                if not self._is_put_beside(mends, store.shard_of(cell.row_key), cell):
                    plain.append(number)
            except SchemalessError as error:
                outcomes[number] = error
        for number, outcome in zip(plain, put_cells(store, [cells[number] for number in plain]), strict=True):
            outcomes[number] = outcome
        return outcomes

    def _is_put_beside(self, mends: Mends, shard: int, cell: Cell) -> bool:
        """Put it while the lowest hole is closed that still is one."""
        if shard not in self._of:
            self._of[shard] = mends.holes(shard)
        holes = self._of[shard]
        while holes:
            filled = mends.put_beside(cell, holes[0])
            if filled is not None and not filled.is_created:
                return False  # it is there: a plain put says whether it is equal
            holes.pop(0)
            if filled is not None:
                return True
        return False


def put_cells(store: Datastore, cells: Sequence[Cell]) -> list[SchemalessError | None]:
    """Put cells behind the heads; of each why it is not there, if it is not."""
    try:
        store.put_cells(cells)
    except BatchFailed as failed:
        return [outcome if isinstance(outcome, SchemalessError) else None for outcome in failed.results]
    return [None] * len(cells)
