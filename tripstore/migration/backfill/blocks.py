"""`BlockPortion`: a part that is a range of blocks of one table; and the parts of a walk through all of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, cast
from uuid import UUID

from schemaless_core.cell.canonical import Json
from schemaless_core.cell.cell import CellKey
from tripstore.backends.postgres.walk.leaves import LeafFile
from tripstore.handover.ports import Blocks, Chunk, Past, Selection
from tripstore.migration.backfill.portions import CountedRows, NextPortion, Question

BLOCKS = "blocks"
#: Of a table that was never analysed.
ROWS_PER_BLOCK = 40.0
#: Where most rows are gone a block has hardly any, and statistics are old: fewer are not reckoned with, and so many
#: blocks at most (16 MB) are read by one statement.
ROWS_PER_BLOCK_LEAST, BLOCKS_MAX = 1.0, 2_048


class BlockPortion(NamedTuple):
    """What is left of a range: from the block on that is the next."""

    blocks: Blocks
    rows_per_block: float
    questions: Mapping[UUID, Sequence[Question]] = {}

    @classmethod
    def of(cls, bounds: Mapping[str, Json], checkpoint: Json) -> BlockPortion:
        """What is left of a part."""
        table, leaf, oid, filenode, first, upto, density = cast(
            "tuple[str, str, int, int, int, int, float]", bounds[BLOCKS]
        )
        saved = checkpoint if isinstance(checkpoint, dict) else {}
        begun = cast(int, saved.get("block", first))
        return cls(Blocks(table, leaf, oid, filenode, begun, upto), density)

    @property
    def may_repeat(self) -> bool:
        return False

    def chunk(self, rows: int, selection: Selection) -> Chunk:
        first, upto = self.blocks.first, self.blocks.upto
        some = min(max(1, int(rows / max(self.rows_per_block, ROWS_PER_BLOCK_LEAST))), BLOCKS_MAX)
        return Chunk(rows=rows, selection=selection, blocks=self.blocks._replace(upto=min(upto, first + some)))

    def next(self, chunk: Chunk, past: Past) -> NextPortion:
        """A table that was written anew is left to the end of the walk, which knows it too."""
        block = self.blocks.upto if past.is_rewritten or past.next_block is None else past.next_block
        return NextPortion({"block": block}, block >= self.blocks.upto)

    def counted(self, past: Past) -> CountedRows:
        return CountedRows(past.rows, past.looked_at)

    def solved(self, chunk: Chunk, past: Past, told: Collection[CellKey]) -> tuple[int, ...]:
        return ()


def block_parts(leaves: Sequence[LeafFile], parts: int) -> list[Json]:
    """Ranges of blocks, about so many of one size. Tables take turns, so that a trip and its children go together."""
    per_part = max(1, -(-sum(leaf.blocks for leaf in leaves) // max(parts, 1)))
    found: list[tuple[float, Json]] = []
    for leaf in leaves:
        for first in range(0, leaf.blocks, per_part):
            upto = min(first + per_part, leaf.blocks)
            density = leaf.rows_per_block or ROWS_PER_BLOCK
            place = [leaf.table.sql, leaf.name.sql, leaf.oid, leaf.filenode, first, upto, round(density, 2)]
            found.append((first / leaf.blocks, {BLOCKS: cast("list[Json]", place)}))
    return [bounds for _, bounds in sorted(found, key=lambda each: each[0])]
