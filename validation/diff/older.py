"""`OlderDiff`: versions below the latest of a child, of a share of the rows, as far back as both stores know them.

A version never changes, so what both have is compared once and for all; and what one lacks may only be on its way
while the row has changes in flight. What one has and the other has forgotten cannot be compared: it is counted
apart, and is neither equal nor a fault. One that cannot be read is not compared (I12), and hides none of the others.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from schemaless_core.cell.canonical import Json
from schemaless_core.cell.cell import Cell, CellKey, ColumnKey
from schemaless_core.cell.children import NO_CHILDREN, ChildKey, Children, latest_of
from schemaless_core.cell.sharding import BUCKETS_PER_SHARD, shard_of
from schemaless_core.store import CellStore
from tripstore.engines.validation.compare import BYTES
from tripstore.engines.validation.diff.buckets import BucketPlace, Digests
from tripstore.engines.validation.diff.differences import CellClass, Difference, NotCompared, difference
from tripstore.engines.validation.diff.histories import FORGOTTEN, Forgotten, Histories, Seen, Unread
from tripstore.engines.validation.diff.portions import Portion, counted, shards_of
from tripstore.engines.validation.diff.suspects import InFlight, Roles
from tripstore.engines.validation.diff.version_sets import NoSets, VersionSets
from tripstore.engines.validation.recheck import FIRST_PAUSE_SECONDS, TRIES

#: A step ends with the bucket, or the shard, in which it has looked at so many.
COLUMNS_PER_STEP = 2_000
#: Columns that are looked at together: both stores' newest versions of all of them are in memory at once.
COLUMNS_PER_LOOK = 100
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


class _Looked(NamedTuple):
    """What two stores once had of a column."""

    key: ColumnKey
    is_flying: bool
    counts: Counter[str]
    found: list[Difference]

    @property
    def is_moving(self) -> bool:
        """Whether what was found may be otherwise in a moment."""
        return self.is_flying and any(map(_may_come, self.found))


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
        sets: VersionSets | None = None,
    ) -> None:
        self._sets = NoSets() if sets is None else sets
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
        keys = list[ColumnKey]()
        while place.shard < shards.stop and len(keys) < COLUMNS_PER_STEP:
            places = [place]
            keys += self._chosen(places)
            if place.number == 0 and len(keys) < COLUMNS_PER_STEP:
                # Buckets are alike: of a small shard the others are asked for at once.
                places = [BucketPlace(place.shard, number) for number in range(BUCKETS_PER_SHARD)]
                keys += self._chosen(places[1:])
            place = BucketPlace(*divmod(place.shard * BUCKETS_PER_SHARD + places[-1].number + 1, BUCKETS_PER_SHARD))
        counts, found = Counter[str](), list[Difference]()
        left = self._settle(keys, counts)
        for first in range(0, len(left), COLUMNS_PER_LOOK):
            found += self._of_columns(left[first : first + COLUMNS_PER_LOOK], counts)
        counted(found, counts, PREFIX)
        return Portion(list(place), place.shard >= shards.stop, counts, found)

    def _chosen(self, places: Sequence[BucketPlace]) -> list[ColumnKey]:
        """The columns of these buckets that are in the share."""
        digests = sorted(self._digests.digests(places, self._columns))
        keys = (ColumnKey(UUID(bytes=row_key), name) for row_key, name, *_ in digests)
        return [key for key in keys if shard_of(key.row_key, _CHOICES) < self._share * _CHOICES]

    def _settle(self, keys: Sequence[ColumnKey], counts: Counter[str]) -> list[ColumnKey]:
        """Count what is plain; the columns that are not."""
        compared = self._sets.compared(keys)
        counts[f"{PREFIX}columns"] += len(keys)
        counts[f"{PREFIX}equal"] += compared.equal
        counts[FORGOTTEN_COUNT] += compared.forgotten
        return compared.left

    def _of_columns(self, keys: Sequence[ColumnKey], counts: Counter[str]) -> list[Difference]:
        """What differs or cannot be compared below the latest versions that there are."""
        found, waiting, moving = list[Difference](), keys, list[_Looked]()
        for n in range(TRIES):
            if n:
                self._pause(FIRST_PAUSE_SECONDS * 2**n)
            looked = self._look(waiting)
            moving = [each for each in looked if each.is_moving]
            for each in looked:
                if not each.is_moving:
                    counts.update(each.counts)
                    found += each.found
            if not moving:
                break
            waiting = [each.key for each in moving]
        for each in moving:
            counts.update(each.counts)
            found += [one._replace(kind=NotCompared.BUSY) if _may_come(one) else one for one in each.found]
        return found

    def _look(self, keys: Sequence[ColumnKey]) -> list[_Looked]:
        """All of these, as many at a time as fit into a page of either store."""
        looked = list[_Looked]()
        while len(looked) < len(keys):
            looked += self._look_at_some(keys[len(looked) :])
        return looked

    def _look_at_some(self, keys: Sequence[ColumnKey]) -> list[_Looked]:
        """Both stores once, with what is on its way between them."""
        roles = self._roles()
        before = self._histories.read(roles.authority, keys)
        keys = keys[: len(before)]
        flying = set(self._in_flight.rows({key.row_key for key in keys}))
        held = self._histories.read(roles.mirror, keys)
        keys, before = keys[: len(held)], before[: len(held)]
        cells = [self._below_latest(*each) for each in zip(keys, before, held, strict=True)]
        ours, theirs = self._known(roles.authority, cells, before), self._known(roles.mirror, cells, held)
        looked = []
        for key, below in zip(keys, cells, strict=True):
            looked.append(_Looked(key, key.row_key in flying, Counter(), []))
            for cell in below:
                _compare(_Pair(cell, ours[cell], theirs[cell]), roles, looked[-1].counts, looked[-1].found)
        return looked

    def _below_latest(self, key: ColumnKey, before: _Versions, held: _Versions) -> list[CellKey]:
        """All versions but the latest of each child, which are another comparison's."""
        known = before.keys() | held.keys()
        tombstones = [
            ref_key for versions in (before, held) for ref_key in versions if _is_tombstone(versions[ref_key])
        ]
        latest = latest_of(known, tombstones, self._children.get(key.column_name))
        return [CellKey(*key, ref_key) for ref_key in sorted(known - latest)]

    def _known(
        self, store: CellStore, cells: Sequence[Sequence[CellKey]], versions: Sequence[_Versions]
    ) -> Mapping[CellKey, Seen | Forgotten | None]:
        """What a store has of these. Asked again for what it lacks: it may have come meanwhile, or be forgotten."""
        found: dict[CellKey, Seen | Forgotten | None] = {
            key: known.get(key.ref_key) for below, known in zip(cells, versions, strict=True) for key in below
        }
        lacking = [key for key, seen in found.items() if seen is None]
        found.update(zip(lacking, self._histories.find(store, lacking), strict=True))
        return found


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
