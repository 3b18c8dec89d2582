"""`ReverseProgress`: how far the reverse mirror is. Postgres says it; the offset beside each shard is a copy.

Everything up to a position stands in Postgres. So it stays below the first parked cell; the offset passes that, with
the parked cell beside it. What lies between the two is delivered or parked as long as Postgres is the one on which
that was done, which its timeline says. Where Postgres is behind its copy otherwise, it went back: the offset goes back
to the position, with a new fence, and all that follows is looked at again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar

from schemaless_core.deadline import Deadline
from schemaless_core.engine.groups import GroupStep, OffsetSeen
from schemaless_core.errors import SchemalessError
from schemaless_core.failpoints import reach
from schemaless_core.triggers.offsets import Offsets, is_mine
from schemaless_core.triggers.parking import Parking
from tripstore.backends.postgres.handover import applied
from tripstore.backends.postgres.handover.applied import Applied, Move, Place
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.backends.postgres.wire.wire import LegacyConnection
from tripstore.migration.mirror.look import LookFailed

logger = logging.getLogger(__name__)

T = TypeVar("T")

SECONDS = 2.0
#: How often a Postgres is looked for that is behind, while no position moves.
LOOK_SECONDS = 1.0
#: An epoch of no row: two rows were looked at, and by which of them a cell was passed is not known.
_SEVERAL = -1


class Looked:
    """When the authority row was opened that was looked at for the cells of each shard, since it was claimed.

    A move forgets nothing: other cells of the shard may be on their way to Postgres meanwhile, by the same look.
    """

    def __init__(self) -> None:
        self._opened_at: dict[int, int] = {}

    def note(self, shards: Iterable[int], epoch: int) -> None:
        for shard in shards:
            if self._opened_at.setdefault(shard, epoch) != epoch:
                self._opened_at[shard] = _SEVERAL

    def find(self, shard: int) -> int | None:
        """None: nothing of it was delivered."""
        return self._opened_at.get(shard)

    def forget(self, shard: int) -> None:
        self._opened_at.pop(shard, None)


class ReverseProgress:
    """The `Progress` of one consumer of the reverse mirror. Used by its thread."""

    def __init__(
        self,
        database: LegacyDatabase,
        offsets: Offsets,
        parked: Parking,
        looked: Looked,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._offsets = offsets
        self._parked = parked
        self._looked = looked
        self._clock = clock
        self._looked_at = clock()
        #: The rows of claimed shards, with the timeline of the claim.
        self._known: dict[int, Applied] = {}
        #: Shards that have parked cells.
        self._parking: set[int] = set()

    def claim(self, group: str, fences: Mapping[int, int]) -> dict[int, OffsetSeen | SchemalessError]:
        """Show the fences. The timeline is read before anything is delivered under them."""
        seen = self._offsets.claim(group, fences)
        copies = {
            shard: (answer.offset.epoch, answer.offset.added_id)
            for shard, answer in seen.items()
            if not isinstance(answer, SchemalessError) and answer.offset is not None and is_mine(answer, fences[shard])
        }
        if not copies:
            return seen
        try:
            return seen | self._claimed(group, copies)
        except SchemalessError as error:
            extra = {"event": "reverse.not_claimed", "shards": len(copies), "reason": error.message}
            logger.warning("the reverse mirror does not know where Postgres is, and asks again", extra=extra)
            return seen | dict.fromkeys(copies, error)

    def advance(self, group: str, steps: Mapping[int, GroupStep]) -> dict[int, OffsetSeen | SchemalessError]:
        """Postgres first: an offset that is ahead of its position would say more than Postgres has."""
        try:
            moves = self._moves(group, steps)
            moved = self._run(lambda connection: applied.move(connection, moves))
        except SchemalessError as error:
            return dict.fromkeys(steps, error)
        reach("reverse.moved")
        for shard in moved:
            self._known[shard] = Applied(moves[shard].to, moves[shard].timeline)
        ours = {shard: step for shard, step in steps.items() if shard in moved}
        return self._offsets.advance(group, ours) if ours else {}

    def begin_again(self, group: str, start: str, since: Mapping[int, int]) -> Collection[int]:
        return self._offsets.begin_again(group, start, since)

    def astray(self, shards: Collection[int]) -> Collection[int]:
        """All of them when Postgres has other positions than it had: it went back, whatever its timeline says."""
        if not shards or self._clock() - self._looked_at < LOOK_SECONDS:
            return ()
        self._looked_at = self._clock()
        try:
            timeline, total = self._run(lambda connection: applied.look(connection, shards))
        except SchemalessError:
            return ()  # nothing is delivered meanwhile
        known = [self._known[shard] for shard in shards]
        if total == sum(each.place[1] for each in known) and all(each.timeline == timeline for each in known):
            return ()
        return list(shards)

    def _claimed(self, group: str, copies: Mapping[int, Place]) -> dict[int, OffsetSeen | SchemalessError]:
        """What differs from the offsets as they are: shards that have to go back, or cannot be claimed now."""
        first = self._parked.first_of(group, list(copies))
        rows, timeline = self._run(lambda connection: applied.begin(connection, copies))
        most = {shard: _below(copies[shard], parked) for shard, parked in first.items() if shard in rows}
        known = most.keys() - self._not_lowered(rows, most)
        answers: dict[int, OffsetSeen | SchemalessError] = {shard: _unknown(shard) for shard in copies.keys() - known}
        back: dict[int, Place] = {}
        for shard in known:
            place, parked = min(rows[shard].place, most[shard]), first[shard]
            self._note(shard, Applied(place, timeline), has_parked=parked is not None)
            if place < copies[shard] and (parked is None or rows[shard].timeline != timeline):
                back[shard] = place
        return answers | self._went_back(group, back) if back else answers

    def _not_lowered(self, rows: Mapping[int, Applied], most: Mapping[int, Place]) -> set[int]:
        """Positions that are ahead of their offsets and that another one has moved meanwhile; the others go back."""
        ahead = {shard: (rows[shard].place, place) for shard, place in most.items() if place < rows[shard].place}
        return ahead.keys() - self._run(lambda connection: applied.lower(connection, ahead)) if ahead else set()

    def _note(self, shard: int, known: Applied, *, has_parked: bool) -> None:
        self._known[shard] = known
        self._looked.forget(shard)
        if has_parked:
            self._parking.add(shard)
        else:
            self._parking.discard(shard)

    def _went_back(self, group: str, places: Mapping[int, Place]) -> dict[int, OffsetSeen | SchemalessError]:
        """The fences that were claimed are not the newest any more: the coordinator gives new ones."""
        extra = {"event": "reverse.postgres_behind", "shards": len(places)}
        logger.warning("Postgres is behind what it had: the reverse mirror goes back to where it is", extra=extra)
        reach("reverse.before_reset")
        self._offsets.reset(group, places)
        return self._offsets.find(group, list(places))

    def _moves(self, group: str, steps: Mapping[int, GroupStep]) -> dict[int, Move]:
        self._parking.update(shard for shard, step in steps.items() if step.parked)
        asked = [shard for shard in steps if shard in self._parking]
        first = self._parked.first_of(group, asked) if asked else {}
        if len(first) < len(asked):
            raise _unknown(next(shard for shard in asked if shard not in first))
        moves = {}
        for shard, step in steps.items():
            parked = [cell.added_id for cell in step.parked]
            if (there := first.get(shard)) is not None:
                parked.append(there)
            elif not parked:
                self._parking.discard(shard)
            known = self._known[shard]
            to = _below((step.epoch, step.added_id), min(parked, default=None))
            moves[shard] = Move(known.place, max(known.place, to), known.timeline, self._looked.find(shard))
        return moves

    def _run(self, verb: Callable[[LegacyConnection], T]) -> T:
        return self._database.run(verb, Deadline(SECONDS))


def _below(place: Place, parked: int | None) -> Place:
    """The same, but below a parked cell."""
    return place if parked is None else min(place, (place[0], parked - 1))


def _unknown(shard: int) -> LookFailed:
    return LookFailed(f"What is parked in shard {shard} is not known now.", hint="It is asked again.")
