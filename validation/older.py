"""`OlderDiff`: versions below the latest, of a share of the rows, as far back as both stores know them.

A version never changes, so what both have is compared once and for all; and what one lacks may only be on its way
while the row has changes in flight. A store that knows that its history was cut says so: that is not compared (I12).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple
from uuid import UUID

from schemaless_core.canonical import Json
from schemaless_core.cell import Cell, ColumnKey
from schemaless_core.sharding import shard_of
from schemaless_core.store import CellStore
from validation.differences import Difference, NotCompared, difference
from validation.portions import Portion, counted, shards_of
from validation.reads import Incomparable
from validation.recheck import FIRST_PAUSE_SECONDS, TRIES
from validation.suspects import READ_SECONDS, InFlight, Roles

ROWS_PER_STEP = 200
VERSIONS_PER_PAGE = 100
#: Counts of older versions are not those of the latest.
PREFIX = "older_"
#: Of which a share is chosen, by a hash of the row key that has nothing to do with its shard.
_CHOICES = 10_007

_Versions = Mapping[int, Cell]


class _Place(NamedTuple):
    """The next rows of a part: of which shard, and after which row key."""

    shard: int
    after: UUID | None


class OlderDiff:
    """Compares the histories of rows that the authority has. A step is a page of them."""

    def __init__(
        self,
        roles: Callable[[], Roles],
        in_flight: InFlight,
        share: float,
        columns: Collection[str] | None = None,
        incomparable: Incomparable = (),
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self._roles = roles
        self._in_flight = in_flight
        self._share = share
        self._columns = columns
        self._incomparable = incomparable
        self._pause = pause

    def step(self, bounds: Json, checkpoint: Json) -> Portion:
        shards = shards_of(bounds)
        place = _Place(shards.start, None) if checkpoint is None else _read(checkpoint)
        authority = self._roles().authority.using(deadline=READ_SECONDS)
        page = authority.scan_rows(place.shard, place.after, ROWS_PER_STEP, self._columns)
        counts = Counter[str]()
        found: list[Difference] = []
        for row in page.rows:
            if shard_of(row.row_key, _CHOICES) < self._share * _CHOICES:
                counts[f"{PREFIX}rows"] += 1
                for name in row.cells:
                    found += self._of_column(ColumnKey(row.row_key, name), counts)
        counted(found, counts, PREFIX)
        following = _Place(place.shard, page.after) if page.after is not None else _Place(place.shard + 1, None)
        return Portion(_written(following), following.shard >= shards.stop, counts, found)

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


def _written(place: _Place) -> Json:
    return {"shard": place.shard, "after": None if place.after is None else str(place.after)}


def _read(checkpoint: Json) -> _Place:
    assert isinstance(checkpoint, dict)
    shard, after = checkpoint["shard"], checkpoint["after"]
    assert isinstance(shard, int)
    return _Place(shard, None if after is None else UUID(str(after)))
