"""`FsckRunner`: claims parts of an fsck, looks at them step by step, and saves each step's findings with it (I11).

Any number of them serve a job, in as many processes. What does not answer is noted as not compared, and the next part
is looked at: a server that is down is a reason to run this, not to end it.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping

from schemaless_core import metrics
from schemaless_core.cell.canonical import Json
from schemaless_core.control.jobs.held_part import HeldPart
from schemaless_core.control.jobs.jobs import Jobs
from schemaless_core.control.jobs.part_worker import PartWorker
from schemaless_core.control.jobs.records import Finding, Part
from schemaless_core.errors import SchemalessError, StaleEpoch, Unavailable
from schemaless_core.failpoints import reach
from schemaless_core.fsck.walk import PartWalk, WalkStep

logger = logging.getLogger(__name__)

KIND = "fsck"
#: How findings are counted that are not kept, since there are so many.
LEFT_OUT = "findings_left_out"
#: Findings of each kind that a part keeps; all are counted.
SAMPLE = 1_000
LEASE_SECONDS = 30.0
#: Times that a step is tried whose server does not answer, and the pause before the second.
TRIES = 4
PAUSE_SECONDS = 0.2
#: Between two words about its progress.
TELL_SECONDS = 1.0


class FsckRunner(PartWorker):
    """One worker of one job."""

    def __init__(
        self, jobs: Jobs, job: str, walks: Mapping[str, PartWalk], worker: str, cells_per_second: float | None = None
    ) -> None:
        super().__init__(jobs, job, worker, LEASE_SECONDS)
        self._walks = walks
        self._cells_per_second = cells_per_second
        self._told_at = -TELL_SECONDS

    def _serve(self, held: HeldPart) -> None:
        part = held.part
        at, kept = _read(part.checkpoint)
        while held.may_go_on and not self._is_stopped.is_set():
            begun = time.monotonic()
            with held.kept_alive():
                looked = self._step(part, at)
                if looked is None:
                    return
                self._rest(looked.rows, time.monotonic() - begun)
            at = looked.checkpoint
            self._save(held, looked, kept)
            self._tell(looked.rows / max(time.monotonic() - begun, 1e-6))

    def _lost(self, part: Part) -> None:
        extra = {"event": "fsck.part_lost", "job": self._job, "part": part.number}
        logger.warning("another worker has the part by now", extra=extra)

    def _step(self, part: Part, at: Json) -> WalkStep | None:
        """None: it was to end while a server did not answer, and the portion is another worker's to look at."""
        assert isinstance(part.bounds, dict)
        ((kind, bounds),) = part.bounds.items()
        walk = self._walks[kind]
        for n in range(TRIES):
            if n and self._is_stopped.wait(PAUSE_SECONDS * 2 ** (n - 1)):
                return None
            try:
                reach("fsck.step")
                return walk.step(bounds, at)
            except (Unavailable, StaleEpoch) as error:
                failure: SchemalessError = error
            except SchemalessError as error:
                failure = error
                break  # a server that answered, and not what was asked
        extra = {"event": "fsck.not_compared", "job": self._job, "part": part.number, "reason": failure.message}
        logger.warning("something could not be looked at", extra=extra)
        return walk.skip(bounds, at, failure)

    def _save(self, held: HeldPart, looked: WalkStep, kept: Counter[str]) -> None:
        counts, findings = looked.counts, list[Finding]()
        for each in looked.findings:
            if kept[each.kind] < SAMPLE:
                kept[each.kind] += 1
                findings.append(each)
            else:
                counts[LEFT_OUT] += 1
        reach("fsck.before_save")
        self._saved(held, {"at": looked.checkpoint, "kept": dict(kept)}, counts, findings, is_done=looked.is_end)
        reach("fsck.saved")
        metrics.fsck_looked(looked.rows, Counter(each.kind for each in looked.findings))

    def _saved(
        self, held: HeldPart, checkpoint: Json, counts: Mapping[str, int], findings: list[Finding], *, is_done: bool
    ) -> None:
        """A save whose outcome is unknown is repeated as it was, and counts once."""
        for n in range(TRIES):
            try:
                held.save(checkpoint, counts, findings, is_done=is_done)
                return
            except Unavailable:
                if n + 1 == TRIES:
                    raise
                self._is_stopped.wait(PAUSE_SECONDS * 2**n)

    def _rest(self, rows: int, seconds: float) -> None:
        """As long as it takes to have been no faster than was asked for."""
        if self._cells_per_second is not None:
            self._is_stopped.wait(max(rows / self._cells_per_second - seconds, 0.0))

    def _tell(self, rate: float, throttle: str | None = None, limit: str | None = None) -> None:
        now = time.monotonic()
        if now - self._told_at >= TELL_SECONDS:
            self._told_at = now
            super()._tell(rate, throttle, limit)


def _read(checkpoint: Json) -> tuple[Json, Counter[str]]:
    """Where the walk is, and how many findings of each kind the part keeps."""
    match checkpoint:
        case {"at": at, "kept": dict(kept)}:
            return at, Counter({str(kind): int(str(count)) for kind, count in kept.items()})
    return None, Counter()
