"""The leader: the one worker that judges which workers are alive and which of them serves what.

Every worker steps. One that finds the leadership unclaimed, or still for `lease_seconds`, takes it. It judges by
counters and its own clock, and only of time that was watched: after a pause of the observer's own, or of the control
database, each worker first gets the chance to show that it is alive. Without a leader cells keep flowing; no lease
moves.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Generic, TypeVar

from schemaless_core.errors import SchemalessError
from schemaless_core.triggers.leases.assignment import plan
from schemaless_core.triggers.leases.coordinator import (
    Change,
    Coordinator,
    LeaderRecord,
    LeadershipLost,
    LeaseConfig,
    Survey,
    WorkerRecord,
)

logger = logging.getLogger(__name__)

#: Rounds in a row that may fail before a leader stops believing in itself.
FAILURES_MAX = 3

Key = TypeVar("Key", bound=Hashable)


class Stillness(Generic[Key]):
    """How long things have stood still, by the observer's clock. The first sight of a thing counts as a move.

    A look adds at most `gap_seconds`: what happened between looks is not known.
    """

    def __init__(self, clock: Callable[[], float], gap_seconds: float) -> None:
        self._clock = clock
        self._gap_seconds = gap_seconds
        self._looked_at = clock()
        self._seen: dict[Key, tuple[object, float]] = {}

    def look(self, marks: Mapping[Key, object]) -> dict[Key, float]:
        """Say for how many seconds each of these things has had its mark. What is absent is forgotten."""
        now = self._clock()
        passed = min(now - self._looked_at, self._gap_seconds)
        self._looked_at = now
        before, self._seen = self._seen, {}
        for key, mark in marks.items():
            seen = before.get(key)
            self._seen[key] = (mark, seen[1] + passed if seen is not None and seen[0] == mark else 0.0)
        return {key: seconds for key, (_mark, seconds) in self._seen.items()}


class Leader:
    """A worker's part in the leadership. Its owner calls `step` every `beat_seconds`, on one thread."""

    def __init__(
        self, coordinator: Coordinator, worker: str, config: LeaseConfig, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._coordinator = coordinator
        self._worker = worker
        self._config = config
        self._clock = clock
        self._term: int | None = None
        self._failures = 0
        #: The groups at their versions, the living and the overdue, when there was nothing to do.
        self._settled: object = None
        self._gap_seconds = config.lease_seconds / 2
        self._rival = Stillness[str](clock, self._gap_seconds)
        self._begin_to_watch()

    @property
    def is_leading(self) -> bool:
        """Whether it led when it last looked. What it decides is checked again where it is written."""
        return self._term is not None

    def step(self) -> None:
        """Do one round: renew or take the leadership when due, and assign when leading."""
        try:
            self._round()
        except LeadershipLost:
            self._lose("another worker took the leadership")
        except SchemalessError as error:
            self._failures += 1
            if self._failures == 1:  # the others of a row are no news
                extra = {"event": "leader.round_failed", "worker": self._worker}
                logger.warning("a round of the leadership failed", extra=extra)
            logger.debug("%s", error)
            if self._failures >= FAILURES_MAX:
                self._lose("its rounds fail")
        else:
            self._failures = 0

    def _round(self) -> None:
        record = self._coordinator.lead(self._worker, self._term)
        if self._term is None:
            self._stand(record)
        elif record is None or (record.owner, record.term) != (self._worker, self._term):
            raise LeadershipLost(self._worker, self._term)
        if self._term is not None:
            self._assign(self._term)

    def _stand(self, record: LeaderRecord | None) -> None:
        """Take the leadership if there is no leader, or if its counter stood still for too long."""
        still = self._rival.look({"leader": record})["leader"]
        if record is not None and record.owner is not None and still < self._config.lease_seconds:
            return
        self._term = self._coordinator.take_lead(self._worker, record)
        if self._term is not None:
            self._begin_to_watch()
            extra = {"event": "leader.taken", "worker": self._worker, "term": self._term}
            logger.info("this worker leads now", extra=extra)

    def _lose(self, reason: str) -> None:
        """Lead no more. The own record is then a rival's like any other: taken again only when it stands still."""
        if self._term is not None:
            extra = {"event": "leader.lost", "worker": self._worker, "term": self._term, "reason": reason}
            logger.warning("this worker leads no more", extra=extra)
        self._term, self._failures = None, 0
        self._rival = Stillness[str](self._clock, self._gap_seconds)

    def _assign(self, term: int) -> None:
        survey = self._coordinator.survey()
        dead = self._dead(survey.workers)
        live = {record.worker: record.groups for record in survey.workers if record not in dead}
        overdue = self._overdue(survey)
        situation = (survey.groups, live, overdue)
        if situation == self._settled and not dead:
            return
        changes = plan(survey, live, moves_max=self._config.moves_max, overdue=overdue)
        self._settled = None if changes else situation
        if changes or dead:
            # A transaction per group: no worker waits for thousands of leases.
            groups = groupby(changes, key=attrgetter("group"))
            parts = [list(some) for _group, some in groups] or [[]]
            applied = sum(self._coordinator.assign(self._worker, term, part, dead) for part in parts)
            self._tell(changes, dead, overdue, applied)

    def _dead(self, workers: Sequence[WorkerRecord]) -> list[WorkerRecord]:
        still = self._pulses.look({record.worker: record.counter for record in workers})
        return [record for record in workers if still[record.worker] >= self._config.lease_seconds]

    def _overdue(self, survey: Survey) -> set[tuple[str, int]]:
        """The hand-overs whose owners had their time."""
        under_way = {
            (lease.group, lease.shard): (lease.fence, lease.heir)
            for lease in survey.leases
            if lease.owner is not None and lease.heir is not None
        }
        still = self._handovers.look(under_way)
        return {key for key, seconds in still.items() if seconds >= self._config.handover_seconds}

    def _tell(
        self,
        changes: Sequence[Change],
        dead: Sequence[WorkerRecord],
        overdue: Collection[tuple[str, int]],
        applied: int,
    ) -> None:
        for record in dead:
            extra = {"event": "leader.worker_dead", "worker": record.worker, "host": record.host, "pid": record.pid}
            logger.warning("a worker is silent, its leases go to others", extra=extra)
        for group in sorted({group for group, _shard in overdue}):
            shards = sorted(shard for name, shard in overdue if name == group)
            extra = {"event": "leader.handover_forced", "group": group, "shards": shards}
            logger.warning("owners that do not let go lose their leases", extra=extra)
        if changes:
            given = sum(change.is_given for change in changes)
            extra = {"event": "leader.assigned", "given": given, "handovers": len(changes) - given, "applied": applied}
            logger.info("leases assigned", extra=extra)

    def _begin_to_watch(self) -> None:
        """A new leader has seen no worker yet: all count as alive."""
        self._pulses = Stillness[str](self._clock, self._gap_seconds)
        self._handovers = Stillness[tuple[str, int]](self._clock, self._gap_seconds)
        self._settled = None
