"""`Look`: what Postgres has under the keys of some cells, in as few statements as it can.

One cell that cannot be read, or that nobody knows any more, must not hide the others: then each half is asked again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from schemaless_core.cell import Cell, CellKey
from schemaless_core.errors import SchemalessError
from schemaless_core.store import CellStore
from tripstore.backends.postgres.errors import HistoryTruncated, UnreadableRow

#: A busy Postgres may take its time for a page: nobody waits for it.
DEADLINE_SECONDS = 10.0


class Held(NamedTuple):
    """What stands under one key."""

    cell: Cell | None
    #: Why that is not known.
    problem: SchemalessError | None = None


class Look:
    """Looks cells up at the legacy store."""

    def __init__(self, legacy: CellStore) -> None:
        self._legacy = legacy.using(deadline=DEADLINE_SECONDS)

    def at(self, cells: Sequence[Cell]) -> list[Held]:
        """What Postgres has under the key of each."""
        keys = [CellKey(*cell.key) for cell in cells]
        try:
            return [Held(found) for found in self._legacy.get_cells(keys)]
        except (HistoryTruncated, UnreadableRow) as problem:
            if len(cells) == 1:
                return [Held(None, problem)]
        half = len(cells) // 2
        return self.at(cells[:half]) + self.at(cells[half:])
