"""A chunk of blocks has as much as there is room for, as soon as it is known how large a block is."""

from __future__ import annotations

from tripstore.backends.postgres.cells.past.block_sizes import BlockSizes
from tripstore.handover.ports import Blocks

BLOCKS = Blocks("trips", "trips", 7, 8, 100, 200)
NEXT = BLOCKS._replace(first=200, upto=300)


def test_of_a_leaf_that_was_not_read_all_blocks_are_taken() -> None:
    assert BlockSizes().fitting(BLOCKS, 1_000) == BLOCKS


def test_a_chunk_that_has_no_room_is_made_smaller() -> None:
    sizes = BlockSizes()
    sizes.saw(BLOCKS, 100_000)

    assert sizes.fitting(NEXT, 100_000) == NEXT
    assert sizes.fitting(NEXT, 40_000) == NEXT._replace(upto=230)
    assert sizes.fitting(NEXT, 10) == NEXT._replace(upto=201), "a block is the least that is read"
    assert sizes.fitting(NEXT._replace(leaf="notes_0"), 40_000).upto == 300


def test_blocks_without_a_row_leave_room_for_all() -> None:
    sizes = BlockSizes()
    sizes.saw(BLOCKS, 100_000)
    sizes.saw(BLOCKS, 0)

    assert sizes.fitting(NEXT, 10) == NEXT
