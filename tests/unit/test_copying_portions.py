"""Bounds and checkpoints of a backfill: everything is in exactly one part, and each goes on where it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from uuid import UUID, uuid4

import pytest

from schemaless_core import CellKey, Json
from schemaless_core.errors import InvalidRequest
from tripstore.backends.postgres.capture.timeline import ServerIdentity
from tripstore.backends.postgres.layout.layout import TableName
from tripstore.backends.postgres.walk.leaves import LeafFile
from tripstore.handover.ports import EVERYTHING, Chunk, Past, WalkedLeaf
from tripstore.migration.backfill import portions
from tripstore.migration.backfill.blocks import BLOCKS_MAX, BlockPortion, block_parts
from tripstore.migration.backfill.portions import KEYS_PER_PART, PartPortion, Question, lists, ranges
from tripstore.migration.backfill.walk_end import EndPortion, EndStage, end_parts

CUTS = [UUID(int=n << 120) for n in (30, 80, 200)]
KEYS = [UUID(int=n) for n in range(1, 8)]


def chunk(bounds: Json, checkpoint: Json = None, rows: int = 3) -> Chunk:
    return PartPortion.of(bounds, checkpoint).chunk(rows, EVERYTHING)


def test_ranges_leave_out_nothing_and_share_nothing() -> None:
    chunks = [chunk(bounds) for bounds in ranges([CUTS[2], CUTS[0], CUTS[1], CUTS[1]])]

    assert [(each.after, each.upto) for each in chunks] == [
        (None, CUTS[0]),
        (CUTS[0], CUTS[1]),
        (CUTS[1], CUTS[2]),
        (CUTS[2], None),
    ]
    assert [(each.after, each.upto) for each in map(chunk, ranges([]))] == [(None, None)]


def read(after: UUID | None) -> Past:
    """A chunk that was read up to a row key."""
    return Past((), 1, after=after)


def listed(keys: Sequence[UUID]) -> Chunk:
    return Chunk(keys=tuple(keys))


def test_a_range_goes_on_after_the_last_row_key() -> None:
    (bounds, *_), seen = ranges(CUTS), uuid4()
    portion = PartPortion.of(bounds, None)

    assert portion.next(Chunk(), read(seen)) == ({"after": str(seen)}, False)
    assert portion.next(Chunk(), read(None)).is_end
    assert chunk(bounds, {"after": str(seen)}) == Chunk(seen, CUTS[0], 3)


def test_a_list_goes_on_after_the_keys_that_are_through() -> None:
    (bounds,) = lists([*KEYS, KEYS[2]])
    portion = PartPortion.of(bounds, {"passed": 3})
    taken = portion.chunk(3, EVERYTHING)

    assert taken.keys == tuple(KEYS[3:6])
    assert portion.next(taken, read(None)) == ({"passed": 6}, False)
    last = PartPortion.of(bounds, {"passed": 6})
    assert last.next(last.chunk(3, EVERYTHING), read(None)).is_end


def test_a_chunk_of_a_list_that_was_cut_short_is_through_up_to_there() -> None:
    """Bodies that are too large for one chunk: the reader says how far it came."""
    (bounds,) = lists(KEYS)
    portion = PartPortion.of(bounds, None)
    taken = portion.chunk(5, EVERYTHING)

    assert portion.next(taken, read(KEYS[1])) == ({"passed": 2}, False)


def test_findings_are_answered_with_their_rows() -> None:
    (bounds,) = lists(KEYS, {KEYS[0]: [Question(4), Question(5)], KEYS[6]: [Question(9)]})
    portion = PartPortion.of(bounds, None)

    assert portion.solved(listed(KEYS[:3]), read(None), ()) == (4, 5)
    assert portion.solved(listed(KEYS[3:]), read(None), ()) == (9,)
    assert portion.solved(listed(KEYS), read(KEYS[1]), ()) == (4, 5)
    assert PartPortion.of(ranges([])[0], None).solved(Chunk(), read(None), ()) == ()


def test_a_conflict_is_answered_by_its_own_cell_alone() -> None:
    cell = CellKey(KEYS[0], "BASE", 5)
    (bounds,) = lists(KEYS, {KEYS[0]: [Question(4), Question(5, cell)]})
    portion = PartPortion.of(bounds, None)

    assert portion.solved(listed(KEYS), read(None), [cell._replace(ref_key=8)]) == (4,)
    assert portion.solved(listed(KEYS), read(None), [cell]) == (4, 5)


def test_long_lists_are_many_parts() -> None:
    keys = [uuid4() for _ in range(2 * KEYS_PER_PART + 1)]

    parts = [PartPortion.of(bounds, None).keys or () for bounds in lists(keys)]

    assert [len(part) for part in parts] == [KEYS_PER_PART, KEYS_PER_PART, 1]
    assert [key for part in parts for key in part] == sorted(keys)


def test_a_list_that_is_too_long_for_one_job_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its parts are made in one transaction."""
    monkeypatch.setattr(portions, "KEYS_MAX", len(KEYS))
    assert lists([*KEYS, KEYS[0]])

    with pytest.raises(InvalidRequest, match="no more than 7") as raised:
        lists([*KEYS, uuid4()])
    assert raised.value.hint


