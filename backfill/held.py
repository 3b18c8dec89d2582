"""`HeldCopy`: a part that one worker holds, as it was saved last; and what that asks of the jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Protocol

from schemaless_core.cell.canonical import Json
from schemaless_core.control.jobs.held_part import HeldPart, PartStore
from schemaless_core.control.jobs.records import Job, JobState, Part
from schemaless_core.errors import ControlUnavailable, SchemalessError
from schemaless_core.failpoints import reach
from tripstore.engines.backfill.source import Copied


class JobStore(PartStore, Protocol):
    """What is asked of `Jobs`."""

    def claim(self, job_id: str, worker: str, lease_seconds: float) -> Part | None: ...

    def tell(self, job_id: str, worker: str, news: Mapping[str, Json]) -> None: ...

    def leave(self, job_id: str, worker: str) -> None: ...

    def state(self, job_id: str) -> JobState: ...

    def pause(self, kind: str, job_id: str, why: str = "") -> Job: ...


class HeldCopy(HeldPart):
    """Lost with `PartLost` when another worker has taken it."""

    def __init__(
        self, jobs: JobStore, part: Part, worker: str, lease_seconds: float, clock: Callable[[], float]
    ) -> None:
        super().__init__(jobs, part, worker, lease_seconds)
        self._clock = clock
        self._saved_at = clock()

    def count(self, copied: Copied) -> None:
        """Save a chunk. After a `ControlUnavailable` it is repeated as it is, and counts once."""
        counts = {
            "rows": copied.rows,
            "equal": copied.cells_equal,
            "conflicts": copied.conflicts,
            "quarantined": copied.set_aside,
            "verified": copied.verified,
        }
        self.save(copied.checkpoint, counts, copied.quarantined, copied.solved, is_done=copied.is_end)
        self._saved_at = self._clock()

    def keep(self, tick_seconds: float) -> None:
        """Renew it, and hear of the job's state; not more often than needed."""
        if self._clock() - self._saved_at < min(self.lease_seconds / 3, tick_seconds):
            return
        with suppress(ControlUnavailable):
            self.renew()
            self._saved_at = self._clock()

    def release(self) -> None:
        """Best effort: a part that cannot be given back comes free when its lease is over."""
        with suppress(SchemalessError):
            super().release()
        reach("backfill.released")
