"""`OlderDiff`: versions below the latest of a child, of a share of the rows, as far back as both stores know them.

A version never changes, so what both have is compared once and for all; and what one lacks may only be on its way
while the row has changes in flight. What one has and the other has forgotten cannot be compared: it is counted
apart, and is neither equal nor a fault. One that cannot be read is not compared (I12), and hides none of the others.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from schemaless_core.cell.canonical import Json
from schemaless_core.cell.cell import Cell, CellKey, ColumnKey
from schemaless_core.cell.children import NO_CHILDREN, ChildKey, Children, latest_of
from schemaless_core.cell.sharding import BUCKETS_PER_SHARD, shard_of
from tripstore.engines.validation.compare import BYTES
from tripstore.engines.validation.diff.buckets import BucketPlace, Digests
from tripstore.engines.validation.diff.differences import CellClass, Difference, NotCompared, difference
from tripstore.engines.validation.diff.histories import FORGOTTEN, Forgotten, Histories, Seen, Unread
from tripstore.engines.validation.diff.portions import Portion, counted, shards_of
from tripstore.engines.validation.diff.suspects import InFlight, Roles
from tripstore.engines.validation.recheck import FIRST_PAUSE_SECONDS, TRIES

#: A step ends with the bucket in which it has looked at so many.
COLUMNS_PER_STEP = 500
#: Counts of older versions are not those of the latest.
PREFIX = "older_"
#: Of which a share is chosen, by a hash of the row key that has nothing to do with its shard.
_CHOICES = 10_007

#: How versions are counted that one store has and the other has forgotten.
FORGOTTEN_COUNT = f"{PREFIX}forgotten"

_Versions = Mapping[int, Seen]


class _Pair(NamedTuple):
    """A version, as each store has it."""

    key: CellKey
    ours: Seen | Forgotten | None
    theirs: Seen | Forgotten | None


class OlderDiff:
    """Compares histories. A step is some buckets of one store: a child that it lacks is told by its latest cell.

    The digests name each column once, however many children it has.
    """

    def __init__(
        self,
        digests: Digests,
        roles: Callable[[], Roles],
        in_flight: InFlight,
        histories: Histories,
        share: float,
        columns: Collection[str] | None = None,
        pause: Callable[[float], object] = time.sleep,
        children: Children = NO_CHILDREN,
    ) -> None:
        self._digests = digests
        self._roles = roles
        self._in_flight = in_flight
        self._histories = histories
        self._share = share
        self._columns = columns
        self._pause = pause
        self._children = children

    def step(self, bounds: Json, checkpoint: Json) -> Portion:
        shards = shards_of(bounds)
        place = BucketPlace(shards.start, 0) if checkpoint is None else _read(checkpoint)
        counts, found = Counter[str](), list[Difference]()
        while place.shard < shards.stop and counts[f"{PREFIX}columns"] < COLUMNS_PER_STEP:
            places = [place]
            found += self._of_buckets(places, counts)
            if place.number == 0 and counts[f"{PREFIX}columns"] < COLUMNS_PER_STEP:
                # Buckets are alike: of a small shard the others are asked for at once.
                places = [BucketPlace(place.shard, number) for number in range(BUCKETS_PER_SHARD)]
                found += self._of_buckets(places[1:], counts)
            place = BucketPlace(*divmod(place.shard * BUCKETS_PER_SHARD + places[-1].number + 1, BUCKETS_PER_SHARD))
        counted(found, counts, PREFIX)
        return Portion(list(place), place.shard >= shards.stop, counts, found)

    def _of_buckets(self, places: Sequence[BucketPlace], counts: Counter[str]) -> list[Difference]:
        found = []
        for row_key, name, *_ in sorted(self._digests.digests(places, self._columns)):
            key = ColumnKey(UUID(bytes=row_key), name)
            if shard_of(key.row_key, _CHOICES) < self._share * _CHOICES:
                counts[f"{PREFIX}columns"] += 1
                found += self._of_column(key, counts)
        return found

    def _of_column(self, key: ColumnKey, counts: Counter[str]) -> list[Difference]:
        """What differs or cannot be compared below the latest version that there is."""
        for n in range(TRIES):
            if n:
                self._pause(FIRST_PAUSE_SECONDS * 2**n)
            roles = self._roles()
            before = self._histories.read(roles.authority, key)
            is_flying = bool(self._in_flight.rows([key.row_key]))
            held = self._histories.read(roles.mirror, key)
            some, found = Counter[str](), list[Difference]()
            for pair in self._pairs(key, roles, before, held):
                _compare(pair, roles, some, found)
            if not (is_flying and any(map(_may_come, found))):
                break
        else:
            found = [each._replace(kind=NotCompared.BUSY) if _may_come(each) else each for each in found]
        counts.update(some)
        return found

    def _pairs(self, key: ColumnKey, roles: Roles, before: _Versions, held: _Versions) -> Iterator[_Pair]:
        """All versions but the latest of each child, which are another comparison's."""
        known = before.keys() | held.keys()
        tombstones = [
            ref_key for versions in (before, held) for ref_key in versions if _is_tombstone(versions[ref_key])
        ]
        for ref_key in sorted(known - latest_of(known, tombstones, self._children.get(key.column_name))):
            cell = CellKey(*key, ref_key)
            # The store that lacks it is asked for it: it may have come to both meanwhile, or be forgotten.
            ours = before.get(ref_key) or self._histories.find(roles.authority, cell)
            theirs = held.get(ref_key) or self._histories.find(roles.mirror, cell)
            yield _Pair(cell, ours, theirs)