LEAF = LeafFile(TableName("public", "trips"), TableName("public", "trips"), 7, 8, [9, 1], 100, 20.0)
CHILD = LEAF._replace(table=TableName("public", "notes"), name=TableName("public", "notes_0"), oid=17, blocks=50)


def test_blocks_are_cut_into_ranges_that_are_all_of_them_and_tables_take_turns() -> None:
    parts = [BlockPortion.of(bounds, None).blocks for bounds in map(as_mapping, block_parts([CHILD, LEAF], 6))]

    for leaf in (LEAF, CHILD):
        mine = [blocks for blocks in parts if blocks.oid == leaf.oid]
        assert mine[0].first == 0
        assert mine[-1].upto == leaf.blocks
        assert all(one.upto == other.first for one, other in pairwise(mine))
    assert [blocks.oid for blocks in parts] == [17, 7, 7, 17, 7, 7]
    assert block_parts([LEAF._replace(blocks=0)], 6) == []


def test_a_range_of_blocks_goes_on_at_the_block_that_was_not_read() -> None:
    bounds = as_mapping(block_parts([LEAF], 1)[0])
    chunk = BlockPortion.of(bounds, None).chunk(200, EVERYTHING)
    assert chunk.blocks is not None
    assert (chunk.blocks.first, chunk.blocks.upto) == (0, 10)
    portion = BlockPortion.of(bounds, {"block": 96})

    following = portion.chunk(200, EVERYTHING).blocks

    assert following is not None
    assert (following.first, following.upto) == (96, 100)
    assert portion.next(chunk, read(None)._replace(next_block=98)) == ({"block": 98}, False)
    assert portion.next(chunk, read(None)._replace(next_block=100)).is_end
    assert portion.next(chunk, read(None)._replace(is_rewritten=True)).is_end
    assert BlockPortion.of(bounds, None).chunk(1, EVERYTHING).blocks == following._replace(first=0, upto=1)


@pytest.mark.parametrize("density", [0.004, 0.01, 0.3, 1.0])
def test_where_most_rows_are_gone_a_chunk_has_so_many_blocks_at_most(density: float) -> None:
    """Also where statistics say that a block has none: 120 rows in 30,000 blocks, after a DELETE and a VACUUM."""
    bounds = as_mapping(block_parts([LEAF._replace(blocks=30_000, rows_per_block=density)], 1)[0])

    chunk = BlockPortion.of(bounds, None).chunk(20_000, EVERYTHING)

    assert chunk.blocks is not None
    assert chunk.blocks.upto == BLOCKS_MAX
    few = BlockPortion.of(bounds, None).chunk(200, EVERYTHING).blocks
    assert few is not None
    assert few.upto <= 200


def as_mapping(bounds: Json) -> Mapping[str, Json]:
    assert isinstance(bounds, dict)
    return bounds


