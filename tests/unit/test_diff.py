"""Two stores held against each other: what is missing, extra or different is found, and nothing else."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from uuid import UUID, uuid4

import pytest

from schemaless_core import Cell, Json, MemoryStore
from schemaless_core.cell.children import ChildKey
from tests.diffs import SHARDS, diff, judge, pair, put, walked
from tests.factories import make_cell
from tripstore.engines.validation.diff.buckets import (
    BucketPlace,
    BucketsLeft,
    CellDigest,
    PlainDigests,
    Sums,
    cut,
    differing,
    left_of,
)
from tripstore.engines.validation.diff.diff import CellDiff
from tripstore.engines.validation.diff.differences import REF_KEY, CellClass, NotCompared, from_document, from_finding
from tripstore.engines.validation.diff.portions import Portion, bounds_of, parts_of
from tripstore.engines.validation.recheck import TRIES


def test_equal_stores_are_equal_after_one_look_at_their_sums() -> None:
    source, target = pair()
    put((make_cell() for _ in range(50)), source, target)

    outcome = diff(source, target)

    assert outcome.found == []
    assert outcome.steps == 1
    assert outcome.counts["rows"] == outcome.counts["equal"] == 50


def test_each_class_is_told_with_its_place() -> None:
    source, target = pair()
    put((make_cell() for _ in range(200)), source, target)
    lacking, more, other, older = make_cell(), make_cell(), uuid4(), uuid4()
    put([lacking], source)
    put([more], target)
    put([Cell(other, "BASE", 1, {"fare": {"cents": 5}, "a": 1})], source)
    put([Cell(other, "BASE", 1, {"fare": {"cents": 6}, "a": 1})], target)
    put([make_cell(older, ref_key=1)], source, target)
    put([make_cell(older, ref_key=2)], source)

    outcome = diff(source, target)

    found = {each.row_key: (each.kind, each.path, each.from_ref_key, each.to_ref_key) for each in outcome.found}
    assert found == {
        lacking.row_key: (CellClass.MISSING, "", 1, None),
        more.row_key: (CellClass.EXTRA, "", None, 1),
        other: (CellClass.DIFFERS, "fare.cents", 1, 1),
        older: (CellClass.DIFFERS, REF_KEY, 2, 1),
    }
    counts = outcome.counts
    assert (counts["missing"], counts["extra"], counts["differs"], counts["open"]) == (1, 1, 2, 4)
    assert (counts["equal"], counts["rows"], counts["not_compared"]) == (200, 204, 0)


@pytest.mark.parametrize("is_from", [True, False])
def test_the_classes_are_the_targets_at_either_authority(is_from: bool) -> None:
    source, target = pair()
    lacking, more = make_cell(), make_cell()
    put([lacking], source)
    put([more], target)

    outcome = diff(source, target, is_from=is_from)

    assert {(each.row_key, each.kind) for each in outcome.found} == {
        (lacking.row_key, CellClass.MISSING),
        (more.row_key, CellClass.EXTRA),
    }


def test_a_tombstone_is_a_cell_like_any_other() -> None:
    source, target = pair()
    row_key = uuid4()
    put([make_cell(row_key, ref_key=1)], source, target)
    put([make_cell(row_key, ref_key=2, body=None)], source)

    (found,) = diff(source, target).found

    assert (found.kind, found.path, found.from_ref_key, found.to_ref_key) == (CellClass.DIFFERS, REF_KEY, 2, 1)


def test_numbers_that_python_calls_equal_differ() -> None:
    source, target = pair()
    row_key = uuid4()
    put([make_cell(row_key, body={"n": 1})], source)
    put([make_cell(row_key, body={"n": 1.0})], target)

    assert diff(source, target).differences == {("differs", "BASE", "n")}


def test_columns_that_were_not_asked_for_are_not_looked_at() -> None:
    source, target = pair()
    put([make_cell(column_name="OTHER")], source)

    assert diff(source, target, columns=["BASE"]).found == []
    assert diff(source, target, columns=["OTHER"]).differences == {("missing", "OTHER", "")}


def test_an_empty_target_lacks_everything_in_steps_of_what_memory_holds() -> None:
    source, target = pair()
    put((make_cell() for _ in range(300)), source)

    outcome = diff(source, target, cells_per_step=100)

    assert outcome.counts["missing"] == 300 == len({each.row_key for each in outcome.found})
    assert outcome.steps > 2


def test_a_bucket_that_holds_everything_is_handed_over_in_portions() -> None:
    """I11: killed between any two of them, the next worker looks again and counts the rest, each cell once."""
    source, target = pair(shards=1)
    put((make_cell() for _ in range(300)), source)
    put((make_cell() for _ in range(100)), source, target)

    def walk() -> CellDiff:
        return CellDiff(PlainDigests(source), PlainDigests(target), judge(source, target), None, 1000, 7)

    class Forgetful:
        """Each step is another worker's."""

        def step(self, bounds: Json, checkpoint: Json) -> Portion:
            return walk().step(bounds, checkpoint)

    for each in (walk(), Forgetful()):
        outcome = walked(each, bounds_of(range(1)))
        assert outcome.portions_max == 7
        assert (outcome.counts["missing"], outcome.counts["equal"]) == (300, 100)
        assert len({found.row_key for found in outcome.found}) == 300
        assert outcome.steps >= 300 // 7


def test_hashes_are_fetched_once_however_many_portions_there_are() -> None:
    source, target = pair(shards=1)
    put((make_cell() for _ in range(100)), source)
    asked = []

    class Counting(PlainDigests):
        def digests(self, places: Collection[BucketPlace], columns: Collection[str] | None) -> Iterator[CellDigest]:
            asked.append(places)
            return super().digests(places, columns)

    assert diff(source, target, ours=Counting(source), shards=1, suspects_per_step=3).counts["missing"] == 100
    assert len(asked) == 1


