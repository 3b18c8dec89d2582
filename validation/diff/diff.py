"""`CellDiff`: the rows of two stores, held against each other shard by shard: the latest cell of each child.

First sums of buckets, both stores at once. Where those differ, keys with hashes; where these differ, the cells
themselves, which are judged before anything is said of them. Nothing that was seen only once is a difference.

Of a mirror that lacks everything every cell is a suspect: keys and hashes are fetched for so many buckets at a time,
and so many suspects, in the order of their keys, are judged and handed over before the next ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar
from uuid import UUID

from schemaless_core.cell.canonical import Json
from schemaless_core.cell.children import NO_CHILDREN, ChildKey, Children, child_of
from schemaless_core.failpoints import reach
from tripstore.engines.validation.diff.buckets import (
    BucketPlace,
    BucketsLeft,
    CellDigest,
    Digests,
    cells_equal,
    cut,
    differing,
    left_of,
)
from tripstore.engines.validation.diff.differences import EXPLAINED, Difference, of_bytes
from tripstore.engines.validation.diff.portions import Portion, counted, shards_of
from tripstore.engines.validation.diff.suspects import Judge
from tripstore.engines.validation.diff.table_rows import counts_of

T = TypeVar("T")

#: Cells whose keys and hashes are held in memory together, of each store.
CELLS_PER_STEP = 250_000
#: Suspects that are judged in a step: its differences are in memory together, and saved together.
SUSPECTS_PER_STEP = 10_000

#: A row: row key, column, and which child of it; 0 where the column is one row.
_Key = tuple[bytes, str, int]


class _Suspect(NamedTuple):
    """A cell whose hashes differ."""

    #: Keys before it.
    number: int
    key: _Key
    ours: CellDigest | None
    theirs: CellDigest | None


class _Looked(NamedTuple):
    """What hashes said of some buckets, from a key on."""

    suspects: list[_Suspect]
    #: Keys that were counted before, and all.
    passed: int
    total: int


class CellDiff:
    """Compares ranges of shards. A step is a pass of sums, or some of the buckets that differ."""

    def __init__(
        self,
        ours: Digests,
        theirs: Digests,
        judge: Judge,
        columns: Collection[str] | None = None,
        cells_per_step: int = CELLS_PER_STEP,
        suspects_per_step: int = SUSPECTS_PER_STEP,
        children: Children = NO_CHILDREN,
    ) -> None:
        self._ours = ours
        self._theirs = theirs
        self._judge = judge
        self._columns = columns
        self._cells_per_step = cells_per_step
        self._suspects_per_step = suspects_per_step
        self._children = children
        #: What is left of the last look, for the step that goes on there: hashes need not be fetched again.
        self._kept: tuple[Json, _Looked] | None = None

    def step(self, bounds: Json, checkpoint: Json) -> Portion:
        if checkpoint is None:
            return self._sum(shards_of(bounds))
        left, after = _read(checkpoint)
        some, rest = cut(left, self._cells_per_step)
        kept, self._kept = self._kept, None
        if kept is not None and kept[0] == checkpoint:
            looked = kept[1]
        else:
            kept = None  # never two looks in memory
            looked = self._look([place for each in some for place in each.places], after)
        suspects = looked.suspects[: self._suspects_per_step]
        if len(suspects) == len(looked.suspects):
            return self._judged(suspects, looked.total - looked.passed, _written(rest), is_end=not rest)
        passed, going_on = suspects[-1].number + 1, _written(left, suspects[-1].key)
        portion = self._judged(suspects, passed - looked.passed, going_on, is_end=False)
        self._kept = going_on, _Looked(looked.suspects[len(suspects) :], passed, looked.total)
        return portion

    def _sum(self, shards: range) -> Portion:
        ours, theirs = _both(
            lambda: self._ours.checksums(shards, self._columns),
            lambda: self._theirs.checksums(shards, self._columns),
        )
        reach("diff.summed")
        found = differing(ours, theirs)
        equal = cells_equal(ours, found)
        left = left_of(found)
        counts = Counter(rows=equal, equal=equal, buckets=len(ours.buckets), buckets_differing=len(found))
        for sums in (ours, theirs):
            counts.update(counts_of(sums.tables))
        return Portion(_written(left), not left, counts)

    def _look(self, places: Collection[BucketPlace], after: _Key | None) -> _Looked:
        ours, theirs = _both(
            lambda: self._by_key(self._ours.digests(places, self._columns)),
            lambda: self._by_key(self._theirs.digests(places, self._columns)),
        )
        reach("diff.keyed")
        # In one order, however the stores gave them.
        keys = sorted(key for key in ours.keys() | theirs.keys() if after is None or key > after)
        suspects = [
            _Suspect(number, key, ours.get(key), theirs.get(key))
            for number, key in enumerate(keys)
            if not _is_equal(ours.get(key), theirs.get(key))
        ]
        return _Looked(suspects, 0, len(keys))

    def _judged(self, suspects: Sequence[_Suspect], passed: int, checkpoint: Json, *, is_end: bool) -> Portion:
        """Of so many cells all are equal but these suspects, of which some may be."""
        equal, of_key = passed - len(suspects), {each.key: each for each in suspects}
        verdicts = self._judge.judge([self._child(key) for key in of_key])
        found: list[Difference] = [*verdicts.differences, *verdicts.not_compared]
        in_flight = 0
        for key, ref_key in verdicts.equal:
            suspect = of_key[key.row_key.bytes, key.column_name, key.child or 0]
            if _is_of_bytes(suspect.ours, suspect.theirs, ref_key):
                found.append(of_bytes(key, ref_key))
            else:
                in_flight += 1
        explained = len(verdicts.explained)
        counts = Counter(rows=equal + in_flight + explained, equal=equal + in_flight, in_flight=in_flight)
        counts.update({EXPLAINED: explained, "suspects": len(suspects)})
        counted(found, counts)
        return Portion(checkpoint, is_end, counts, found)

    def _by_key(self, digests: Iterable[CellDigest]) -> dict[_Key, CellDigest]:
        children = self._children
        return {
            (each.row_key, each.column_name, child_of(children, each.column_name, each.ref_key) or 0): each
            for each in digests
        }

    def _child(self, key: _Key) -> ChildKey:
        row_key, name, child = key
        return ChildKey(UUID(bytes=row_key), name, child if name in self._children else None)


def _both(one: Callable[[], T], other: Callable[[], T]) -> tuple[T, T]:
    """Both stores at once: each waits for another machine most of the time."""
    with ThreadPoolExecutor(1, thread_name_prefix="diff") as pool:
        theirs = pool.submit(other)
        ours = one()
        return ours, theirs.result()


def _is_equal(one: CellDigest | None, other: CellDigest | None) -> bool:
    return one is not None and one == other and not one.unreadable


def _is_of_bytes(one: CellDigest | None, other: CellDigest | None, ref_key: int) -> bool:
    """Whether hashes of one version differed: its bodies are equal, so its bytes are not. A version never changes."""
    if one is None or other is None or one.unreadable or other.unreadable:
        return False
    return one.ref_key == other.ref_key == ref_key and one.hash != other.hash


def _written(left: list[BucketsLeft], after: _Key | None = None) -> Json:
    """Where it goes on: in the first of these buckets, behind a key if there is one."""
    found: dict[str, Json] = {"left": [list(each) for each in left]}
    return found if after is None else found | {"after": [after[0].hex(), *after[1:]]}


def _read(checkpoint: Json) -> tuple[list[BucketsLeft], _Key | None]:
    assert isinstance(checkpoint, dict)
    left, after = checkpoint["left"], checkpoint.get("after")
    assert isinstance(left, list)
    buckets = [BucketsLeft(*each) for each in left]  # type: ignore[misc]  # we wrote it
    if after is None:
        return buckets, None
    assert isinstance(after, list)
    row_key, name, child = map(str, after)
    return buckets, (bytes.fromhex(row_key), name, int(child))
