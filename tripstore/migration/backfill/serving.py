"""`DetachedJobs`: a worker's share of the jobs started with `--detach`. One at a time, the oldest first.

Whatever is wrong with one job must not keep this process from its other work: the job is left alone for a while.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Protocol, Self

from schemaless_core.control.jobs.jobs import Job, Jobs, JobState
from schemaless_core.control.jobs.served import ServedParts
from schemaless_core.errors import SchemalessError
from tripstore.engines.backfill.errors import BackfillError
from tripstore.engines.backfill.runner import Ending

logger = logging.getLogger(__name__)

#: Between two looks for jobs, and how long one that failed is left alone.
LOOK_SECONDS = 2.0
AGAIN_SECONDS = 30.0


class JobRunner(Protocol):
    """Serves one job."""

    @property
    def served(self) -> ServedParts:
        """What it did so far."""
        ...

    def run(self) -> object: ...

    def serve_some(self, parts_max: int) -> None:
        """Serve so many parts at most, and end where there is none to be had, or at `stop`."""
        ...

    def stop(self) -> None: ...


class DetachedJobs:
    """One thread. A context manager: leaving it lets the chunk at hand be finished."""

    def __init__(
        self,
        jobs: Jobs,
        runners: Mapping[str, Callable[[Job], JobRunner]],
        *,
        clock: Callable[[], float] = time.monotonic,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self._jobs = jobs
        self._runners = runners
        self._clock = clock
        self._look_seconds = look_seconds
        #: Jobs that failed here, and when they are tried again.
        self._not_before: dict[str, float] = {}
        self._running: JobRunner | None = None
        self._lock = threading.Lock()
        self._is_ended = threading.Event()
        self._thread = threading.Thread(target=self.run, name="jobs", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()
        self._thread.join()

    def stop(self) -> None:
        with self._lock:
            self._is_ended.set()
            if self._running is not None:
                self._running.stop()

    def run(self) -> None:
        """Serve what there is, until `stop`."""
        while not self._is_ended.is_set():
            job = self._next()
            if job is None or not self._serve(job):
                self._is_ended.wait(self._look_seconds)

    def _next(self) -> Job | None:
        """The oldest that runs and did not fail here a moment ago."""
        try:
            jobs = [job for job in self._jobs.all() if job.is_detached and job.state is JobState.RUNNING]
        except SchemalessError:
            return None  # the control database is away: others say so
        now = self._clock()
        may = [job for job in jobs if job.kind in self._runners and self._not_before.get(job.id, 0.0) <= now]
        return may[-1] if may else None

    def _serve(self, job: Job) -> bool:
        """Whether there was something to do."""
        extra = {"event": "jobs.served", "job": job.id}
        try:
            runner = self._begun(job)
            if runner is None:
                return False
            logger.info("serves a job", extra=extra)
            return runner.run() is not Ending.STOPPED
        except (SchemalessError, BackfillError) as error:
            self._leave_alone(job, error.message)
        except Exception as error:  # a bug, or what its source raises: this process has other work
            logger.exception("a job failed: %s", error, extra=extra | {"event": "jobs.bug"})
            self._leave_alone(job, str(error))
        finally:
            with self._lock:
                self._running = None
        return False

    def _begun(self, job: Job) -> JobRunner | None:
        runner = self._runners[job.kind](job)
        with self._lock:
            if self._is_ended.is_set():
                return None
            self._running = runner
        return runner

    def _leave_alone(self, job: Job, reason: str) -> None:
        self._not_before[job.id] = self._clock() + AGAIN_SECONDS
        extra = {"event": "jobs.left_alone", "job": job.id, "seconds": AGAIN_SECONDS}
        logger.warning("a job is left alone for a while: %s", reason, extra=extra)