LOOKING, OF_SOME, LAST_PART = map(as_mapping, end_parts(ranges([KEYS[3]])[:1]))
LEAVES = (
    WalkedLeaf('"public"."trips"', '"public"."trips"', 7),
    WalkedLeaf('"public"."notes"', '"public"."notes_0"', 17),
)
OTHER = ServerIdentity("4711", 2)


def test_the_end_of_a_walk_goes_on_within_the_rows_that_moved() -> None:
    """A chunk of them may be cut short: the rest is of the same notes, and not of later ones."""
    taken = EndPortion(EndStage.MOVED, note=5, upto_note=9, keys=tuple(KEYS))
    cut = taken.next(taken.chunk(9, EVERYTHING), read(KEYS[1]))

    following = EndPortion.of(LOOKING, cut.checkpoint)

    assert (following.note, following.upto_note, following.after) == (5, 9, KEYS[1])
    through = EndPortion.of(LOOKING, following.next(Chunk(), read(None)).checkpoint)
    assert (through.stage, through.note, through.upto_note, through.after) == (EndStage.MOVED, 9, 0, None)


def test_leaves_that_are_read_again_are_read_one_after_the_other_by_each_part() -> None:
    looked = EndPortion.of(LOOKING, None).unwalked(LEAVES).at(EndStage.AGAIN)
    assert looked.is_through
    first = EndPortion.of(OF_SOME, None, looked.document)

    chunk = first.chunk(9, EVERYTHING)
    assert (chunk.leaf, chunk.after, chunk.upto) == (LEAVES[0], None, KEYS[3])
    cut = EndPortion.of(OF_SOME, first.next(chunk, read(KEYS[1])).checkpoint, looked.document)
    assert (cut.chunk(9, EVERYTHING).leaf, cut.chunk(9, EVERYTHING).after) == (LEAVES[0], KEYS[1])
    second = EndPortion.of(OF_SOME, cut.next(chunk, read(None)).checkpoint, looked.document)
    assert (second.chunk(9, EVERYTHING).leaf, second.chunk(9, EVERYTHING).after) == (LEAVES[1], None)


def test_i11_rows_without_a_row_key_are_told_of_once_whatever_is_read_again() -> None:
    looking = EndPortion.of(LOOKING, None).at(EndStage.OURS)
    assert looking.chunk(9, EVERYTHING).tells_keyless
    before = looking.anew(OTHER, LEAVES)
    assert before.chunk(9, EVERYTHING).tells_keyless, "none were told of yet"

    told = EndPortion.of(LOOKING, looking.next(Chunk(), read(KEYS[1])).checkpoint)

    assert not told.anew(OTHER, LEAVES).chunk(9, EVERYTHING).tells_keyless
    last = EndPortion.of(LAST_PART, None, told.at(EndStage.AGAIN).document)
    assert not last.anew(OTHER, LEAVES).chunk(9, EVERYTHING).tells_keyless


def test_on_another_postgres_the_last_part_reads_all_leaves_and_looks_again() -> None:
    looked = EndPortion.of(LOOKING, None).at(EndStage.AGAIN)
    last = EndPortion.of(LAST_PART, None, looked.document)
    assert (last.stage, last.server) == (EndStage.LAST, None)

    again = EndPortion.of(LAST_PART, last.anew(OTHER, LEAVES).document, looked.document)

    assert (again.stage, again.server, again.again) == (EndStage.OURS, OTHER, LEAVES)
    ours = EndPortion.of(LAST_PART, again.next(Chunk(), read(None)).checkpoint, looked.document)
    assert ours.stage is EndStage.AGAIN, "what moved is among the rows of all leaves"
    assert ours.chunk(9, EVERYTHING) == Chunk(None, None, 9, leaf=LEAVES[0])


def test_a_row_counts_wherever_it_is_read() -> None:
    """I11: what the end of a walk reads once more has been counted where it stood, or nowhere."""
    assert EndPortion(EndStage.MOVED).counted(Past((), 1, 3)) == (3, 3)
    assert EndPortion(EndStage.OURS).counted(Past((), 1, 3, looked_at=9)) == (3, 9)
