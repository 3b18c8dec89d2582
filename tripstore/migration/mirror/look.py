"""`Look`: what Postgres has under the keys of some cells, in as few statements as it can.

One cell that cannot be read, or that Postgres has forgotten, must not hide the others: then each half is asked again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from schemaless_core.cell.cell import Cell, CellKey
from schemaless_core.errors import SchemalessError, Unavailable
from tripstore.backends.postgres.backend import PostgresBackend
from tripstore.backends.postgres.errors import HistoryTruncated, UnreadableRow
from tripstore.errors import TripstoreError

#: A busy Postgres may take its time for a page: no caller waits for it.
DEADLINE_SECONDS = 10.0

#: Cells of some shards, in the order of their logs.
Runs = Mapping[int, Sequence[Cell]]


class LookFailed(Unavailable, TripstoreError):
    """What has to be known before could not be: says nothing of the cells, and they wait."""


class HeldCell(NamedTuple):
    """What stands under one key."""

    cell: Cell | None
    #: Why that is not known.
    problem: SchemalessError | None = None


class Look:
    """Looks cells up at the legacy store."""

    def __init__(self, legacy: PostgresBackend) -> None:
        self._legacy = legacy.using(deadline=DEADLINE_SECONDS)

    def of(self, runs: Runs, *, is_past_told: bool) -> dict[int, list[HeldCell]]:
        """What Postgres has of each shard's cells: one look for all of them."""
        found = iter(self.at([cell for cells in runs.values() for cell in cells], is_past_told=is_past_told))
        return {shard: [next(found) for _cell in cells] for shard, cells in runs.items()}

    def at(self, cells: Sequence[Cell], *, is_past_told: bool) -> list[HeldCell]:
        """What Postgres has under the key of each; `is_past_told`: nothing is what was never there, or a problem."""
        keys = [CellKey(*cell.key) for cell in cells]
        look = self._legacy.get_cells if is_past_told else self._legacy.get_cells_there
        try:
            return [HeldCell(found) for found in look(keys)]
        except (HistoryTruncated, UnreadableRow) as problem:
            if len(cells) == 1:
                return [HeldCell(None, problem)]
        middle = len(cells) // 2
        halves = cells[:middle], cells[middle:]
        return [held for half in halves for held in self.at(half, is_past_told=is_past_told)]
