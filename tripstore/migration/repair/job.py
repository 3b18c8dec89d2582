"""`RepairRunner`: serves a repair job part by part; any number of them may, in as many processes.

A part is some two thousand targets, so that a shard has many of them. Its counts and what was left in it are saved
with its end, in one transaction (I11): a part that was begun and not saved is done again, and finds most of its
targets equal. The last part is the end, which waits for all others: indexes and the diff's findings are looked at
when the cells are right, and only then it is done. It is saved after each index; a worker that is told to stop gives
it back before the next one.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar
from uuid import uuid4

from schemaless_core.cell.canonical import Json
from schemaless_core.control.jobs.held_part import HeldPart
from schemaless_core.control.jobs.jobs import HAS_END, Finding, Job, Jobs, JobState, PartLost
from schemaless_core.errors import SchemalessError, StaleEpoch, Unavailable
from schemaless_core.failpoints import reach
from tripstore.engines.validation.diff.runner import LEFT_OUT
from tripstore.engines.validation.repair import Action
from tripstore.handover.authority import Backend
from tripstore.migration.repair.ending import Ended, RepairEnding, from_checkpoint, to_checkpoint
from tripstore.migration.repair.repair import Repairing, TargetOutcome, counted
from tripstore.migration.repair.targets import Target, from_bounds, to_bounds

T = TypeVar("T")

logger = logging.getLogger(__name__)

KIND = "repair"
TARGETS_PER_PART = 2000
#: The bounds of the last part.
END = "end"
LEASE_SECONDS = 20.0
#: Times that a part is tried whose stores did not answer, and the pause before the second.
TRIES = 5
PAUSE_SECONDS = 0.2
#: How often a runner without a part looks for one that another has left.
LOOK_SECONDS = 0.05


def begin(
    jobs: Jobs,
    targets: Sequence[Target],
    *,
    authority: Backend,
    source: str,
    may_mend_authority: bool = False,
    indexes: Sequence[str] = (),
    left_out: int = 0,
) -> Job:
    """A job that repairs these, as they were found at this authority, and indexes after the cells.

    A diff may have found more than it kept: what is left out is not repaired, and the job says so.
    """
    firsts = range(0, len(targets), TARGETS_PER_PART)
    parts = [*(to_bounds(targets[n : n + TARGETS_PER_PART]) for n in firsts), END]
    spec: dict[str, Json] = {
        "authority": authority.value,
        "of": source,
        "estimate": len(targets),
        "mend_authority": may_mend_authority,
        "indexes": list(indexes),
        LEFT_OUT: left_out,
        "is_partial": True,
        HAS_END: True,
    }
    return jobs.create(KIND, spec, parts)


class RepairRunner:
    """One worker of one job."""

    def __init__(
        self,
        jobs: Jobs,
        job: str,
        repairing: Repairing,
        ending: RepairEnding,
        worker: str | None = None,
        sleep: Callable[[float], object] = time.sleep,
        lease_seconds: float = LEASE_SECONDS,
        saved: Callable[[Counter[Action]], object] = lambda _actions: None,
    ) -> None:
        self._jobs = jobs
        self._job = job
        self._repairing = repairing
        self._ending = ending
        self._worker = worker or f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"
        self._sleep = sleep
        self._lease_seconds = lease_seconds
        #: Hears what was done for each part, once that is saved.
        self._saved = saved
        #: What this worker did. A worker that was killed before saving did more.
        self.actions = Counter[Action]()

    def run(self, stop: threading.Event) -> JobState:
        """Serve the job until it is done, does not run any more, or one is told to stop, after the part at hand.

        Of the end after the index at hand: the part is given back, and goes on there.
        """
        try:
            while not stop.is_set():
                if self.serve_part(stop):
                    continue
                state = self._jobs.state(self._job)
                if state is not JobState.RUNNING:
                    return state
                stop.wait(LOOK_SECONDS)
            return self._jobs.state(self._job)
        finally:
            with suppress(SchemalessError):
                self._jobs.leave(self._job, self._worker)

    def serve_part(self, stop: threading.Event | None = None) -> bool:
        """Claim a part and do it; False: there is none to be had."""
        part = self._jobs.claim(self._job, self._worker, self._lease_seconds)
        if part is None:
            return False
        held = HeldPart(self._jobs, part, self._worker, self._lease_seconds)
        try:
            reach("repair.claimed")
            if part.bounds == END:
                self._end(held, stop or threading.Event())
            else:
                self._serve(held)
        except PartLost:
            extra = {"event": "repair.part_lost", "job": self._job, "part": part.number}
            logger.warning("another worker has the part by now", extra=extra)
        except BaseException:
            held.give_back()
            raise
        return True

    def _serve(self, held: HeldPart) -> None:
        targets, begun = from_bounds(held.part.bounds), time.monotonic()
        with held.kept_alive():
            outcomes = self._patiently(lambda: self._repairing.repair(targets))
        counts = counted(outcomes)
        findings = [finding for each in outcomes if (finding := _finding(each)) is not None]
        reach("repair.before_save")
        self._patiently(lambda: held.save(True, counts, findings, is_done=True))
        reach("repair.saved")
        actions = Counter(action for each in outcomes for action in each.done)
        self.actions.update(actions)
        self._saved(actions)
        extra = {"event": "repair.part_saved", "job": self._job, "part": held.part.number, **counts}
        logger.info("a part of a repair is saved", extra=extra)
        self._tell(len(targets) / max(time.monotonic() - begun, 1e-6))

    def _end(self, held: HeldPart, stop: threading.Event) -> None:
        """The cells are right, or left to a person: what goes with them, then the job is done. Twice is fine."""
        self._tell(0.0)
        reach("repair.before_end")
        made = from_checkpoint(held.part.checkpoint).indexes
        for name in self._ending.indexes[len(made) :]:
            if stop.is_set() or not held.may_go_on:
                break
            with held.kept_alive():
                made = [*made, self._patiently(partial(self._ending.rebuild, name))]
            reach("repair.rebuilt")
            self._patiently(partial(held.save, to_checkpoint(Ended(made)), {}, is_done=False))
            reach("repair.index_saved")
        if stop.is_set() or not held.may_go_on:
            held.give_back()
            return
        with held.kept_alive():
            ended = Ended(made, self._patiently(self._ending.recheck))
        reach("repair.rechecked")
        self._patiently(lambda: held.save(to_checkpoint(ended), {}, is_done=True))
        reach("repair.ended")

    def _tell(self, rate: float) -> None:
        """Note the rate for the commands that show progress; that the control database is down is no matter."""
        with suppress(SchemalessError):
            self._jobs.tell(self._job, self._worker, {"rate": round(rate, 1), "throttle": None})

    def _patiently(self, work: Callable[[], T]) -> T:
        """All of it may be repeated."""
        for n in range(TRIES):
            try:
                return work()
            except (Unavailable, StaleEpoch) as error:
                if n == TRIES - 1:
                    raise
                extra = {"event": "repair.repeated", "job": self._job, "reason": error.message}
                logger.warning("a part of a repair is tried again", extra=extra)
                self._sleep(PAUSE_SECONDS * 2**n)
        raise AssertionError("the last try returns or raises")


def _finding(outcome: TargetOutcome) -> Finding | None:
    """What a person has to see."""
    if outcome.is_equal:
        return None
    target, last = outcome.target, outcome.last
    kind = "left" if outcome.is_left else "busy"
    body: dict[str, Json] = {"why": _why(outcome), "next": last.action.value}
    return Finding(kind, target.row_key, target.column_name, last.key.ref_key, body)


def _why(outcome: TargetOutcome) -> str:
    return outcome.last.why if outcome.refusal is None else outcome.refusal.message
