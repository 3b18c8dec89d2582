"""`PartWorker`: one worker of one job, which does part after part until there is none.

Any number of them serve a job, in as many processes. How a part is done, and how often it is saved on the way, is for
the engines to say.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from contextlib import suppress

from schemaless_core.cell.canonical import Json
from schemaless_core.control.jobs.held_part import HeldPart
from schemaless_core.control.jobs.jobs import Jobs
from schemaless_core.control.jobs.records import JobState, Part, PartLost
from schemaless_core.control.jobs.served import ServedParts
from schemaless_core.errors import SchemalessError

#: How often a worker without a part looks for one that another has left.
LOOK_SECONDS = 0.2


class PartWorker(ABC):
    """Any thread may call `stop`, and so may a signal handler."""

    def __init__(self, jobs: Jobs, job: str, worker: str, lease_seconds: float) -> None:
        self._jobs = jobs
        self._job = job
        self._worker = worker
        self._lease_seconds = lease_seconds
        self._is_stopped = threading.Event()
        self.served = ServedParts()

    def run(self) -> JobState:
        """Serve the job until it is done, does not run any more, or until `stop`; say what its state is."""
        try:
            while not self._is_stopped.is_set():
                if self.serve_part():
                    continue
                state = self._jobs.state(self._job)
                if state is not JobState.RUNNING:
                    return state
                self._is_stopped.wait(LOOK_SECONDS)
            return self._jobs.state(self._job)
        finally:
            with suppress(SchemalessError):
                self._jobs.leave(self._job, self._worker)

    def serve_some(self, parts_max: int) -> None:
        """Serve so many parts at most, and end where there is none to be had, or at `stop`."""
        try:
            while not self._is_stopped.is_set() and self.served.parts < parts_max and self.serve_part():
                pass
        finally:
            with suppress(SchemalessError):
                self._jobs.leave(self._job, self._worker)

    def stop(self) -> None:
        """End after the step at hand."""
        self._is_stopped.set()

    def serve_part(self) -> bool:
        """Claim a part and do it to its end; False: there is none to be had. What is not done is given back."""
        part = self._jobs.claim(self._job, self._worker, self._lease_seconds)
        if part is None:
            return False
        held = HeldPart(self._jobs, part, self._worker, self._lease_seconds)
        try:
            self._serve(held)
        except PartLost as lost:
            self._lost(lost.part)
            return True
        except BaseException:
            held.give_back()
            raise
        finally:
            self.served.note(held)
        held.give_back()
        return True

    @abstractmethod
    def _serve(self, held: HeldPart) -> None:
        """Do the part, as far as it may go on and until `stop`."""

    @abstractmethod
    def _lost(self, part: Part) -> None:
        """Say that another worker has it by now."""

    def _tell(self, rate: float, throttle: str | None = None, limit: str | None = None) -> None:
        """Note the rate for the commands that show progress, and why it waits, and by which limit.

        That the control database is down is no matter.
        """
        with suppress(SchemalessError):
            news: dict[str, Json] = {"rate": round(rate, 1), "throttle": throttle, "limit": limit}
            self._jobs.tell(self._job, self._worker, news)