def test_a_step_that_is_repeated_says_the_same() -> None:
    source, target = pair()
    put((make_cell() for _ in range(40)), source)
    walk = CellDiff(PlainDigests(source), PlainDigests(target), judge(source, target), None, 10)
    first = walk.step(bounds_of(range(SHARDS)), None)

    assert walk.step(bounds_of(range(SHARDS)), first.checkpoint) == walk.step(
        bounds_of(range(SHARDS)), first.checkpoint
    )


def test_what_arrives_between_two_looks_is_no_difference() -> None:
    """I12 the other way round: nothing that was seen only once is a difference."""
    source, target = pair()
    late = make_cell()
    put([late], source)

    class Arriving(PlainDigests):
        def digests(self, places: object, columns: object) -> list[CellDigest]:  # type: ignore[override]  # narrower
            put([late], target)  # the mirror gets it after it was read
            return []

    outcome = diff(source, target, theirs=Arriving(target))

    assert outcome.found == []
    assert (outcome.counts["in_flight"], outcome.counts["equal"]) == (1, 1)


def test_a_row_with_changes_on_their_way_was_not_compared() -> None:
    """I12"""
    source, target = pair()
    moving, still = make_cell(), make_cell()
    put([moving, still], source)
    asked = []

    class Queue:
        def rows(self, row_keys: object) -> list[UUID]:
            asked.append(row_keys)
            return [moving.row_key]

    walk = CellDiff(PlainDigests(source), PlainDigests(target), judge(source, target, Queue()))
    outcome = walked(walk, bounds_of(range(SHARDS)))

    kinds = {each.row_key: each.kind for each in outcome.found}
    assert kinds == {moving.row_key: NotCompared.BUSY, still.row_key: CellClass.MISSING}
    assert (outcome.counts["not_compared"], outcome.counts["open"], outcome.counts["rows"]) == (1, 1, 1)
    assert len(asked) == TRIES


def test_a_row_that_never_rests_was_not_compared() -> None:
    """I12: its authority answers something else each time."""
    source, target = pair()
    key = make_cell().row_key
    put([make_cell(key, ref_key=1)], source)

    class Restless(MemoryStore):
        def using(self, **habits: object) -> Restless:
            return self

        def get_cells_latest(self, columns: object) -> list[Cell | None]:
            source.append_cell(key, "BASE", "again")
            return source.get_cells_latest(columns)  # type: ignore[arg-type]  # handed through

    restless = Restless(shards=SHARDS)
    verdicts = judge(restless, target).judge([ChildKey(key, "BASE")])

    assert [each.kind for each in verdicts.not_compared] == [NotCompared.BUSY]
    assert verdicts.differences == []


def test_a_bucket_that_could_not_be_read_equals_no_other() -> None:
    """I12"""
    source, target = pair()
    put([make_cell()], source, target)
    ours, theirs = (PlainDigests(store).checksums(range(SHARDS), None) for store in (source, target))
    place = next(place for place, bucket in ours.buckets.items() if bucket.count)

    assert differing(ours, theirs) == {}
    assert differing(Sums(ours.buckets, frozenset([place])), theirs) == {place: 1}


def test_sums_that_miss_a_bucket_are_caught() -> None:
    """The control of the first look: a diff that drops a bucket's difference finds nothing."""
    source, target = pair()
    put([make_cell()], source)

    class Blind(PlainDigests):
        def checksums(self, shards: range, columns: object) -> Sums:
            return PlainDigests(source).checksums(shards, None)

    assert diff(source, target).found != []
    assert diff(source, target, theirs=Blind(target)).found == []


def test_a_checkpoint_holds_a_few_numbers_for_a_shard() -> None:
    found = {BucketPlace(3, 0): 5, BucketPlace(3, 15): 7, BucketPlace(9, 1): 1}

    left = left_of(found)

    assert left == [BucketsLeft(3, 0b1000000000000001, 12), BucketsLeft(9, 0b10, 1)]
    assert {place for each in left for place in each.places} == found.keys()


def test_a_step_takes_as_many_shards_as_there_is_room_for_but_one_at_least() -> None:
    left = [BucketsLeft(1, 1, 500), BucketsLeft(2, 1, 10), BucketsLeft(3, 1, 10)]

    assert cut(left, 100) == (left[:1], left[1:])
    assert cut(left, 515) == (left[:2], left[2:])
    assert cut(left, 1000) == (left, [])


def test_a_shard_that_is_too_large_is_taken_bucket_by_bucket() -> None:
    left = [BucketsLeft(1, 0b1111, 4_000), BucketsLeft(2, 1, 10)]
    seen, sizes = list[BucketPlace](), list[int]()

    while left:
        some, left = cut(left, 1_000)
        seen += [place for each in some for place in each.places]
        sizes.append(sum(each.cells for each in some))

    assert seen == [BucketPlace(1, 0), BucketPlace(1, 1), BucketPlace(1, 2), BucketPlace(1, 3), BucketPlace(2, 0)]
    assert sizes == [1_000, 1_000, 1_000, 1_000, 10]


@pytest.mark.parametrize(("shards", "number"), [(7, 3), (4, 9), (1, 1), (4096, 16)])
def test_parts_are_all_shards_once(shards: int, number: int) -> None:
    parts = parts_of(range(shards), number)

    assert [shard for part in parts for shard in part] == list(range(shards))
    assert len(parts) == min(shards, number)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_a_difference_survives_its_line_and_its_finding() -> None:
    source, target = pair()
    put([make_cell(body={"a": 1})], source)
    put([make_cell()], target)

    for each in diff(source, target).found:
        assert from_document(each.document()) == each
        assert from_finding(each.finding()) == each
