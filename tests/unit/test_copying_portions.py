"""Bounds and checkpoints of a backfill: everything is in exactly one part, and each goes on where it was."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from schemaless_core import CellKey, Json
from schemaless_core.errors import InvalidRequest
from tripstore.handover.ports import EVERYTHING, Chunk
from tripstore.migration.backfill import portions
from tripstore.migration.backfill.portions import KEYS_PER_PART, PartPortion, Question, lists, ranges

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


def test_a_range_goes_on_after_the_last_row_key() -> None:
    (bounds, *_), seen = ranges(CUTS), uuid4()
    portion = PartPortion.of(bounds, None)

    assert portion.checkpoint((), seen) == {"after": str(seen)}
    assert not portion.is_last((), seen)
    assert portion.is_last((), None)
    assert chunk(bounds, {"after": str(seen)}) == Chunk(seen, CUTS[0], 3)


def test_a_list_goes_on_after_the_keys_that_are_through() -> None:
    (bounds,) = lists([*KEYS, KEYS[2]])
    portion = PartPortion.of(bounds, {"passed": 3})
    taken = portion.chunk(3, EVERYTHING)

    assert taken.keys == tuple(KEYS[3:6])
    assert portion.checkpoint(portion.through(taken, None), None) == {"passed": 6}
    assert not portion.is_last(portion.through(taken, None), None)
    last = PartPortion.of(bounds, {"passed": 6})
    assert last.is_last(last.through(last.chunk(3, EVERYTHING), None), None)


def test_a_chunk_of_a_list_that_was_cut_short_is_through_up_to_there() -> None:
    """Bodies that are too large for one chunk: the reader says how far it came."""
    (bounds,) = lists(KEYS)
    portion = PartPortion.of(bounds, None)
    taken = portion.chunk(5, EVERYTHING)

    assert portion.through(taken, KEYS[1]) == tuple(KEYS[:2])
    assert portion.checkpoint(portion.through(taken, KEYS[1]), KEYS[1]) == {"passed": 2}
    assert not portion.is_last(portion.through(taken, KEYS[1]), KEYS[1])


def test_findings_are_answered_with_their_rows() -> None:
    (bounds,) = lists(KEYS, {KEYS[0]: [Question(4), Question(5)], KEYS[6]: [Question(9)]})
    portion = PartPortion.of(bounds, None)

    assert portion.solved(tuple(KEYS[:3]), ()) == (4, 5)
    assert portion.solved(tuple(KEYS[3:]), ()) == (9,)
    assert PartPortion.of(ranges([])[0], None).solved((), ()) == ()


def test_a_conflict_is_answered_by_its_own_cell_alone() -> None:
    cell = CellKey(KEYS[0], "BASE", 5)
    (bounds,) = lists(KEYS, {KEYS[0]: [Question(4), Question(5, cell)]})
    portion = PartPortion.of(bounds, None)

    assert portion.solved(tuple(KEYS), [cell._replace(ref_key=8)]) == (4,)
    assert portion.solved(tuple(KEYS), [cell]) == (4, 5)


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
