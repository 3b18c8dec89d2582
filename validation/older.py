"""`OlderDiff`: versions below the latest, of a share of the rows, as far back as both stores know them.

A version never changes, so what both have is compared once and for all; and what one lacks may only be on its way
while the row has changes in flight. A store that knows that its history was cut says so: that is not compared (I12).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from uuid import UUID

import msgspec

from schemaless_core.canonical import Json
from schemaless_core.cell import Cell, ColumnKey
from schemaless_core.sharding import BUCKETS_PER_SHARD, shard_of
from schemaless_core.store import CellStore
from validation.buckets import Digests, Place
from validation.differences import Difference, NotCompared, difference
from validation.portions import Portion, counted, shards_of
from validation.reads import Incomparable
from validation.recheck import FIRST_PAUSE_SECONDS, TRIES
from validation.suspects import READ_SECONDS, InFlight, Roles

VERSIONS_PER_PAGE = 100
#: A step ends with the bucket in which it has looked at so many.
COLUMNS_PER_STEP = 500
#: Counts of older versions are not those of the latest.
PREFIX = "older_"
#: Of which a share is chosen, by a hash of the row key that has nothing to do with its shard.
_CHOICES = 10_007

_Versions = Mapping[int, Cell]


class OlderDiff:
    """Compares histories. A step is some buckets of one store: a column that it lacks is told by its latest cell."""

    def __init__(
        self,
        digests: Digests,
        roles: Callable[[], Roles],
        in_flight: InFlight,
        share: float,
        columns: Collection[str] | None = None,
        incomparable: Incomparable = (),
        unreadable: tuple[type[BaseException], ...] = (),
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self._digests = digests
        self._roles = roles
        self._in_flight = in_flight
        self._share = share
        self._columns = columns
        self._incomparable = incomparable
        self._unreadable: tuple[type[BaseException], ...] = (msgspec.MsgspecError, *unreadable)
        self._pause = pause

    def step(self, bounds: Json, checkpoint: Json) -> Portion:
        shards = shards_of(bounds)
        place = Place(shards.start, 0) if checkpoint is None else _read(checkpoint)
        counts, found = Counter[str](), list[Difference]()
        while place.shard < shards.stop and counts[f"{PREFIX}columns"] < COLUMNS_PER_STEP:
            places = [place]
            found += self._of_buckets(places, counts)
            if place.number == 0 and counts[f"{PREFIX}columns"] < COLUMNS_PER_STEP:
                # Buckets are alike: of a small shard the others are asked for at once.
                places = [Place(place.shard, number) for number in range(BUCKETS_PER_SHARD)]
                found += self._of_buckets(places[1:], counts)
            place = Place(*divmod(place.shard * BUCKETS_PER_SHARD + places[-1].number + 1, BUCKETS_PER_SHARD))
        counted(found, counts, PREFIX)
        return Portion(list(place), place.shard >= shards.stop, counts, found)

    def _of_buckets(self, places: Sequence[Place], counts: Counter[str]) -> list[Difference]:
        found = []
        for row_key, name, *_ in sorted(self._digests.digests(places, self._columns)):
            key = ColumnKey(UUID(bytes=row_key), name)
            if shard_of(key.row_key, _CHOICES) < self._share * _CHOICES:
                counts[f"{PREFIX}columns"] += 1
                found += self._of_column(key, counts)
        return found

    def _of_column(self, key: ColumnKey, counts: Counter[str]) -> list[Difference]:
        """Differences below the latest version that there is."""
        for n in range(TRIES):
            if n:
                self._pause(FIRST_PAUSE_SECONDS * 2**n)
            roles = self._roles()
            try:
                before = _history(roles.authority, key)
                is_flying = bool(self._in_flight.rows([key.row_key]))
                held = _history(roles.mirror, key)
                # What the mirror has beyond it may have come to both meanwhile.
                after = before if held.keys() <= before.keys() else _history(roles.authority, key)
            except self._incomparable as error:
                return [Difference(NotCompared.HISTORY, *key, path=type(error).__name__, is_older=True)]
            except self._unreadable as error:
                return [Difference(NotCompared.UNREADABLE, *key, path=type(error).__name__, is_older=True)]
            equal, found = _compared(key, before, held, after, is_from=roles.is_from)
            if not (found and is_flying):
                counts[f"{PREFIX}equal"] += equal
                return found
        return [Difference(NotCompared.BUSY, *key, is_older=True)]


def _compared(
    key: ColumnKey, before: _Versions, held: _Versions, after: _Versions, *, is_from: bool
) -> tuple[int, list[Difference]]:
    """How many versions are equal, and how the others differ. The latest one is another comparison's."""
    equal, found = 0, []
    for version in sorted(before.keys() | held.keys())[:-1]:
        ours, theirs = before.get(version) or after.get(version), held.get(version)
        if version not in before and ours is not None:
            continue  # it came while we looked
        wanted, given = (ours, theirs) if is_from else (theirs, ours)
        each = difference(key, wanted, given, is_older=True)
        if each is None:
            equal += 1
        else:
            found.append(each)
    return equal, found


def _history(store: CellStore, key: ColumnKey) -> dict[int, Cell]:
    """Every version, by its ref key."""
    store = store.using(deadline=READ_SECONDS)
    found: dict[int, Cell] = {}
    before: int | None = None
    while True:
        page = store.get_history(*key, before=before, limit=VERSIONS_PER_PAGE)
        found.update((cell.ref_key, cell) for cell in page)
        if len(page) < VERSIONS_PER_PAGE:
            return found
        before = page[-1].ref_key


def _read(checkpoint: Json) -> Place:
    assert isinstance(checkpoint, list)
    shard, number = checkpoint
    assert isinstance(shard, int)
    assert isinstance(number, int)
    return Place(shard, number)
