"""`CellDiff`: the latest cells of two stores, held against each other shard by shard.

First sums of buckets, both stores at once. Where those differ, keys with hashes; where these differ, the cells
themselves, which are judged before anything is said of them. Nothing that was seen only once is a difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar
from uuid import UUID

from schemaless_core.canonical import Json
from schemaless_core.cell import ColumnKey
from schemaless_core.failpoints import reach
from validation.buckets import CellDigest, Digests, Left, Place, cells_equal, differing, left_of, taken
from validation.differences import Difference, of_bytes
from validation.portions import Portion, counted, shards_of
from validation.suspects import Judge

T = TypeVar("T")

#: Cells whose keys and hashes are held in memory together, of each store.
CELLS_PER_STEP = 100_000

_Key = tuple[bytes, str]


class CellDiff:
    """Compares ranges of shards. A step is a pass of sums, or some of the buckets that differ."""

    def __init__(
        self,
        ours: Digests,
        theirs: Digests,
        judge: Judge,
        columns: Collection[str] | None = None,
        cells_per_step: int = CELLS_PER_STEP,
    ) -> None:
        self._ours = ours
        self._theirs = theirs
        self._judge = judge
        self._columns = columns
        self._cells_per_step = cells_per_step

    def step(self, bounds: Json, checkpoint: Json) -> Portion:
        if checkpoint is None:
            return self._sum(shards_of(bounds))
        left = _read(checkpoint)
        number = taken(left, self._cells_per_step)
        places = [place for each in left[:number] for place in each.places]
        return self._look(places, left[number:])

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
        return Portion(_written(left), not left, counts)

    def _look(self, places: Collection[Place], rest: list[Left]) -> Portion:
        ours, theirs = _both(
            lambda: _by_key(self._ours.digests(places, self._columns)),
            lambda: _by_key(self._theirs.digests(places, self._columns)),
        )
        reach("diff.keyed")
        suspects = [key for key in ours.keys() | theirs.keys() if not _is_equal(ours.get(key), theirs.get(key))]
        equal = len(ours.keys() | theirs.keys()) - len(suspects)
        # In one order, however the stores gave them.
        keys = [ColumnKey(UUID(bytes=row_key), name) for row_key, name in sorted(suspects)]
        verdicts = self._judge.judge(keys)
        found: list[Difference] = [*verdicts.differences, *verdicts.not_compared]
        in_flight = 0
        for key in verdicts.equal:
            place = (key.row_key.bytes, key.column_name)
            if _is_of_bytes(ours.get(place), theirs.get(place), key.ref_key):
                found.append(of_bytes(ColumnKey(key.row_key, key.column_name), key.ref_key))
            else:
                in_flight += 1
        counts = Counter(rows=equal + in_flight, equal=equal + in_flight, in_flight=in_flight, suspects=len(suspects))
        counted(found, counts)
        return Portion(_written(rest), not rest, counts, found)


def _both(one: Callable[[], T], other: Callable[[], T]) -> tuple[T, T]:
    """Both stores at once: each waits for another machine most of the time."""
    with ThreadPoolExecutor(1, thread_name_prefix="diff") as pool:
        theirs = pool.submit(other)
        ours = one()
        return ours, theirs.result()


def _by_key(digests: Iterable[CellDigest]) -> dict[_Key, CellDigest]:
    return {(each.row_key, each.column_name): each for each in digests}


def _is_equal(one: CellDigest | None, other: CellDigest | None) -> bool:
    return one is not None and one == other and not one.unreadable


def _is_of_bytes(one: CellDigest | None, other: CellDigest | None, ref_key: int) -> bool:
    """Whether hashes of one version differed: its bodies are equal, so its bytes are not. A version never changes."""
    if one is None or other is None or one.unreadable or other.unreadable:
        return False
    return one.ref_key == other.ref_key == ref_key and one.hash != other.hash


def _written(left: list[Left]) -> Json:
    return {"left": [list(each) for each in left]}


def _read(checkpoint: Json) -> list[Left]:
    assert isinstance(checkpoint, dict)
    left = checkpoint["left"]
    assert isinstance(left, list)
    return [Left(*each) for each in left]  # type: ignore[misc]  # we wrote it
