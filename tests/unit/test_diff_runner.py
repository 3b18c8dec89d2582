"""The runner of a diff: parts are claimed, saved and given back, whatever a walk or a store does."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from schemaless_core import Datastore, Json
from schemaless_core.control.jobs.jobs import Job, Jobs, JobState
from schemaless_core.errors import NodeUnavailable
from tripstore.engines.validation.diff.differences import CellClass, Difference
from tripstore.engines.validation.diff.portions import Portion
from tripstore.engines.validation.diff.runner import TRIES, DiffRunner, RunnerSettings

PARTS: list[Json] = [{"cells": [0, 2]}, {"cells": [2, 4]}]


@pytest.fixture
def jobs(tmp_path: Path) -> Jobs:
    datastore = Datastore.open(
        {"datastore": "trips", "shards": 2, "clusters": {"a": {"primary": f"sqlite:///{tmp_path / 'a'}"}}}
    )
    datastore.create_schema()
    return Jobs(datastore.control)


class Steps:
    """A walk of three steps, of a row each; the second one differs."""

    def __init__(self, before: Callable[[int], object] = lambda step: None) -> None:
        self.seen: list[tuple[Json, Json]] = []
        self._before = before

    def step(self, bounds: Json, checkpoint: Json) -> Portion:
        number = 0 if checkpoint is None else int(str(checkpoint))
        self.seen.append((bounds, checkpoint))
        self._before(len(self.seen))
        found = [Difference(CellClass.MISSING, UUID(int=number), "BASE", 1)] if number == 1 else []
        return Portion(number + 1, number == 2, Counter(rows=1, open=len(found)), found)


def begun(jobs: Jobs) -> Job:
    return jobs.create("diff", {}, PARTS)


def runner(jobs: Jobs, job: Job, walk: Steps, worker: str = "one", lease_seconds: float = 30.0) -> DiffRunner:
    settings = RunnerSettings(worker, sample=1, lease_seconds=lease_seconds)
    return DiffRunner(jobs, job.id, {"cells": walk}, settings, sleep=lambda _seconds: None)


def test_every_part_is_done_and_counted(jobs: Jobs) -> None:
    job, walk = begun(jobs), Steps()

    assert runner(jobs, job, walk).run() is JobState.DONE

    assert walk.seen == [([0, 2], None), ([0, 2], 1), ([0, 2], 2), ([2, 4], None), ([2, 4], 1), ([2, 4], 2)]
    assert dict(jobs.progress(job.id).counts) == {"rows": 6, "open": 2}
    assert len(jobs.findings(job.id)) == 2


def test_a_store_that_does_not_answer_is_asked_again(jobs: Jobs) -> None:
    def refuse(step: int) -> None:
        if step in (2, 3):
            raise NodeUnavailable("a", "down")

    job = begun(jobs)

    assert runner(jobs, job, Steps(refuse)).run() is JobState.DONE
    assert jobs.progress(job.id).counts["rows"] == 6


def test_a_store_that_never_answers_ends_the_run_and_frees_the_part(jobs: Jobs) -> None:
    def refuse(step: int) -> None:
        if step > 1:
            raise NodeUnavailable("a", "down")

    job, walk = begun(jobs), Steps(refuse)

    with pytest.raises(NodeUnavailable):
        runner(jobs, job, walk).run()

    assert len(walk.seen) == 1 + TRIES
    assert jobs.progress(job.id).parts_claimed == 0
    assert runner(jobs, job, Steps(), "two").run() is JobState.DONE
    assert jobs.progress(job.id).counts["rows"] == 6


def test_a_worker_that_is_told_to_stop_finishes_the_step_and_frees_the_part(jobs: Jobs) -> None:
    job = begun(jobs)
    walk = Steps(lambda step: serving.stop() if step == 2 else None)
    serving = runner(jobs, job, walk)

    assert serving.run() is JobState.RUNNING

    progress = jobs.progress(job.id)
    assert (progress.counts["rows"], progress.parts_claimed) == (2, 0)
    assert runner(jobs, job, Steps(), "two").run() is JobState.DONE
    assert jobs.progress(job.id).counts["rows"] == 6


def test_a_job_that_was_given_up_is_left(jobs: Jobs) -> None:
    job = begun(jobs)
    walk = Steps(lambda step: jobs.cancel("diff", job.id) if step == 1 else None)

    assert runner(jobs, job, walk).run() is JobState.CANCELLED
    assert len(walk.seen) == 1


def test_a_part_that_was_lost_is_counted_by_its_new_holder(jobs: Jobs) -> None:
    """I11: the first holder sleeps for longer than its lease, and wakes up."""
    job = begun(jobs)
    others: list[JobState] = []

    def sleep(step: int) -> None:
        if step == 1:
            jobs.claim(job.id, "one", -1.0)  # as if its lease were over
            others.append(runner(jobs, job, Steps(), "two").run())

    assert runner(jobs, job, Steps(sleep)).run() is JobState.DONE

    assert others == [JobState.DONE]
    assert jobs.progress(job.id).counts["rows"] == 6


def test_a_step_that_takes_longer_than_its_lease_keeps_it(jobs: Jobs) -> None:
    job, slow = begun(jobs), threading.Event()

    def other(step: int) -> None:
        if step == 1:
            assert not slow.wait(1.0)
            assert jobs.claim(job.id, "two", 30.0) is not None  # the other part
            assert jobs.claim(job.id, "three", 30.0) is None

    walk = Steps(other)
    assert runner(jobs, job, walk, lease_seconds=0.3).serve_part()

    assert jobs.progress(job.id).counts["rows"] == 3


def test_two_runners_share_the_parts(jobs: Jobs) -> None:
    job = begun(jobs)
    both = [runner(jobs, job, Steps(), worker) for worker in ("one", "two")]
    threads = [threading.Thread(target=each.run) for each in both]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert jobs.state(job.id) is JobState.DONE
    assert jobs.progress(job.id).counts["rows"] == 6
