"""The runner over jobs in a file and a copying in memory: what it counts, what it waits for, and how it ends."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import cast

import pytest

from schemaless_core import ControlUnavailable
from schemaless_core.cell.canonical import Json
from schemaless_core.config import TlsConfig
from schemaless_core.control.database import ControlDatabase
from schemaless_core.control.jobs.jobs import Finding, Job, Jobs, JobState, Part
from schemaless_core.errors import NodeUnavailable
from schemaless_core.failpoints import FailpointReached, use_folder
from schemaless_core.urls import parse_node_url
from tripstore.engines.backfill.chunks import ChunkSize
from tripstore.engines.backfill.errors import CannotCopy, GaveUp, MustWait
from tripstore.engines.backfill.runner import CopyRunnerSettings, Ending, Runner
from tripstore.engines.backfill.source import Copied, Spec
from tripstore.engines.backfill.throttle import Leave, Limit, Pause, Throttle

ROWS, PARTS = 100, 4
QUICK = CopyRunnerSettings(lease_seconds=60, idle_seconds=0.001, patience_seconds=None)


class Numbers:
    """Copies numbers from nowhere into a set. `before` is called with each chunk, and may raise."""

    def __init__(self, before: Callable[[int], None] = lambda chunk: None) -> None:
        self.written: set[int] = set()
        self.chunks = 0
        self.shares: list[float] = []
        self._before = before
        self.unreadable: set[int] = set()

    def plan(self, spec: Spec, parts: int) -> Sequence[Json]:
        size = ROWS // parts
        return [{"from": number * size, "to": (number + 1) * size} for number in range(parts)]

    def estimate(self, spec: Spec) -> int:
        return ROWS

    def copy(self, bounds: Json, checkpoint: Json, rows: int, verify_share: float, source_share: float = 1.0) -> Copied:
        self.chunks += 1
        self.shares.append(source_share)
        self._before(self.chunks)
        limits = cast("dict[str, int]", bounds)
        first = limits["from"] if checkpoint is None else cast(int, checkpoint)
        last = min(first + rows, limits["to"])
        numbers = set(range(first, last))
        bad = tuple(Finding("unreadable", body={"number": number}) for number in sorted(numbers & self.unreadable))
        self.written |= numbers - self.unreadable
        return Copied(last - first, len(numbers - self.unreadable), last, last == limits["to"], quarantined=bad)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A control database as its migrations leave it."""
    folder = tmp_path_factory.mktemp("tables")
    with closing(opened(folder)) as control:
        control.migrate()
    return folder / "control.db"


@pytest.fixture
def jobs(tables: Path, tmp_path: Path) -> Iterator[Jobs]:
    shutil.copy(tables, tmp_path)
    with closing(opened(tmp_path)) as control:
        yield Jobs(control)


def opened(folder: Path) -> ControlDatabase:
    return ControlDatabase(parse_node_url("control", f"sqlite:///{folder}"), "t", TlsConfig(), 1.0)


def begun(jobs: Jobs, parts: int = PARTS) -> Job:
    return jobs.create("backfill", {}, Numbers().plan({}, parts))


def runner(
    jobs: Jobs,
    copying: Numbers,
    job: Job,
    settings: CopyRunnerSettings = QUICK,
    throttle: Throttle | None = None,
    rows: int = 7,
) -> Runner:
    return Runner(jobs, copying, job, "w", chunks=ChunkSize(rows), throttle=throttle, settings=settings)


def counts(jobs: Jobs, job: Job) -> dict[str, int]:
    return dict(jobs.progress(job.id).counts)


def test_it_copies_all_parts_and_the_job_is_done(jobs: Jobs) -> None:
    job, numbers = begun(jobs), Numbers()

    assert runner(jobs, numbers, job).run() is Ending.DONE

    assert numbers.written == set(range(ROWS))
    assert counts(jobs, job) == {"rows": ROWS, "equal": ROWS}
    assert jobs.state(job.id) is JobState.DONE
    assert jobs.progress(job.id).workers == ()


def test_what_cannot_be_copied_is_a_finding_and_the_rest_goes_on(jobs: Jobs) -> None:
    job, numbers = begun(jobs), Numbers()
    numbers.unreadable = {3, 50}

    assert runner(jobs, numbers, job).run() is Ending.DONE

    assert counts(jobs, job) == {"rows": ROWS, "equal": ROWS - 2, "quarantined": 2}
    assert [each.body for each in jobs.findings(job.id)] == [{"number": 3}, {"number": 50}]


def test_a_finding_that_stands_for_many_rows_counts_as_many() -> None:
    one, many = Finding("unreadable", None), Finding("unreadable", None, body={"rows": 1_134})
    conflict = Finding("conflict", None)

    assert Copied(0, 0, None, True, conflicts=1, quarantined=(one, many, conflict)).set_aside == 1_135


