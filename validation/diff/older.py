"""`OlderDiff`: versions below the latest of a child, of a share of the rows, as far back as both stores know them.

A version never changes, so what both have is compared once and for all; and what one lacks may only be on its way
while the row has changes in flight. What one has and the other has forgotten cannot be compared: it is counted
apart, and is neither equal nor a fault. One that cannot be read is not compared (I12), and hides none of the others.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import NamedTuple

from schemaless_core.cell.canonical import Json
from schemaless_core.cell.cell import Cell, CellKey, ColumnKey
from schemaless_core.cell.children import NO_CHILDREN, ChildKey, Children, latest_of
from schemaless_core.errors import InvalidRequest
from schemaless_core.store import CellStore
from tripstore.engines.validation.compare import BYTES
from tripstore.engines.validation.diff.differences import CellClass, Difference, NotCompared, difference
from tripstore.engines.validation.diff.histories import FORGOTTEN, Forgotten, Histories, Seen, Unread
from tripstore.engines.validation.diff.portions import Portion, counted, shards_of
from tripstore.engines.validation.diff.suspects import InFlight, Roles
from tripstore.engines.validation.diff.version_sets import RowPlace, VersionSets
from tripstore.engines.validation.recheck import FIRST_PAUSE_SECONDS, TRIES

#: A step ends with the look that brings it to so many columns, or to so many that need a closer look.
COLUMNS_PER_STEP = 20_000
LEFT_PER_STEP = 1_000
#: Columns that are looked at together: both stores' newest versions of all of them are in memory at once.
COLUMNS_PER_LOOK = 100
#: Counts of older versions are not those of the latest.
PREFIX = "older_"

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
    """Compares histories. A step is some rows of one store: a child that it lacks is told by its latest cell."""

    def __init__(
        self,
        sets: VersionSets,
        roles: Callable[[], Roles],
        in_flight: InFlight,
        histories: Histories,
        pause: Callable[[float], object] = time.sleep,
        children: Children = NO_CHILDREN,
    ) -> None:
        self._sets = sets
        self._roles = roles
        self._in_flight = in_flight
        self._histories = histories
        self._pause = pause
        self._children = children

    def step(self, bounds: Json, checkpoint: Json) -> Portion:
        """Sets first; of what they leave the columns themselves."""
        shards = shards_of(bounds)
        place = RowPlace(shards.start) if checkpoint is None else _read(checkpoint)
        counts, left = Counter[str](), list[ColumnKey]()
        with closing(self._sets.compared(place, shards.stop)) as looks:
            for found in looks:
                place = found.next
                left += found.left
                counts[f"{PREFIX}columns"] += found.columns
                counts[f"{PREFIX}equal"] += found.equal
                counts[FORGOTTEN_COUNT] += found.forgotten
                if counts[f"{PREFIX}columns"] >= COLUMNS_PER_STEP or len(left) >= LEFT_PER_STEP:
                    break
        differences = list[Difference]()
        for first in range(0, len(left), COLUMNS_PER_LOOK):
            differences += self._of_columns(left[first : first + COLUMNS_PER_LOOK], counts)
        counted(differences, counts, PREFIX)
        return Portion(_written(place), place.shard >= shards.stop, counts, differences)

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


def _written(place: RowPlace) -> Json:
    return [place.shard, None if place.after is None else place.after.hex()]


def _read(checkpoint: Json) -> RowPlace:
    assert isinstance(checkpoint, list)
    shard, after = checkpoint
    assert isinstance(shard, int)
    if isinstance(after, int):
        message = "This diff was begun by an earlier version, which walked over older versions in another order."
        raise InvalidRequest(message, hint="`tripstore diff cancel` gives it up, and `diff start --older` begins anew.")
    assert isinstance(after, str | None)
    return RowPlace(shard, None if after is None else bytes.fromhex(after))
