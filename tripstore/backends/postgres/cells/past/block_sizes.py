"""`BlockSizes`: how many bytes COPY sends of a block of each leaf. A chunk without room is cut before it is read.

Otherwise it would be read in vain up to where there is no more room, and that for each chunk: how many rows a chunk has
is learned from the time that it takes, not from its bytes.
"""

from __future__ import annotations

from tripstore.handover.ports import Blocks

#: Blocks differ: so much of the room is planned for.
ROOM = 0.75


class BlockSizes:
    """As of the last chunk of each leaf. Of one reader."""

    def __init__(self) -> None:
        self._bytes_per_block: dict[str, float] = {}

    def saw(self, blocks: Blocks, size: int) -> None:
        """So many bytes were sent of these blocks, or of the first of them."""
        self._bytes_per_block[blocks.leaf] = size / (blocks.upto - blocks.first)

    def fitting(self, blocks: Blocks, bytes_max: int) -> Blocks:
        """As many of these, from the first on, as there is room for; of an unknown leaf all."""
        size = self._bytes_per_block.get(blocks.leaf, 0.0)
        if size * (blocks.upto - blocks.first) <= bytes_max:
            return blocks
        return blocks._replace(upto=blocks.first + max(1, int(ROOM * bytes_max / size)))
