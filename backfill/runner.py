"""`Runner`: serves one job for one worker: claim a part, copy a chunk, save it, and so on, until nothing is left.

Whatever happens to the process, others see it between two chunks: one counts when it is saved, and is copied again by
the next worker of the part when it is not. Asked to stop, it finishes the chunk at hand.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TypeVar

from schemaless_core.cell.canonical import Json
from schemaless_core.control.jobs.commands import job_command
from schemaless_core.control.jobs.records import Job, JobState, PartLost
from schemaless_core.control.jobs.served import ServedParts
from schemaless_core.errors import ControlUnavailable, InvalidRequest, SchemalessError, StaleEpoch, Unavailable
from schemaless_core.failpoints import reach
from tripstore.engines.backfill import metrics
from tripstore.engines.backfill.chunks import ChunkSize
from tripstore.engines.backfill.errors import CannotCopy, GaveUp, MustWait
from tripstore.engines.backfill.held import HeldCopy, JobStore
from tripstore.engines.backfill.limit_news import HeldUp, LimitNews
from tripstore.engines.backfill.source import Copied, Copying
from tripstore.engines.backfill.speed import Speed
from tripstore.engines.backfill.throttle import Leave, Pause, Throttle

T = TypeVar("T")

logger = logging.getLogger(__name__)

#: Pauses after failures double from the one to the other.
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.1, 10.0
#: At one go: a waiting worker looks after each whether it is to stop, and keeps its lease.
TICK_SECONDS = 1.0


class Ending(StrEnum):
    """Why a runner has nothing more to do."""

    DONE = "done"  #: The job is.
    PAUSED = "paused"  #: An operator paused the job, or it cannot go on before something is changed.
    CANCELLED = "cancelled"  #: An operator cancelled it.
    STOPPED = "stopped"  #: This runner was asked to; the job can be resumed.


@dataclass(frozen=True, slots=True)
class CopyRunnerSettings:
    """How a worker goes about it."""

    #: How long a part stays with a worker that died; renewed by every save.
    lease_seconds: float = 30.0
    #: Of the cells that were written, to be read once more and compared.
    verify_share: float = 0.01
    #: Without a chunk that gets through, throttled time apart, it gives up after so long; None: never.
    patience_seconds: float | None = 300.0
    #: Between two looks while others hold all parts.
    idle_seconds: float = 0.5
    #: Between two words about its progress.
    tell_seconds: float = 1.0


class Runner:
    """One worker's. Any thread may call `stop`, and so may a signal handler."""

    def __init__(
        self,
        jobs: JobStore,
        copying: Copying,
        job: Job,
        worker: str,
        *,
        chunks: ChunkSize | None = None,
        throttle: Throttle | None = None,
        settings: CopyRunnerSettings = CopyRunnerSettings(),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._jobs = jobs
        self._copying = copying
        self._job = job
        self._worker = worker
        self._chunks = chunks or ChunkSize()
        self._throttle = throttle or Throttle()
        self._limits = LimitNews(job.id, clock)
        self._settings = settings
        self._clock = clock
        self._is_stopped = threading.Event()
        self.served = ServedParts()
        self._speed = Speed(clock)
        self._told_at: float | None = None
        self._failures = 0
        self._went_on_at = clock()

    def stop(self) -> None:
        """Finish the chunk at hand, give the part back, and end."""
        self._is_stopped.set()

    def run(self) -> Ending:
        """Serve the job until it is done, or cannot go on."""
        try:
            while (ending := self._ending()) is None:
                if not self._serve_part():  # others hold what is left: one of them may die
                    self._is_stopped.wait(self._settings.idle_seconds)
            return ending
        finally:
            self._leave()

    def serve_some(self, parts_max: int) -> None:
        """Serve so many parts at most, and end where there is none to be had, or at `stop`."""
        try:
            while self._ending() is None and self.served.parts < parts_max and self._serve_part():
                pass
        finally:
            self._leave()

    def _serve_part(self) -> bool:
        """Whether there was one to be had."""
        part = self._with_patience(lambda: self._jobs.claim(self._job.id, self._worker, self._lease))
        if part is None:
            return False
        held = HeldCopy(self._jobs, part, self._worker, self._lease, self._clock)
        try:
            self._serve(held)
        finally:
            self.served.note(held)
        return True

    def _leave(self) -> None:
        self._throttle.close()
        with suppress(SchemalessError):
            self._jobs.leave(self._job.id, self._worker)

    def _ending(self) -> Ending | None:
        if self._is_stopped.is_set():
            return Ending.STOPPED
        state = self._with_patience(lambda: self._jobs.state(self._job.id))
        return None if state is None or state is JobState.RUNNING else Ending(state.value)

    def _serve(self, held: HeldCopy) -> None:
        """Copy a part, as far as it may."""
        part = held.part
        try:
            reach("backfill.claimed")
            while held.may_go_on and not self._is_stopped.is_set():
                if self._is_throttled(held, self._throttle.pause):
                    continue
                leave = self._throttle.leave
                rows = self._chunks.rows_of(is_resting=leave.share < 1, most=leave.rows_max)
                if not self._is_throttled(held, partial(self._throttle.take, rows)):
                    self._copy_chunk(held, rows, leave)
        except PartLost as lost:
            # It was away for longer than its lease. What it wrote stays, and the worker that has the part counts it.
            self._chunks.failed()
            extra = {"event": "backfill.part_lost", "job": part.job, "part": part.number}
            logger.warning("another worker has the part by now: %s", lost.message, extra=extra)
            return
        except CannotCopy as error:
            held.release()
            self._pause(error)
            return
        except BaseException:
            held.release()
            raise
        held.release()

    def _copy_chunk(self, held: HeldCopy, rows: int, leave: Leave) -> None:
        started = self._clock()
        self._limits.begins(leave)
        try:
            part = held.part
            with held.kept_alive():  # rows that are large or read slowly may take longer than a lease
                copied = self._copying.copy(
                    part.bounds, part.checkpoint, rows, self._settings.verify_share, leave.share
                )
        except (MustWait, Unavailable, StaleEpoch) as error:
            self._failed(held, type(error).__name__, error.message)
            return
        if copied.is_again:
            self._failed(held, "NotTaken", copied.why)
            return
        reach("backfill.before_save")
        self._save(held, copied)
        reach("backfill.saved")
        self._note(copied, self._clock() - started, leave)
        self._tell(held, self._limits.told)

    def _save(self, held: HeldCopy, copied: Copied) -> None:
        """Count it, once: with an answer that was lost it is repeated as it is."""
        while True:
            try:
                held.count(copied)
                return
            except ControlUnavailable as error:
                self._failed(None, "ControlUnavailable", error.message)
                if self._is_stopped.is_set():
                    raise  # whether it was counted is unknown; the next worker finds out

    def _note(self, copied: Copied, seconds: float, leave: Leave) -> None:
        """What this chunk says of the next ones."""
        self._chunks.copied(copied.pace_rows, seconds, is_resting=leave.share < 1)
        self._throttle.copied(copied.pace_rows, copied.source_seconds, copied.blocks_read)
        self._speed.copied(copied.rows)
        if self._failures:
            extra = {"event": "backfill.goes_on", "job": self._job.id, "failures": self._failures}
            logger.warning("chunks get through again", extra=extra)
        self._failures, self._went_on_at = 0, self._clock()
        equal, quarantined = copied.cells_equal, copied.set_aside
        metrics.chunk_saved(copied.rows, equal, copied.conflicts, quarantined)
        metrics.throttled(leave.limit, copied.rested_seconds)
        metrics.blocks_read(copied.blocks_read)
        metrics.chunk_took(copied.read_seconds, copied.write_seconds, self._chunks.rows)

    def _is_throttled(self, held: HeldCopy, ask: Callable[[], Pause | None]) -> bool:
        """Wait for what has to be waited for, a while; whether it is to be looked at again before a chunk begins."""
        try:
            pause = ask()
        except ControlUnavailable as error:  # it knows whose turn it is
            self._failed(held, "ControlUnavailable", error.message)
            return True
        if pause is None:
            return False
        self._limits.waits(pause)
        self._wait(held, pause.seconds, HeldUp.by(pause.reason, pause.limit))
        self._went_on_at = self._clock()
        metrics.throttled(pause.limit, pause.seconds)
        return True

    def _failed(self, held: HeldCopy | None, cause: str, reason: str) -> None:
        """Wait, longer each time. A worker that has waited in vain for too long gives up."""
        metrics.chunk_failed(cause)
        if held is not None:
            self._chunks.failed()
        self._failures += 1
        if self._failures == 1:
            extra = {"event": "backfill.waits", "job": self._job.id, "cause": cause}
            logger.warning("a chunk did not get through and is tried again: %s", reason, extra=extra)
        patience = self._settings.patience_seconds
        if patience is not None and self._clock() - self._went_on_at >= patience:
            hint = f"`{job_command(self._job.kind, 'resume', self._job.id)}` goes on where it was."
            raise GaveUp(f"No chunk got through for {patience:g} s: {reason}", hint=hint)
        pause_seconds = min(PAUSE_SECONDS * 2 ** min(self._failures - 1, 16), PAUSE_SECONDS_MAX)
        self._wait(held, pause_seconds, HeldUp(reason))

    def _wait(self, held: HeldCopy | None, seconds: float, why: HeldUp) -> None:
        """Say why, keep the part, and hear whether it is to stop."""
        until = self._clock() + seconds
        while (left := until - self._clock()) > 0 and not self._is_stopped.is_set():
            if held is not None:
                self._tell(held, lambda: why)
                held.keep(TICK_SECONDS)
                if not held.may_go_on:
                    return
            self._is_stopped.wait(min(left, TICK_SECONDS))

    def _pause(self, error: CannotCopy) -> None:
        extra = {"event": "backfill.cannot_copy", "job": self._job.id}
        logger.error("the job is paused: %s", error.message, extra=extra)
        with suppress(InvalidRequest):  # an operator cancelled it meanwhile
            self._with_patience(lambda: self._jobs.pause(self._job.kind, self._job.id, str(error)))

    def _tell(self, held: HeldCopy, why: Callable[[], HeldUp]) -> None:
        """What this worker does now, once in a while. A report that is lost is no trouble."""
        now = self._clock()
        if self._told_at is not None and now - self._told_at < self._settings.tell_seconds:
            return
        self._told_at = now
        held_up = why()
        news: dict[str, Json] = {
            "part": held.part.number,
            "rate": round(self._speed.per_second(), 1),
            "chunk_rows": self._chunks.rows,
            "throttle": held_up.reason,
            "limit": held_up.limit,
            "failures": self._failures,
        }
        with suppress(SchemalessError):
            self._jobs.tell(self._job.id, self._worker, news)

    def _with_patience(self, ask: Callable[[], T]) -> T | None:
        """Ask the control database; None: it is to stop before there is an answer."""
        while not self._is_stopped.is_set():
            try:
                return ask()
            except ControlUnavailable as error:
                self._failed(None, "ControlUnavailable", error.message)
        return None

    @property
    def _lease(self) -> float:
        return self._settings.lease_seconds
