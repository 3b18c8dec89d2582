"""A backfill in a process of its own, and a journal of what it asked of the job: what it holds and what it saved."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from multiprocessing.process import BaseProcess
from pathlib import Path
from signal import SIGTERM
from typing import Any, NamedTuple

from schemaless_core.cell.canonical import Json
from schemaless_core.cell.encoded import EncodedCell, EncodedOutcome
from schemaless_core.control.changes import make_change
from schemaless_core.control.jobs.jobs import Job, Jobs
from schemaless_core.control.jobs.parts import add_counts
from schemaless_core.control.jobs.records import Part
from schemaless_core.failpoints import reach, use_folder
from schemaless_core.process.seat import heard_signals
from tests.forking import FORK_SERVER
from tripstore.migration.backfill.backfill import Backfill
from tripstore.wiring import connect


class Line(NamedTuple):
    """One line of the journal."""

    event: str  #: claimed, saving, saved
    part: int
    fence: int
    before: Json
    after: Json = None
    is_done: bool = False
    counts: Mapping[str, int] = {}


class JournalledJobs(Jobs):
    """Writes down what is asked before it is asked, and that it was answered. It outlives a kill -9."""

    path: Path

    def claim(self, job_id: str, worker: str, lease_seconds: float) -> Part | None:
        part = super().claim(job_id, worker, lease_seconds)
        if part is not None:
            self._write(Line("claimed", part.number, part.fence, part.checkpoint))
        return part

    def save(self, part: Part, worker: str, *, counts: Mapping[str, int], **options: Any) -> Part:
        if not counts:  # it keeps its lease, no more
            return super().save(part, worker, counts=counts, **options)
        said = (part.number, part.fence, part.checkpoint, options["checkpoint"], options["is_done"])
        self._write(Line("saving", *said, dict(counts)))
        saved = self._saved(part, worker, counts, **options)
        self._write(Line("saved", *said))
        return saved

    def _saved(self, part: Part, worker: str, counts: Mapping[str, int], **options: Any) -> Part:
        return super().save(part, worker, counts=counts, **options)

    def _write(self, line: Line) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")


def journal(path: Path) -> Iterator[Line]:
    for text in path.read_text().splitlines():
        yield Line(*json.loads(text))


def effective(lines: Sequence[Line]) -> dict[int, list[Line]]:
    """The saves that were committed, by part, as checkpoints tell: who holds a part next finds what was left."""
    by_part = defaultdict[int, list[Line]](list)
    for line in lines:
        by_part[line.part].append(line)
    return {part: list(_effective(events)) for part, events in by_part.items()}


def check_saves(path: Path, parts: int) -> Counter[str]:
    """I11: each part is covered once, without a gap; the sums of what was saved, but for zeros."""
    saves, counted = effective(list(journal(path))), Counter[str]()
    assert sorted(saves) == list(range(parts))
    for lines in saves.values():
        assert lines[0].before is None
        assert all(first.after == second.before for first, second in pairwise(lines))
        assert [line.is_done for line in lines] == [False] * (len(lines) - 1) + [True]
        for line in lines:
            counted.update(line.counts)
    return +counted


def _effective(events: Sequence[Line]) -> Iterator[Line]:
    for number, line in enumerate(events):
        if line.event != "saving":
            continue
        later = events[number + 1 :]
        repeats = [each for each in later if each.event == "saving" and each.fence == line.fence]
        if repeats:  # the answer was lost: the same is sent again, and counts once
            assert all(each == line for each in repeats)
            continue
        is_answered = any(each.event == "saved" and each.fence == line.fence for each in later)
        claims = (each for each in later if each.event == "claimed")
        follower = next(claims, None)
        if is_answered or (
            follower is None if line.is_done else follower is not None and follower.before == line.after
        ):
            yield line


#: Where a worker that counts first may be killed.
COUNTED = "sabotage.counted"


class CountingFirst(JournalledJobs):
    """Counts in a transaction of its own, before the checkpoint moves."""

    def _saved(self, part: Part, worker: str, counts: Mapping[str, int], **options: Any) -> Part:
        make_change(self._control, lambda connection: add_counts(connection, part.job, counts))
        if counts:  # a lease that is renewed counts nothing
            reach(COUNTED)
        return super()._saved(part, worker, {}, **options)


class WritingBehind:
    """Says that cells are there, and writes them with the next ones."""

    def __init__(self, put: Callable[[Sequence[EncodedCell], int], EncodedOutcome]) -> None:
        self._put = put
        self._waiting: Sequence[EncodedCell] = ()

    def __call__(self, cells: Sequence[EncodedCell], epoch: int) -> EncodedOutcome:
        self._put(self._waiting, epoch)
        self._waiting = cells
        return EncodedOutcome(len(cells), 0)


def backfill_process(
    document: Mapping[str, Any], job: Job, failpoints: Path, path: Path, sabotage: str = ""
) -> BaseProcess:
    """A process, not started. Sabotages: "counts first", "writes behind"."""
    process: BaseProcess = FORK_SERVER.Process(
        target=_copy, args=(dict(document), job, str(failpoints), str(path), sabotage), daemon=True
    )
    return process


def run_here(backfill: Backfill, job: Job, path: Path) -> str:
    """The same in the test's own process."""
    jobs = JournalledJobs(backfill.control)
    jobs.path = path
    backfill.jobs = jobs
    return backfill.runner(job, "resumed").run().value


def _copy(document: Mapping[str, Any], job: Job, failpoints: str, path: str, sabotage: str) -> None:
    use_folder(Path(failpoints))
    with connect(document) as store:
        backfill = Backfill(store.facade)
        jobs = (CountingFirst if sabotage == "counts first" else JournalledJobs)(backfill.control)
        assert store.facade.duo is not None
        port = store.facade.duo.ports.store
        if sabotage == "writes behind":
            port.put_encoded = WritingBehind(port.put_encoded)  # type: ignore[method-assign]  # the control
        jobs.path = Path(path)
        backfill.jobs = jobs
        runner = backfill.runner(job, "killed")
        with heard_signals(runner.stop, runner.stop, [SIGTERM]):
            runner.run()