def test_a_chunk_that_does_not_get_through_is_copied_again_and_counts_once(jobs: Jobs) -> None:
    """I11."""

    def fail(chunk: int) -> None:
        if chunk in (2, 3):
            raise NodeUnavailable("a", "it is down")
        if chunk == 5:
            raise MustWait("A hand-over is going on.")

    job, numbers = begun(jobs), Numbers(fail)

    assert runner(jobs, numbers, job).run() is Ending.DONE
    assert counts(jobs, job) == {"rows": ROWS, "equal": ROWS}
    assert numbers.written == set(range(ROWS))


def test_who_waits_in_vain_gives_up_and_the_part_is_free(jobs: Jobs) -> None:
    def fail(_chunk: int) -> None:
        raise NodeUnavailable("a", "it is down")

    job = begun(jobs)

    with pytest.raises(GaveUp, match="it is down") as caught:
        runner(jobs, Numbers(fail), job, CopyRunnerSettings(patience_seconds=0.05)).run()

    assert caught.value.hint == f"`tripstore backfill resume {job.id}` goes on where it was."
    assert jobs.progress(job.id).parts_claimed == 0
    assert runner(jobs, Numbers(), job).run() is Ending.DONE


def test_what_an_operator_has_to_change_pauses_the_job_with_the_reason(jobs: Jobs) -> None:
    def fail(chunk: int) -> None:
        if chunk == 4:
            raise CannotCopy("Capture is broken.", hint="Mend it.")

    job = begun(jobs)

    assert runner(jobs, Numbers(fail), job).run() is Ending.PAUSED

    found = jobs.find("backfill", job.id)
    assert (found.state, found.why) == (JobState.PAUSED, "Capture is broken. Mend it.")
    assert counts(jobs, job)["rows"] == 21
    jobs.resume("backfill", job.id)
    assert runner(jobs, Numbers(), job).run() is Ending.DONE
    assert counts(jobs, job)["rows"] == ROWS


@pytest.mark.parametrize(("verb", "ending"), [("pause", Ending.PAUSED), ("cancel", Ending.CANCELLED)])
def test_it_ends_after_the_chunk_in_which_an_operator_held_the_job(jobs: Jobs, verb: str, ending: Ending) -> None:
    job = begun(jobs)

    def hold(chunk: int) -> None:
        if chunk == 2:
            getattr(jobs, verb)("backfill", job.id)

    assert runner(jobs, Numbers(hold), job).run() is ending
    assert counts(jobs, job)["rows"] == 14
    assert jobs.progress(job.id).parts_claimed == 0


def test_asked_to_stop_it_finishes_the_chunk_and_gives_the_part_back(jobs: Jobs) -> None:
    job = begun(jobs)
    stopping: list[Runner] = []
    numbers = Numbers(lambda chunk: stopping[0].stop() if chunk == 3 else None)
    stopping.append(runner(jobs, numbers, job))

    assert stopping[0].run() is Ending.STOPPED

    assert counts(jobs, job)["rows"] == 21
    assert jobs.progress(job.id).parts_claimed == 0
    assert runner(jobs, numbers, job).run() is Ending.DONE
    assert counts(jobs, job)["rows"] == ROWS


POINTS = (
    "backfill.claimed",
    "backfill.before_save",
    "backfill.saved",
    "backfill.released",
    "jobs.saving",
    "jobs.saved",
)


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("after", [0, 2])
def test_whatever_breaks_off_where_the_next_one_counts_exactly(
    jobs: Jobs, failpoints: Path, point: str, after: int
) -> None:
    """I11: at every named point."""
    job, numbers = begun(jobs), Numbers()
    use_folder(failpoints)
    try:
        (failpoints / point).write_text(f"raise after={after}")
        with pytest.raises(FailpointReached):
            runner(jobs, numbers, job).run()
    finally:
        use_folder(None)

    assert runner(jobs, numbers, job).run() is Ending.DONE
    assert counts(jobs, job) == {"rows": ROWS, "equal": ROWS}