def _is_tombstone(seen: Seen) -> bool:
    return isinstance(seen, Cell) and seen.is_tombstone


def _may_come(found: Difference) -> bool:
    """Whether it may be on its way: one store lacks it. What both have never changes."""
    return found.kind in (CellClass.MISSING, CellClass.EXTRA)


def _compare(pair: _Pair, roles: Roles, counts: Counter[str], found: list[Difference]) -> None:
    """Count a version, or say how it differs, or why that is unknown."""
    each = held_together(pair.key, *((pair.ours, pair.theirs) if roles.is_from else (pair.theirs, pair.ours)))
    if isinstance(each, Forgotten):
        counts[FORGOTTEN_COUNT] += 1
    elif each is not None:
        found.append(each)
    elif pair.ours is not None:
        counts[f"{PREFIX}equal"] += 1


def held_together(
    key: CellKey, wanted: Seen | Forgotten | None, given: Seen | Forgotten | None
) -> Difference | Forgotten | None:
    """How a version of the target differs from the source's, or why that is unknown; None: it does not.

    Bytes that are no JSON are wrong, whatever the other store has or knew.
    """
    column = ColumnKey(*key[:2])
    from_ref_key, to_ref_key = (key.ref_key if isinstance(seen, Cell | Unread) else None for seen in (wanted, given))
    if any(isinstance(seen, Unread) and seen.is_torn for seen in (wanted, given)):
        return Difference(CellClass.DIFFERS, *column, from_ref_key, to_ref_key, BYTES, is_older=True)
    if isinstance(wanted, Forgotten) or isinstance(given, Forgotten):
        return FORGOTTEN
    for seen in (wanted, given):
        if isinstance(seen, Unread):
            return Difference(NotCompared.UNREADABLE, *column, from_ref_key, to_ref_key, seen.why, is_older=True)
    assert not isinstance(wanted, Unread)
    assert not isinstance(given, Unread)
    return difference(ChildKey(*column), wanted, given, is_older=True)


def _read(checkpoint: Json) -> BucketPlace:
    assert isinstance(checkpoint, list)
    shard, number = checkpoint
    assert isinstance(shard, int)
    assert isinstance(number, int)
    return BucketPlace(shard, number)
