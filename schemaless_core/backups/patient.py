"""`PatientWorker`: a worker of a backup or a restore, which asks again for a while where nothing answers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TypeVar

from schemaless_core.control.jobs.held_part import HeldPart
from schemaless_core.control.jobs.part_worker import PartWorker
from schemaless_core.errors import SchemalessError, StaleEpoch, Unavailable

T = TypeVar("T")

LEASE_SECONDS = 5.0
#: Between two times that a step is tried whose servers, or whose folder, did not answer.
PAUSE_SECONDS = 0.5
#: As long as a promotion takes, and some more.
TRIES = 120


class PatientWorker(PartWorker):
    """One worker of one job."""

    def _tried(self, step: Callable[[], T]) -> T:
        """A server or a folder that does not answer is asked again for a while."""
        for attempt in range(TRIES):
            try:
                return step()
            except (Unavailable, StaleEpoch) as error:
                if attempt + 1 == TRIES or self._is_stopped.is_set():
                    raise
                self._waits(error)
                self._is_stopped.wait(PAUSE_SECONDS)
        raise AssertionError("the last attempt returns or raises")

    @abstractmethod
    def _waits(self, error: SchemalessError) -> None:
        """Say so in the log."""

    def _may_go_on(self, held: HeldPart) -> bool:
        return held.may_go_on and not self._is_stopped.is_set()