class Flaky:
    """Jobs whose answers are lost now and then: after the work was done, or before."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self.calls = 0

    def __getattr__(self, name: str) -> object:
        verb = getattr(self._jobs, name)

        def call(*arguments: object, **options: object) -> object:
            self.calls += 1
            if self.calls % 5 == 1:
                raise ControlUnavailable("The control database cannot be reached.")
            answer = verb(*arguments, **options)
            if self.calls % 3 == 0:
                raise ControlUnavailable("The answer was lost.")
            return answer

        return call


def test_answers_of_the_control_database_may_be_lost(jobs: Jobs) -> None:
    """I11: a save that is repeated counts once; a claim that is repeated holds the same part."""
    job, numbers, flaky = begun(jobs, 2), Numbers(), Flaky(jobs)
    served = Runner(cast(Jobs, flaky), numbers, job, "w", chunks=ChunkSize(20), settings=QUICK)

    assert served.run() is Ending.DONE

    assert flaky.calls > 10
    assert counts(jobs, job) == {"rows": ROWS, "equal": ROWS}


def test_several_share_the_parts_of_a_job(jobs: Jobs) -> None:
    job, numbers = begun(jobs, 10), Numbers()
    endings: list[Ending] = []

    def work(name: str) -> None:
        endings.append(Runner(jobs, numbers, job, name, chunks=ChunkSize(7), settings=QUICK).run())

    threads = [threading.Thread(target=work, args=(f"w{number}",)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert endings == [Ending.DONE] * 3
    assert counts(jobs, job) == {"rows": ROWS, "equal": ROWS}


def test_a_worker_away_for_longer_than_its_lease_leaves_the_part_to_its_new_holder(jobs: Jobs) -> None:
    job = begun(jobs, 1)
    taken: list[Part | None] = []
    settings = CopyRunnerSettings(lease_seconds=-1, idle_seconds=0.001, patience_seconds=None)

    def lose(chunk: int) -> None:
        if chunk == 2:
            part = jobs.claim(job.id, "other", 60)
            assert part is not None
            jobs.save(part, "other", checkpoint=ROWS, counts={"rows": ROWS - 7}, is_done=True, lease_seconds=60)
            taken.append(part)

    assert runner(jobs, Numbers(lose), job, settings).run() is Ending.DONE
    assert taken
    assert counts(jobs, job)["rows"] == ROWS


class Until(Throttle):
    """Lets nothing begin for so many looks."""

    def __init__(self, looks: int, hear: Callable[[], None] = lambda: None, seconds: float = 0.001) -> None:
        self.left = looks
        self._hear = hear
        self._seconds = seconds

    def pause(self) -> Pause | None:
        if not self.left:
            return None
        self.left -= 1
        self._hear()
        return Pause(self._seconds, "the load is high", Limit.LOAD)

    @property
    def leave(self) -> Leave:
        return Leave(0.25, "others are at work", Limit.LOAD)


def test_a_throttle_holds_it_and_the_reason_is_told(jobs: Jobs) -> None:
    job, numbers = begun(jobs, 1), Numbers()
    told: list[Json] = []

    def look() -> None:
        told.extend(news.body["throttle"] for news in jobs.progress(job.id).workers)
        limits.update(str(news.body["limit"]) for news in jobs.progress(job.id).workers)

    throttle, limits = Until(3, look), set[str]()
    settings = CopyRunnerSettings(tell_seconds=0, idle_seconds=0.001)

    assert runner(jobs, numbers, job, settings, throttle).run() is Ending.DONE
    assert throttle.left == 0
    assert told == ["the load is high"] * 2
    assert limits == {"postgres_load"}
    assert set(numbers.shares) == {0.25}


def test_a_limit_that_holds_before_a_chunk_is_told_after_it_too_and_heard_just_before_it(jobs: Jobs) -> None:
    """Else it would depend on the moment what `status` says; and one more chunk would be copied at full speed."""
    job, numbers, told = begun(jobs, 1), Numbers(), list[Json]()

    class Telling(Throttle):
        is_held, leave = False, Leave()

        def pause(self) -> Pause | None:
            self.leave = Leave(0.1)
            told.extend(news.body["limit"] for news in jobs.progress(job.id).workers)
            self.is_held = not self.is_held
            return Pause(0.001, "the load is high", Limit.LOAD) if self.is_held else None

    settings = CopyRunnerSettings(tell_seconds=0, idle_seconds=0.001)
    assert runner(jobs, numbers, job, settings, Telling()).run() is Ending.DONE
    assert len(told) > 2
    assert set(told) == {"postgres_load"}
    assert set(numbers.shares) == {0.1}


def test_a_limit_that_cannot_be_kept_pauses_the_job_says_why_and_lets_go(jobs: Jobs) -> None:
    """It is neither ignored nor waited for without an end."""
    job, closed = begun(jobs, 1), list[int]()

    class Refusing(Throttle):
        def pause(self) -> Pause | None:
            raise CannotCopy("The probe cannot be run: there is no such table.", hint="Mend it.")

        def close(self) -> None:
            closed.append(1)

    assert runner(jobs, Numbers(), job, throttle=Refusing()).run() is Ending.PAUSED
    assert closed == [1]
    assert jobs.find("backfill", job.id).why == "The probe cannot be run: there is no such table. Mend it."
    assert (jobs.progress(job.id).parts_claimed, jobs.progress(job.id).counts) == (0, {})


def test_while_it_waits_it_keeps_its_part_and_hears_that_the_job_is_held(jobs: Jobs) -> None:
    job = begun(jobs, 1)
    looks = 0

    def hold() -> None:
        nonlocal looks
        looks += 1
        assert jobs.claim(job.id, "other", 60) is None
        if looks == 3:
            jobs.pause("backfill", job.id)

    seconds = count(step=0.5)  # so much passes with every look at the clock
    throttle = Until(10_000, hold, seconds=0.501)
    held = Runner(jobs, Numbers(), job, "w", throttle=throttle, settings=QUICK, clock=lambda: next(seconds))

    assert held.run() is Ending.PAUSED
    assert looks < 10
    assert jobs.progress(job.id).saved_at is not None
