"""`Holes`: puts cells that a mirror lacks behind the heads. Each closes a hole of its log, if there is one.

A log is looked through once, when the first cell of its shard is missing. Holes come only by damage.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from schemaless_core.cell.encoded import EncodedCell, decode_cell
from schemaless_core.cell.put_errors import BatchFailed
from schemaless_core.cell.sharding import shard_of_bytes
from schemaless_core.datastore import Datastore
from schemaless_core.errors import SchemalessError
from schemaless_core.mends import Mends


class Holes:
    """What one process knows of the logs' holes."""

    def __init__(self) -> None:
        #: By shard, ascending.
        self._of: dict[int, dict[int, None]] = {}

    def put(self, mends: Mends, store: Datastore, cells: Sequence[EncodedCell]) -> list[SchemalessError | None]:
        """Of each cell why it is not there, if it is not."""
        outcomes: list[SchemalessError | None] = [None] * len(cells)
        plain = self._put_beside(mends, store, cells)
        for number, outcome in zip(plain, put_cells(mends, store, [cells[number] for number in plain]), strict=True):
            outcomes[number] = outcome
        return outcomes

    def _put_beside(self, mends: Mends, store: Datastore, cells: Sequence[EncodedCell]) -> list[int]:
        """Put each while a hole is closed that still is one; those for which there was none."""
        plain, waiting = list[int](), list(range(len(cells)))
        while waiting:
            paired = self._paired(mends, store, cells, waiting)
            plain += [number for number in waiting if number not in paired]
            waiting = []
            filled = mends.put_encoded_beside([(cells[number], hole) for number, (_shard, hole) in paired.items()])
            for (number, (shard, hole)), each in zip(paired.items(), filled, strict=True):
                if each is not None and not each.is_created:
                    plain.append(number)  # it is there: a plain put says whether it is equal
                    continue
                self._of[shard].pop(hole)
                if each is None:
                    waiting.append(number)
        return plain

    def _paired(
        self, mends: Mends, store: Datastore, cells: Sequence[EncodedCell], numbers: Sequence[int]
    ) -> dict[int, tuple[int, int]]:
        """Shard and hole of each as far as there are holes, every one once, the lowest first."""
        left: dict[int, Iterator[int]] = {}
        paired: dict[int, tuple[int, int]] = {}
        keys = set[tuple[bytes, bytes, int]]()
        for number in numbers:
            shard, key = shard_of_bytes(cells[number].row_key, store.config.shards), cells[number][:3]
            if shard not in self._of:
                self._of[shard] = dict.fromkeys(mends.holes(shard))
            hole = None if key in keys else next(left.setdefault(shard, iter(self._of[shard])), None)
            if hole is not None:
                keys.add(key)
                paired[number] = shard, hole
        return paired


def put_cells(mends: Mends, store: Datastore, cells: Sequence[EncodedCell]) -> list[SchemalessError | None]:
    """Put cells behind the heads; of each why it is not there, if it is not.

    Those of a column with an index have their entries made right after; without one they are not even decoded.
    """
    if mends.indexed_columns & {cell.column_name.decode() for cell in cells}:
        return _put_decoded(store, cells)
    outcomes: list[SchemalessError | None] = [None] * len(cells)
    for position, error in store.put_encoded(cells).problems:
        outcomes[position] = error
    return outcomes


def _put_decoded(store: Datastore, cells: Sequence[EncodedCell]) -> list[SchemalessError | None]:
    try:
        store.put_cells([decode_cell(cell) for cell in cells])
    except BatchFailed as failed:
        return [outcome if isinstance(outcome, SchemalessError) else None for outcome in failed.results]
    return [None] * len(cells)
