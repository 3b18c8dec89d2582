"""Whether what was written can be read, and is what was meant: a share of the rows is read once more and compared.

All rows of a chunk that lie in a few of its shards, other ones each time: a question to each shard costs more than
rows do.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from schemaless_core.cell.encoded import EncodedCell
from schemaless_core.cell.sharding import shard_of_bytes
from schemaless_core.control.jobs.records import Finding

#: On average: with fewer of a chunk rows are chosen one by one, or most chunks would not be looked at.
SHARDS_LEAST = 3
REASON = "what is read is not what was written"


class Readable(Protocol):
    """Where the cells are."""

    def find_unequal(self, cells: Sequence[EncodedCell]) -> list[int]:
        """The positions of those that are not there byte for byte."""
        ...


class VerifiedCells(NamedTuple):
    """How many cells were read again, and which of them were not there as they had been written."""

    cells: int
    findings: tuple[Finding, ...]


def verify(
    store: Readable, shards: int, cells: Sequence[EncodedCell], passed: Collection[int], share: float
) -> VerifiedCells:
    """Compare the cells of a share of the rows; those at `passed` are known to be something else, and are left out.

    `shards`: how many the store has.
    """
    if share <= 0:
        return VerifiedCells(0, ())
    chosen = {cell.row_key for cell in cells}
    if share < 1:
        chosen = _of_some_shards(shards, chosen, share)
    wanted = [cell for n, cell in enumerate(cells) if cell.row_key in chosen and n not in passed]
    unequal = store.find_unequal(wanted) if wanted else []
    return VerifiedCells(len(wanted), tuple(_finding(wanted[n]) for n in unequal))


def _of_some_shards(shards: int, row_keys: Collection[bytes], share: float) -> set[bytes]:
    if min(shards, len(row_keys)) * share < SHARDS_LEAST:
        return {key for key in row_keys if random.random() < share}
    some = {shard for shard in range(shards) if random.random() < share}
    return {key for key in row_keys if shard_of_bytes(key, shards) in some}


def _finding(cell: EncodedCell) -> Finding:
    row_key, name = UUID(bytes=cell.row_key), cell.column_name.decode()
    return Finding("conflict", row_key, name, cell.ref_key, {"reason": REASON})
