"""`FollowRunner`: follows the datastore that leads until it is stopped, or this one leads.

Any number of processes may run it: one follows, and the others take over when it dies.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeVar

from schemaless_core import metrics
from schemaless_core.backups.patient import LEASE_SECONDS, PatientWorker
from schemaless_core.cell.canonical import Json
from schemaless_core.control.jobs.held_part import HeldPart
from schemaless_core.control.jobs.jobs import Jobs
from schemaless_core.control.jobs.records import Part
from schemaless_core.errors import LedElsewhere, SchemalessError, StaleEpoch, Unavailable
from schemaless_core.failpoints import reach
from schemaless_core.replication.bringing import Bringing
from schemaless_core.replication.following import LogFollowing, RoundSeen, WaitingThere
from schemaless_core.replication.ports import ReturnPorts, StandbyState
from schemaless_core.replication.record import StandbyRecord
from schemaless_core.replication.steps import StandbyStop, StandbyStopped, come_back
from schemaless_core.steps import run

logger = logging.getLogger(__name__)

T = TypeVar("T")

KIND = "replicate"
#: Between two saves, two looks at what stands beside the logs, two looks at the record, two rounds without news.
SAVE_SECONDS = 2.0
BESIDE_SECONDS = 10.0
#: While it looks at what stands beside the logs, no cell is copied: as many times as long it copies cells then.
BESIDE_SHARE = 10.0
LOOK_SECONDS = 1.0
IDLE_SECONDS = 0.1
#: Between two rounds of which the first one found no answer.
SILENT_SECONDS = 1.0


class FollowStopped(Unavailable):
    """The process is to end while it waits for replicas."""

    def __init__(self) -> None:
        super().__init__("It is to follow no more.")


class FollowRunner(PatientWorker):
    """One worker of one job."""

    def __init__(
        self, jobs: Jobs, job: str, worker: str, record: StandbyRecord, following: LogFollowing, bringing: Bringing
    ) -> None:
        super().__init__(jobs, job, worker, LEASE_SECONDS)
        self._record = record
        self._following = following
        following.hears_by(self._rests)
        self._bringing = bringing
        self._whole_until: datetime | None = None
        self._behind = 0
        self._waiting: WaitingThere | None = None
        self._copied = 0

    def _serve(self, held: HeldPart) -> None:
        if not self._come_back(held):
            return
        saved = beside = looked = float("-inf")
        while self._may_go_on(held):
            now = time.monotonic()
            if now - looked > LOOK_SECONDS:
                if not self._follows(held):
                    return
                looked = now
            with held.kept_alive():
                seen = self._heard(self._following.round)
                if seen is not None:
                    self._note(seen)
                if seen is not None and now > beside:
                    begun = time.monotonic()
                    self._heard(self._following.beside)
                    self._waiting = self._heard(self._following.waiting) or self._waiting
                    ended = time.monotonic()
                    beside = ended + max(BESIDE_SECONDS, BESIDE_SHARE * (ended - begun))
            self._measure()
            if now - saved > SAVE_SECONDS:
                self._save(held)
                saved = now
            if seen is None or not seen.cells:
                self._is_stopped.wait(SILENT_SECONDS if seen is None else IDLE_SECONDS)
        self._tried(lambda: self._save(held))

    def _come_back(self, held: HeldPart) -> bool:
        """First it brings what it alone has. Before that no copy is cut."""
        while self._may_go_on(held):
            with held.kept_alive():
                ended = run(come_back(ReturnPorts(self._record, self._bringing)))
            count = self._bringing.count
            if not isinstance(ended, StandbyStopped):
                reach("replicate.followed")
                counts = {"brought": count.brought, "conflicts": count.conflicts} if count.cells else {}
                self._tried(lambda counts=counts: held.save(held.part.checkpoint, counts, is_done=False))  # type: ignore[misc]  # bound at once
                return True
            if ended.why is StandbyStop.NO_STANDBY:
                return self._follows(held)
            if ended.why is StandbyStop.FOLLOWS_ANOTHER:
                raise LedElsewhere
            if (silence := self._bringing.silence) is not None:
                self._waits(silence)
            self._is_stopped.wait(SILENT_SECONDS)
        return False

    def _follows(self, held: HeldPart) -> bool:
        """Whether it is this job that follows; else its part is done."""
        standby = self._tried(self._record.find).standby
        # By force it leads with what it has: it may have more than the other one, which must not be cut.
        follows = standby.state is StandbyState.FOLLOWS or (
            standby.state is StandbyState.CLOSING and not standby.is_forced
        )
        if follows and standby.job == self._job:
            return True
        self._tried(lambda: held.save(held.part.checkpoint, {}, is_done=True))
        extra = {"event": "replicate.ended", "job": self._job, "state": standby.state.value}
        logger.info("a datastore follows no more", extra=extra)
        return False

    def _heard(self, work: Callable[[], T]) -> T | None:
        """None: the other one did not answer, and is asked again for ever."""
        try:
            return work()
        except FollowStopped:
            return None
        except (Unavailable, StaleEpoch) as error:
            self._following.look_again()
            self._waits(error)
            return None

    def _rests(self) -> None:
        if self._is_stopped.is_set():
            raise FollowStopped

    def _note(self, seen: RoundSeen) -> None:
        self._whole_until, self._behind = seen.whole_until, seen.behind
        self._copied += seen.cells

    def _measure(self) -> None:
        if self._whole_until is not None:
            metrics.replication_lag(self._behind, (datetime.now(UTC) - self._whole_until).total_seconds())

    def _save(self, held: HeldPart) -> None:
        copied, self._copied = self._copied, 0
        until = None if self._whole_until is None else self._whole_until.isoformat()
        checkpoint: dict[str, Json] = {"behind": self._behind, "whole_until": until}
        if (waiting := self._waiting) is not None:
            since = None if waiting.since is None else waiting.since.isoformat()
            checkpoint |= {"buffered": waiting.cells, "buffered_since": since}
        held.save(checkpoint, {"rows": copied}, is_done=False)
        reach("replicate.saved")
        self._tell(copied / SAVE_SECONDS)

    def _waits(self, error: SchemalessError) -> None:
        extra = {"event": "replicate.waits", "job": self._job, "reason": error.message}
        logger.warning("the datastore that leads is asked again in a moment", extra=extra)

    def _lost(self, part: Part) -> None:
        extra = {"event": "replicate.part_lost", "job": self._job, "part": part.number}
        logger.warning("another process follows by now", extra=extra)
