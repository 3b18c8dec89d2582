"""`Arrivals`: what has reached the mirror, asked of the stores: for cohorts (how far behind) and for rechecks.

Forward the queue says it, backwards the offsets of the reverse mirror; an index has entries up to its group's offsets,
which only rechecks wait for: under load a group is always a little behind.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import NamedTuple
from uuid import UUID

from schemaless_core.cell.answers import Position
from schemaless_core.datastore import Datastore
from schemaless_core.engine.groups import Offset, OffsetSeen
from schemaless_core.errors import SchemalessError, Unavailable
from tripstore.backends.postgres.handover.undelivered import Undelivered
from tripstore.backends.schemaless.shards import REVERSE_GROUP
from tripstore.engines.validation.reads import Read
from tripstore.engines.validation.waiting import Waiting
from tripstore.facade.known import Known
from tripstore.facade.lag import Place
from tripstore.handover.authority import Backend

#: How long one recheck waits for the mirror; it tries several times.
WAIT_SECONDS = 0.5
#: Between two looks, at first; then twice as long each time. A mirror that is late is not helped by questions.
PAUSE_SECONDS = 0.005

#: Of a group that is not in a shard yet.
_BEGINNING = Offset(1, 0, 0)


class Behind(NamedTuple):
    """How far the mirror is behind, and which of the rows that were asked for it lacks."""

    seconds: float
    missing: Collection[UUID]


class Arrivals:
    """Of one process."""

    def __init__(
        self,
        known: Known,
        undelivered: Undelivered,
        datastore: Datastore,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._known = known
        self._undelivered = undelivered
        self._datastore = datastore
        self._clock = clock

    def behind(self, authority: Backend, rows: Collection[UUID]) -> Behind:
        """Look at the mirror now."""
        if authority is Backend.LEGACY:
            return Behind(self._undelivered.oldest_seconds(), self._undelivered.of_rows(rows))
        late = self._late(REVERSE_GROUP)
        # After the offsets: what they have passed was parked by then, or is there.
        parked = self._parked({self._datastore.shard_of(row) for row in rows} - late.keys())
        missing = [row for row in rows if self._datastore.shard_of(row) in late or row in parked]
        return Behind(self._age(late), missing)

    def place(self, authority: Backend) -> Place:
        """Where the mirror has everything that is committed now."""
        return self._undelivered.mark() if authority is Backend.LEGACY else self._heads(REVERSE_GROUP, self._shards)

    def left_behind(self, authority: Backend, place: Place) -> Collection[UUID] | None:
        """The rows of which the mirror has left something behind on its way to a place; None: it is not there yet."""
        if isinstance(place, int):
            assert authority is Backend.LEGACY
            return () if self._undelivered.is_empty_up_to(place) else None
        return self._parked(place, upto=place) if self._has_reached(REVERSE_GROUP, place) else None

    def arriving(self, read: Read) -> Waiting[bool]:
        """For rechecks: whether all that this read could see by now is in the mirror, and indexed."""
        sight = self._known.sight
        if sight is None:
            return False
        if not read.waits_for_mirror:
            return True
        until = self._clock() + WAIT_SECONDS
        try:
            is_carried = yield from self._is_carried(sight.authority.backend, read, until)
            return is_carried and (yield from self._is_indexed(read, until))
        except SchemalessError:
            return False  # the servers did not answer: it is unknown

    def _is_carried(self, authority: Backend, read: Read, until: float) -> Waiting[bool]:
        if authority is Backend.STORE:
            shards = {self._datastore.shard_of(row) for row in read.row_keys}
            return (yield from self._has_passed(REVERSE_GROUP, shards or self._shards, until))
        if read.row_keys:
            return not self._undelivered.of_rows(read.row_keys)
        mark = self._undelivered.mark()
        return (yield from self._wait(lambda: self._undelivered.is_empty_up_to(mark), until))

    def _is_indexed(self, read: Read, until: float) -> Waiting[bool]:
        """Every version's group, the one that answers included."""
        name = read.arguments.get("index")
        if name is None:
            return True
        versions = self._datastore.indexes.catalogue.kept()
        groups = [version.group_name for version in versions if version.name == name]
        for group in groups:
            if not (yield from self._has_passed(group, self._shards, until)):
                return False
        return True

    def _has_passed(self, group: str, shards: Collection[int], until: float) -> Waiting[bool]:
        """Whether a group comes to where the shards' heads are now."""
        heads = self._heads(group, shards)
        return (yield from self._wait(lambda: self._has_reached(group, heads), until))

    def _heads(self, group: str, shards: Collection[int]) -> dict[int, int]:
        return {shard: seen.head for shard, seen in self._seen(group, shards).items()}

    def _has_reached(self, group: str, heads: Mapping[int, int]) -> bool:
        found = self._seen(group, heads)
        return all((seen.offset or _BEGINNING).added_id >= heads[shard] for shard, seen in found.items())

    def _parked(self, shards: Collection[int], upto: Mapping[int, int] | None = None) -> set[UUID]:
        """Rows of which the reverse mirror has set a cell aside: no offset waits for it."""
        found = self._datastore.triggers.parking.rows_of(REVERSE_GROUP, list(shards), upto)
        if found.keys() != set(shards):
            raise Unavailable("It is unknown what the reverse mirror has parked.", hint="Look at the servers.")
        return {UUID(bytes=row_key) for rows in found.values() for row_key in rows}

    @property
    def _shards(self) -> range:
        return range(self._datastore.config.shards)

    def _wait(self, is_done: Callable[[], bool], until: float) -> Waiting[bool]:
        pause = PAUSE_SECONDS
        while not is_done():
            if self._clock() >= until:
                return False
            yield pause
            pause *= 2
        return True

    def _late(self, group: str) -> dict[int, Position]:
        """The shards whose head the group has not reached, and where it is there."""
        seen = self._seen(group, self._shards)
        offsets = {shard: each.offset or _BEGINNING for shard, each in seen.items()}
        name = self._datastore.config.datastore
        return {
            shard: Position(name, offset.epoch, offset.added_id)
            for shard, offset in offsets.items()
            if offset.added_id < seen[shard].head
        }

    def _age(self, late: Mapping[int, Position]) -> float:
        """How long the oldest cell that a group has not passed has been there."""
        if not late:
            return 0.0
        pages = self._datastore.as_copier().get_cells_for_shards(late, 1)
        firsts = [cell.created_at for page in pages.values() for cell in page.cells if cell.created_at is not None]
        return max(0.0, (datetime.now(UTC) - min(firsts)).total_seconds()) if firsts else 0.0

    def _seen(self, group: str, shards: Collection[int]) -> dict[int, OffsetSeen]:
        found: dict[int, OffsetSeen] = {}
        for shard, seen in self._datastore.triggers.offsets.find(group, list(shards)).items():
            if isinstance(seen, SchemalessError):
                raise Unavailable(f"It is unknown how far {group} is.", hint="Look at the servers.") from seen
            found[shard] = seen
        return found
