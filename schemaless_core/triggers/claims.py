"""`Claims`: the shards of one group in this process: claimed under their fences, saved under them, let go.

An offset is as the shard's own server has it. Where that says less than we told it, after a promotion or a restore,
or where a newer fence was shown, what is known here is hearsay: the shard is claimed anew, or dropped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime

from schemaless_core import metrics
from schemaless_core.calls.shardlog import ShardLog
from schemaless_core.cell.answers import Position, ShardPage
from schemaless_core.cell.standing import ShardHead, ShardStatus
from schemaless_core.config import DatastoreConfig
from schemaless_core.engine.groups import GroupStep, OffsetSeen
from schemaless_core.errors import PositionUnknown, SchemalessError
from schemaless_core.failpoints import reach
from schemaless_core.triggers.deaths import Deaths
from schemaless_core.triggers.group import Group
from schemaless_core.triggers.held import Held
from schemaless_core.triggers.leases.coordinator import Lease
from schemaless_core.triggers.offsets import Progress, is_mine
from schemaless_core.triggers.parking import Parking

logger = logging.getLogger(__name__)

#: After a page or a saving that failed, and after one that had nothing although there is something.
REST_SECONDS = 0.2
#: A hand-over that closes shards to owners waits for their offsets, and gives up after about so long.
HURRY_SECONDS = 3.0
#: Whose first cell is read for the age of the oldest one, at each heartbeat.
OLDEST_SHARDS_MAX = 64


class Claims:
    """What is held of one group. Used by the thread that serves it; two methods by its heartbeat, too."""

    def __init__(
        self,
        group: Group,
        progress: Progress,
        parking: Parking,
        deaths: Deaths,
        config: DatastoreConfig,
        clock: Callable[[], float],
    ) -> None:
        self._group = group
        self._progress = progress
        self._parking = parking
        self._deaths = deaths
        self._datastore = config.datastore
        self._config = config.triggers
        self._clock = clock
        #: Where the group's offsets began; empty: it is not known yet.
        self.start = ""
        #: When the group was registered, at the latest.
        self.registered_ms = 0
        self._missing_since: dict[int, float] = {}
        self.held: dict[int, Held] = {}
        #: Those of them that need anything; of thousands that are held, few do at a time.
        self.active: dict[int, Held] = {}
        #: Fences above our leases' own that servers have shown.
        self.outfenced: dict[int, int] = {}
        self._saved_at = clock()
        self._is_waiting = False

    def hold(self, leases: Iterable[Lease]) -> None:
        """Take over these shards and let go of all others. A new fence is shown to the shard's server first."""
        wanted = {lease.shard: lease for lease in leases}
        for shard in list(self.held):
            held, lease = self.held[shard], wanted.get(shard)
            if lease is None or lease.fence != held.lease.fence:
                self.drop(shard, "given away")
            else:
                held.lease = lease
                self.activate(held)
        new = {shard: lease for shard, lease in wanted.items() if shard not in self.held}
        if new:
            self._claim(new)

    def let_go(self, lease: Lease) -> None:
        """A shard was given to its heir."""
        held = self.held.get(lease.shard)
        if held is not None and held.lease.fence == lease.fence:
            self.drop(lease.shard, "handed over")

    def leaving(self) -> list[Lease]:
        """Leases that an heir waits for and that have nothing left to save."""
        return [
            held.lease for held in self.active.values() if held.is_leaving and held.in_flight is None and held.is_saved
        ]

    def note(self, heads: Mapping[int, ShardHead]) -> None:
        """Take note of what moved."""
        for shard, head in heads.items():
            if (held := self.held.get(shard)) is None:
                continue
            if held.is_open and head.state.status == ShardStatus.COPY.value:
                held.hurried_until = self._clock() + HURRY_SECONDS
            held.status = head.state.status
            if head.state.epoch > held.shard_epoch and held.in_flight is None:
                self.claim_anew([held], "its epoch changed")
            else:
                held.head = head.head
                self.activate(held)
        self._tell_waiting()

    def is_closed(self, held: Held) -> bool:
        """Whether puts that join the offset's commit cannot be made there: nothing is delivered until they can."""
        return self._group.is_transactional and not held.is_open

    def activate(self, held: Held) -> None:
        """Look after a shard from now on, if it needs anything."""
        if not held.is_idle:
            self.active[held.lease.shard] = held

    def rest(self) -> None:
        """Look after those that need nothing no more."""
        self.active = {shard: held for shard, held in self.active.items() if not held.is_idle}

    def blocking(self, rows: set[bytes]) -> set[bytes]:
        """Of rows with parked cells, those whose later cells wait."""
        return rows if self._group.parking == "row" else set()

    # What was reached is saved.

    def save(self, *, is_last: bool = False) -> None:
        """Save what was reached, each shard under its fence; let go of shards whose fence is not the newest."""
        now = self._clock()
        steps = {
            shard: held.step()
            for shard, held in self.active.items()
            if not held.is_saved and (is_last or held.save_not_before <= now)
        }
        if steps:
            self.advance(steps)
        for shard, held in self.active.items():
            metrics.lag_seen(self._group.name, shard, held.head - held.saved[1])
        self._saved_at = self._clock()

    def save_in_time(self) -> None:
        """Offsets are saved in bundles; at once where a hand-over, a parked cell or another worker waits for it."""
        now = self._clock()
        hurries = any(
            (held.is_leaving or held.parking or held.is_careful or now < held.hurried_until)
            and not held.is_saved
            and held.save_not_before <= now
            for held in self.active.values()
        )
        if hurries or now - self._saved_at >= self._config.checkpoint_seconds:
            self.save()

    def advance(self, steps: Mapping[int, GroupStep]) -> None:
        """Move these offsets, with what is parked beside them."""
        reach("triggers.before_advance")
        answers = self._progress.advance(self._group.name, steps)
        lost = [self.held[shard] for shard in steps if shard not in answers]
        for held in lost:
            held.save_not_before = self._clock() + REST_SECONDS
        if ready := [held for held in lost if held.in_flight is None]:
            self.claim_anew(ready, "its progress went back")
        for shard, answer in answers.items():
            held = self.held[shard]
            if isinstance(answer, SchemalessError):
                held.save_not_before = self._clock() + REST_SECONDS
            elif not is_mine(answer, steps[shard].fence):
                metrics.owner_fenced(self._group.name)
                self.drop(shard, "another worker has a newer fence")
            elif answer.state.epoch == held.shard_epoch:  # else by a server that is claimed anew at the next look
                self._saved(held, steps[shard])

    # Called by a thread that calls no functions: ours may be in one that never returns.

    def tell_lag(self, heads: Mapping[int, ShardHead]) -> None:
        """Say what is not delivered, as these heads show it."""
        for shard, held in list(self.held.items()):
            if (head := heads.get(shard)) is not None and head.head > held.saved[1]:
                held.head = max(held.head, head.head)
                metrics.lag_seen(self._group.name, shard, head.head - held.saved[1])

    def tell_oldest(self, log: ShardLog) -> None:
        """Say how old the oldest cell is that no offset has passed. Of many shards, of those that wait longest."""
        behind = [held for held in list(self.held.values()) if held.head > held.saved[1]]
        behind.sort(key=lambda held: held.served_at)
        places = {held.lease.shard: Position(self._datastore, *held.saved) for held in behind[:OLDEST_SHARDS_MAX]}
        pages = log.pages_each(places, 1) if places else {}
        firsts = [page.cells[0].created_at for page in pages.values() if isinstance(page, ShardPage) and page.cells]
        now = datetime.now(UTC)
        metrics.oldest_age(self._group.name, max(((now - at).total_seconds() for at in firsts if at), default=0.0))

    # Claims.

    def claim_astray(self) -> None:
        """A shard that is being delivered waits: what is settled meanwhile is settled under the claim it began with."""
        astray = [self.held[shard] for shard in self._progress.astray(self.held)]
        if ready := [held for held in astray if held.in_flight is None]:
            self.claim_anew(ready, "its progress went back")

    def claim_anew(self, astray: Sequence[Held], why: str) -> None:
        """Another server has them, which may know less than we told the former: of offsets, of parked cells."""
        for held in astray:
            self.drop(held.lease.shard, why)
        self._claim({held.lease.shard: held.lease for held in astray})

    def drop(self, shard: int, why: str) -> None:
        """Serve a shard no more; what was not saved of it is delivered again by its next owner."""
        del self.held[shard]
        self.active.pop(shard, None)
        metrics.lag_elsewhere(self._group.name, shard)
        metrics.trigger_shards(self._group.name, len(self.held))
        extra = {"event": "triggers.shard_dropped", "group": self._group.name, "shard": shard, "reason": why}
        logger.info("a shard goes elsewhere", extra=extra)

    def tell_beyond(self, shard: int, error: PositionUnknown) -> None:
        """Say that the offset lies beyond the log, as after a restore from an older backup."""
        extra = {"event": "triggers.offset_beyond", "group": self._group.name, "shard": shard}
        logger.error(error.message, extra=extra)

    def _claim(self, new: Mapping[int, Lease]) -> None:
        fences = {shard: lease.fence for shard, lease in new.items()}
        seen = self._progress.claim(self._group.name, fences)
        if lost := {shard: fences[shard] for shard in self._lost(seen)}:
            seen |= self._begin_again(lost)
        claimed = {}
        for shard, answer in seen.items():
            if isinstance(answer, SchemalessError) or answer.offset is None:
                continue  # its server is down, or has no offset: claimed again at the next beat
            if not is_mine(answer, new[shard].fence):
                self.outfenced[shard] = answer.offset.fence  # a newer lease, or a coordinator that forgot
                continue
            epoch, added_id, _fence = answer.offset
            if (epoch, added_id) > (answer.state.epoch, answer.head):  # it would pass over what is put next
                beyond = PositionUnknown(shard, epoch, added_id, answer.state.epoch, answer.head)
                self.tell_beyond(shard, beyond)
                continue
            status = answer.state.status
            held = Held(new[shard], answer.state.epoch, epoch, added_id, (epoch, added_id), answer.head, status)
            claimed[shard] = held
        rows = self._parking.rows_of(self._group.name, list(claimed)) if claimed else {}
        if claimed and self._calls_by_shard:
            self._deaths.claimed(self._group.name, claimed)
        for shard, held in claimed.items():
            if shard in rows:
                held.parked_rows = self.blocking(rows[shard])
                self.held[shard] = held
                self.activate(held)
        metrics.trigger_shards(self._group.name, len(self.held))

    def _lost(self, seen: Mapping[int, OffsetSeen | SchemalessError]) -> list[int]:
        """Shards that have had no offset for as long as a lease lasts.

        A group that is removed has none, and workers hear of that within a beat: its offsets are not begun again.
        """
        now = self._clock()
        missing = [
            shard for shard, answer in seen.items() if not isinstance(answer, SchemalessError) and answer.offset is None
        ]
        others = {shard: since for shard, since in self._missing_since.items() if shard not in seen}
        self._missing_since = others | {shard: self._missing_since.get(shard, now) for shard in missing}
        rest = self._config.lease_seconds
        return [shard for shard in missing if self.start and now - self._missing_since[shard] >= rest]

    def _begin_again(self, lost: Mapping[int, int]) -> dict[int, OffsetSeen | SchemalessError]:
        """Claim those whose offsets could be begun again."""
        # A fence begins at the registration, and is later than that where ZooKeeper lost the leases.
        since = {shard: min(fence, self.registered_ms) for shard, fence in lost.items()}
        try:
            begun = self._progress.begin_again(self._group.name, self.start, since)
        except SchemalessError as error:
            extra = {"event": "triggers.offset_not_begun", "group": self._group.name, "error": error.message}
            logger.warning("offsets could not be begun again", extra=extra)
            return {}
        if not begun:
            return {}
        lacking = {"event": "triggers.offset_lost", "group": self._group.name, "shards": len(begun)}
        logger.warning("offsets were lost with a primary, and begin again", extra=lacking)
        return self._progress.claim(self._group.name, {shard: lost[shard] for shard in begun})

    @property
    def _calls_by_shard(self) -> bool:
        """Whether it calls a function for cells of one shard, and may park them: no others are looked after."""
        return self._group.parking != "never" and not self._group.is_bundled

    def _tell_waiting(self) -> None:
        closed = sum(self.is_closed(held) and held.has_more for held in self.active.values())
        if bool(closed) != self._is_waiting:
            self._is_waiting = bool(closed)
            extra = {"event": "triggers.waits_for_authority", "group": self._group.name, "shards": closed}
            said = "waits until this store is the authority" if closed else "goes on: this store is the authority"
            logger.info("a transactional trigger %s", said, extra=extra)

    def _saved(self, held: Held, step: GroupStep) -> None:
        held.saved = step.epoch, step.added_id
        held.has_settled = False
        parked = {cell.added_id for cell in step.parked}
        held.parking = [cell for cell in held.parking if cell.added_id not in parked]
