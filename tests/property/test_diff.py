"""Random differences of every class between two oracles: a diff finds exactly those, with class and place."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemaless_core import Cell, Json, MemoryStore
from tests.diffs import SHARDS, Outcome, diff, pair, put
from tests.scale import scaled
from tripstore.engines.validation.compare import WHOLE
from tripstore.engines.validation.diff.buckets import BucketPlace, CellDigest, PlainDigests, Sums
from tripstore.engines.validation.diff.differences import REF_KEY

EACH = scaled(1_000, least=50)
COLUMNS = ("BASE", "STATUS", "NOTES")

#: How a difference is told: class, path, ref keys of source and target.
Told = tuple[str, str, int | None, int | None]
Injected = dict[tuple[UUID, str], Told]


def body(number: int) -> dict[str, Json]:
    return {"fare": {"cents": number, "currency": "EUR"}, "tags": ["a", number], "note": f"n{number}"}


def inject(kind: str, number: int, key: tuple[UUID, str], source: MemoryStore, target: MemoryStore) -> Told | None:
    """Make one column of one row differ in one way, or in none."""
    ours, theirs = body(number), body(number)
    if kind == "equal":
        put([Cell(*key, 3, ours)], source, target)
        return None
    if kind == "equal history":
        put([Cell(*key, 3, ours)], source)
        put([Cell(*key, 2, "older"), Cell(*key, 3, theirs)], target)  # the latest is what is compared
        return None
    if kind == "missing":
        put([Cell(*key, 3, ours)], source)
        return "missing", "", 3, None
    if kind == "extra":
        put([Cell(*key, 3, theirs)], target)
        return "extra", "", None, 3
    if kind == "behind":
        put([Cell(*key, 3, ours)], source, target)
        put([Cell(*key, 4, ours)], source)
        return "differs", REF_KEY, 4, 3
    if kind == "ahead":
        put([Cell(*key, 3, ours)], source, target)
        put([Cell(*key, 9, None)], target)
        return "differs", REF_KEY, 3, 9
    if kind == "deleted":
        put([Cell(*key, 3, ours)], source, target)
        put([Cell(*key, 4, None)], source)
        return "differs", REF_KEY, 4, 3
    changes: dict[str, tuple[Callable[[dict[str, Json]], object], str]] = {
        "field": (lambda held: held.update(note="other"), "note"),
        "nested": (lambda held: held.update(fare={"cents": number, "currency": "USD"}), "fare.currency"),
        "element": (lambda held: held.update(tags=["a", number + 0.5]), "tags[1]"),
        "more": (lambda held: held.update(zone=None), "zone"),
        "less": (lambda held: held.pop("fare"), "fare"),
        "number": (lambda held: held.update(tags=["a", float(number)]), "tags[1]"),
    }
    if kind == "tombstone":
        put([Cell(*key, 3, ours)], source)
        put([Cell(*key, 3, None)], target)
        return "differs", WHOLE, 3, 3
    change, path = changes[kind]
    change(theirs)
    put([Cell(*key, 3, ours)], source)
    put([Cell(*key, 3, theirs)], target)
    return "differs", path, 3, 3


KINDS = (
    *("missing", "extra", "behind", "ahead", "deleted", "tombstone"),
    *("field", "nested", "element", "more", "less", "number"),
)
QUIET = ("equal", "equal history")


def injected(kinds: Iterable[str], chance: random.Random) -> tuple[MemoryStore, MemoryStore, Injected]:
    source, target = pair()
    told: Injected = {}
    for number, kind in enumerate(kinds):
        key = (UUID(int=chance.getrandbits(128)), chance.choice(COLUMNS))
        found = inject(kind, number, key, source, target)
        if found is not None:
            told[key] = found
    return source, target, told


def found_by(outcome: Outcome) -> Injected:
    return {
        (each.row_key, each.column_name): (str(each.kind), each.path, each.from_ref_key, each.to_ref_key)
        for each in outcome.found
    }


def check(outcome: Outcome, told: Injected) -> None:
    assert found_by(outcome) == told
    assert len(outcome.found) == len(told)  # none is told twice
    classes = Counter(kind for kind, _path, _ours, _theirs in told.values())
    assert {name: outcome.counts[name] for name in ("missing", "extra", "differs")} == {
        name: classes[name] for name in ("missing", "extra", "differs")
    }
    assert outcome.counts["open"] == len(told)
    assert outcome.counts["not_compared"] == 0


def test_a_thousand_differences_of_every_class_are_found_exactly() -> None:
    chance = random.Random(6)
    kinds = [kind for kind in (*KINDS, *QUIET) for _ in range(EACH)]
    chance.shuffle(kinds)
    source, target, told = injected(kinds, chance)

    outcome = diff(source, target, cells_per_step=5_000)

    assert len(told) == EACH * len(KINDS)
    check(outcome, told)
    assert outcome.counts["equal"] == EACH * len(QUIET)


@given(st.lists(st.sampled_from([*KINDS, *QUIET]), max_size=40), st.integers(0, 2**32), st.sampled_from([1, 7, 1000]))
def test_whatever_differs_is_found_and_nothing_else(kinds: list[str], seed: int, cells_per_step: int) -> None:
    source, target, told = injected(kinds, random.Random(seed))

    check(diff(source, target, cells_per_step=cells_per_step), told)


@given(st.lists(st.sampled_from([*KINDS, *QUIET]), max_size=40), st.integers(0, 2**32))
def test_the_other_direction_tells_the_same_the_other_way_round(kinds: list[str], seed: int) -> None:
    source, target, told = injected(kinds, random.Random(seed))
    turned = {"missing": "extra", "extra": "missing", "differs": "differs"}

    outcome = diff(target, source)

    assert {key: (kind, ours, theirs) for key, (kind, _path, ours, theirs) in found_by(outcome).items()} == {
        key: (turned[kind], theirs, ours) for key, (kind, _path, ours, theirs) in told.items()
    }


class _WithoutBodies(PlainDigests):
    """Hashes keys alone."""

    def digests(self, places: Collection[BucketPlace], columns: Collection[str] | None) -> Iterable[CellDigest]:  # type: ignore[override]  # any iterable will do
        return [each._replace(hash=0) for each in super().digests(places, columns)]


class _WithoutSums(PlainDigests):
    """Counts, and does not sum."""

    def checksums(self, shards: range, columns: Collection[str] | None) -> Sums:
        found = super().checksums(shards, columns)
        return Sums(
            {
                place: type(bucket)(bucket.shard, bucket.number, bucket.count, 0)
                for place, bucket in found.buckets.items()
            }
        )


class _WithoutLast(PlainDigests):
    """Forgets the last shard."""

    def checksums(self, shards: range, columns: Collection[str] | None) -> Sums:
        found = super().checksums(shards, columns)
        return Sums(
            {
                place: type(bucket)(*place, 0, 0) if place.shard == SHARDS - 1 else bucket
                for place, bucket in found.buckets.items()
            }
        )


@pytest.mark.parametrize("broken", [_WithoutBodies, _WithoutSums, _WithoutLast])
def test_a_diff_that_looks_at_less_is_caught(broken: type[PlainDigests]) -> None:
    """The control of this file."""
    kinds = [kind for kind in (*KINDS, *QUIET) for _ in range(20)]
    source, target, told = injected(kinds, random.Random(1))

    outcome = diff(source, target, ours=broken(source), theirs=broken(target))

    with pytest.raises(AssertionError):
        check(outcome, told)


# ----------------------------------------------------------------------------------- children: each is a row by itself

CHILDREN = {"NOTES": 20, "STATUS": 0}
BITS = 20
#: Column, child, class and ref keys.
ToldOfChild = tuple[UUID, str, int, str, int | None, int | None]


def inject_children(
    kinds: Sequence[str], chance: random.Random
) -> tuple[MemoryStore, MemoryStore, set[ToldOfChild], int]:
    """A few parents whose children differ or do not; what differs, and how many rows there are in all."""
    source, target = pair()
    told, parents = set[ToldOfChild](), [UUID(int=chance.getrandbits(128)) for _ in range(3)]
    for number, kind in enumerate(kinds, 1):  # no number twice: below one parent they may stand in any order
        key = chance.choice(parents)
        found = inject_note(kind, number, key, source, target) if chance.random() < 0.6 else None
        if found is None:
            found = inject_fact(kind, number, key, source, target)
        told |= {found} if found[3] else set()
    return source, target, told, len(kinds)


def inject_note(kind: str, n: int, key: UUID, source: MemoryStore, target: MemoryStore) -> ToldOfChild:
    first, second = n << BITS, n << BITS | 1
    old, new, other = (Cell(key, "NOTES", *each) for each in ((first, "a"), (second, "b"), (second, "c")))
    deleted = Cell(key, "NOTES", second, None)
    cells, name, ours, theirs = {
        "equal": (([old], [old]), "", first, first),
        "history": (([new], [old, new]), "", second, second),
        "gone": (([old, deleted], [deleted]), "", second, second),
        "missing": (([old, new], []), "missing", second, None),
        "extra": (([], [old]), "extra", None, first),
        "behind": (([old, new], [old]), "differs", second, first),
        "ahead": (([old], [old, deleted]), "differs", first, second),
        "differs": (([new], [other]), "differs", second, second),
        "alive": (([old, deleted], [old, new]), "differs", second, second),
    }[kind]
    put(cells[0], source)
    put(cells[1], target)
    return key, "NOTES", n, name, ours, theirs


def inject_fact(kind: str, n: int, key: UUID, source: MemoryStore, target: MemoryStore) -> ToldOfChild:
    mine, other = Cell(key, "STATUS", n, "a"), Cell(key, "STATUS", n, "b")
    if kind in ("missing", "behind"):
        put([mine], source)
        return key, "STATUS", n, "missing", n, None
    if kind in ("extra", "ahead"):
        put([mine], target)
        return key, "STATUS", n, "extra", None, n
    put([mine], source)
    is_equal = kind in ("equal", "history", "gone")
    put([mine if is_equal else other], target)
    return key, "STATUS", n, "" if is_equal else "differs", n, n


CHILD_KINDS = ["equal", "history", "gone", "missing", "extra", "behind", "ahead", "differs", "alive"]


def check_children(outcome: Outcome, told: set[ToldOfChild], rows: int) -> None:
    assert {
        (each.row_key, each.column_name, each.child, str(each.kind), each.from_ref_key, each.to_ref_key)
        for each in outcome.found
    } == told
    assert len(outcome.found) == outcome.counts["open"] == len(told)
    assert (outcome.counts["rows"], outcome.counts["equal"]) == (rows, rows - len(told))


@given(
    st.lists(st.sampled_from(CHILD_KINDS), max_size=40),
    st.integers(0, 2**32),
    st.sampled_from([1, 7, 1000]),
    st.sampled_from([1, 3, 1000]),
)
def test_every_child_is_compared_and_told_of_by_itself(
    kinds: list[str], seed: int, cells_per_step: int, suspects_per_step: int
) -> None:
    """I12; whatever a step holds, so that a checkpoint in the midst of siblings loses none."""
    source, target, told, rows = inject_children(kinds, random.Random(seed))

    outcome = diff(
        source, target, children=CHILDREN, cells_per_step=cells_per_step, suspects_per_step=suspects_per_step
    )

    check_children(outcome, told, rows)


@given(st.lists(st.sampled_from(CHILD_KINDS), max_size=40), st.integers(0, 2**32), st.booleans())
def test_children_are_told_the_other_way_round(kinds: list[str], seed: int, is_from: bool) -> None:
    source, target, told, rows = inject_children(kinds, random.Random(seed))
    turned = {"missing": "extra", "extra": "missing", "differs": "differs"}

    outcome = diff(target, source, children=CHILDREN, is_from=is_from)

    check_children(
        outcome, {(key, name, n, turned[kind], theirs, ours) for key, name, n, kind, ours, theirs in told}, rows
    )


def test_a_diff_of_the_highest_children_is_caught() -> None:
    """The control: a diff that does not know of children calls parents equal whose other children differ."""
    kinds = [*["differs", "missing", "extra"] * 10, *["equal"] * 30]  # the highest numbers are equal
    source, target, told, rows = inject_children(kinds, random.Random(3))

    outcome = diff(source, target)

    assert outcome.counts["rows"] == outcome.counts["equal"] <= 6
    with pytest.raises(AssertionError):
        check_children(outcome, told, rows)
