"""`DiffRunner`: claims parts of a diff and saves each step's counts, findings and checkpoint together (I11).

Any number of them serve a job, in as many processes. A step that was not saved is done again by the part's next
worker; it wrote nothing but lines of a key list that its part's checkpoint does not know of.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from schemaless_core.cell.canonical import Json
from schemaless_core.control.jobs.held_part import HeldPart
from schemaless_core.control.jobs.jobs import Finding, Jobs, JobState, Part
from schemaless_core.control.jobs.part_worker import PartWorker
from schemaless_core.errors import StaleEpoch, Unavailable
from schemaless_core.failpoints import reach
from tripstore.engines.validation import metrics
from tripstore.engines.validation.diff.keylist import NoKeyList, PartLines, Written
from tripstore.engines.validation.diff.portions import Portion, Walk
from tripstore.engines.validation.diff.step_turns import Attended, NoTurns, StepGivenUp, StepTurns

logger = logging.getLogger(__name__)

KIND = "diff"
#: How findings are counted that are not kept, since there are so many.
LEFT_OUT = "findings_left_out"
LEASE_SECONDS = 30.0
#: Times that a step is tried whose store did not answer, and the pause before the second.
TRIES = 6
PAUSE_SECONDS = 0.2


class KeyLists(Protocol):
    """Keeps every difference."""

    def lines(self, part: int, fence: int, written: Written) -> PartLines: ...


@dataclass(frozen=True, slots=True)
class RunnerSettings:
    """How a worker serves a job."""

    worker: str
    #: Findings of each kind that a part keeps; all are counted.
    sample: int = 1000
    lease_seconds: float = LEASE_SECONDS


class _Progress(NamedTuple):
    """A part's checkpoint: where its walk is, what of its lines is saved, and how many findings of a kind it keeps."""

    at: Json = None
    written: Written = Written()
    kept: Mapping[str, int] = {}  # never changed


class DiffRunner(PartWorker):
    """One worker of one job."""

    def __init__(
        self,
        jobs: Jobs,
        job: str,
        walks: Mapping[str, Walk],
        settings: RunnerSettings,
        key_lists: KeyLists | None = None,
        turns: StepTurns | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        super().__init__(jobs, job, settings.worker, settings.lease_seconds)
        self._walks = walks
        self._settings = settings
        self._key_lists = key_lists or NoKeyList()
        self._turns = turns or NoTurns()
        self._sleep = sleep

    def run(self) -> JobState:
        try:
            return super().run()
        finally:
            self._turns.close()

    def serve_some(self, parts_max: int) -> None:
        try:
            super().serve_some(parts_max)
        finally:
            self._turns.close()

    def _serve(self, held: HeldPart) -> None:
        part = held.part
        progress = _read(part.checkpoint)
        lines = self._key_lists.lines(part.number, part.fence, progress.written)
        is_running = True
        self._turns.attend(
            Attended(
                lambda: self._is_stopped.is_set() or held.is_lost or not held.may_go_on,
                self._tell,
                self._is_stopped.wait,
            )
        )
        while is_running and not held.is_done:
            begun = time.monotonic()
            try:
                with held.kept_alive():
                    self._turns.wait()
                    portion = self._step(part, progress.at)
            except StepGivenUp:  # it is done again by the worker that has the part next
                return
            progress, is_running = self._save(held, lines, progress, portion)
            self._turns.stepped(portion.counts["rows"] / max(time.monotonic() - begun, 1e-6))
            is_running = is_running and not self._is_stopped.is_set()

    def _lost(self, part: Part) -> None:
        extra = {"event": "diff.part_lost", "job": self._job, "part": part.number}
        logger.warning("another worker has the part by now", extra=extra)

    def _step(self, part: Part, at: Json) -> Portion:
        assert isinstance(part.bounds, dict)
        ((kind, bounds),) = part.bounds.items()
        for n in range(TRIES):
            begun = time.perf_counter()
            try:
                reach("diff.step")
                portion = self._walks[kind].step(bounds, at)
            except (Unavailable, StaleEpoch) as error:
                if n + 1 == TRIES:
                    raise
                extra = {"event": "diff.step_repeated", "job": self._job, "part": part.number, "reason": str(error)}
                logger.warning("a step of a diff is tried again", extra=extra)
                self._sleep(PAUSE_SECONDS * 2**n)
                continue
            metrics.diff_stepped(kind, time.perf_counter() - begun, portion.counts)
            return portion
        raise AssertionError("unreachable")

    def _save(self, held: HeldPart, lines: PartLines, progress: _Progress, portion: Portion) -> tuple[_Progress, bool]:
        written = lines.append(portion.found)
        reach("diff.before_save")
        kept, findings = Counter(progress.kept), list[Finding]()
        for each in [*(difference.finding() for difference in portion.found), *portion.others]:
            if kept[each.kind] < self._settings.sample:
                kept[each.kind] += 1
                findings.append(each)
            else:
                portion.counts[LEFT_OUT] += 1
        after = _Progress(portion.checkpoint, written, dict(kept))
        _saved(held, _written(after), portion.counts, findings, is_done=portion.is_end)
        reach("diff.saved")
        extra = {"event": "diff.step_saved", "job": self._job, "part": held.part.number, **portion.counts}
        logger.info("a step of a diff is saved", extra=extra)
        return after, held.part.state is JobState.RUNNING


def _saved(
    held: HeldPart, checkpoint: Json, counts: Mapping[str, int], findings: Sequence[Finding], *, is_done: bool
) -> None:
    """Move the part forward. A save whose outcome is unknown is repeated as it was, and counts once."""
    for n in range(TRIES):
        try:
            held.save(checkpoint, counts, findings, is_done=is_done)
        except Unavailable:
            if n + 1 == TRIES:
                raise
            time.sleep(PAUSE_SECONDS * 2**n)
        else:
            return


def written_of(checkpoint: Json) -> Written:
    """What of a part's lines is saved."""
    return _read(checkpoint).written


def _written(progress: _Progress) -> Json:
    file, size = progress.written
    return {"at": progress.at, "file": file, "bytes": size, "kept": dict(progress.kept)}


def _read(checkpoint: Json) -> _Progress:
    if checkpoint is None:
        return _Progress()
    assert isinstance(checkpoint, dict)
    size, kept = checkpoint["bytes"], checkpoint["kept"]
    assert isinstance(size, int)
    assert isinstance(kept, dict)
    return _Progress(
        checkpoint["at"], Written(str(checkpoint["file"]), size), {k: int(str(v)) for k, v in kept.items()}
    )
