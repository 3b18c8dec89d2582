"""A part that a worker holds: renewed while work goes on, whichever engine works at it, and lost only for good."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch
from uuid import uuid4

import pytest

from schemaless_core import ControlUnavailable, Datastore, Json
from schemaless_core.control.jobs.held_part import HeldPart
from schemaless_core.control.jobs.jobs import Job, Jobs, Part, PartLost
from tripstore.engines.backfill.chunks import ChunkSize
from tripstore.engines.backfill.runner import CopyRunnerSettings as BackfillSettings
from tripstore.engines.backfill.runner import Runner
from tripstore.engines.backfill.source import Copied, Copying
from tripstore.handover.authority import Backend
from tripstore.migration.diff.rechecking import Rechecked
from tripstore.migration.repair.ending import RepairEnding
from tripstore.migration.repair.job import RepairRunner, begin
from tripstore.migration.repair.repair import Repairing, TargetOutcome
from tripstore.migration.repair.targets import Target

#: So much longer than a renewal that no other worker comes in between.
LEASE_SECONDS = 1.5
WAIT_SECONDS = 20.0


class Renewals(Jobs):
    """Says when a part was renewed: saved without anything new."""

    def __init__(self, jobs: Jobs) -> None:
        super().__init__(jobs._control)
        self.seen = threading.Event()
        #: After it was done.
        self.then: Callable[[], None] = lambda: None

    def save(self, part: Part, worker: str, **options: Any) -> Part:
        saved = super().save(part, worker, **options)
        if options["checkpoint"] == part.checkpoint and not options["is_done"]:
            self.seen.set()
            self.then()
        return saved

    def wait(self) -> None:
        """Work at the part for longer than its lease."""
        for _lease in range(2):
            self.seen.clear()
            assert self.seen.wait(WAIT_SECONDS), "the lease is over"


@pytest.fixture
def jobs(tmp_path: Path) -> Renewals:
    datastore = Datastore.open(
        {"datastore": "trips", "shards": 2, "clusters": {"a": {"primary": f"sqlite:///{tmp_path / 'a'}"}}}
    )
    datastore.create_schema()
    return Renewals(Jobs(datastore.control))


def held(jobs: Jobs, lease_seconds: float = LEASE_SECONDS) -> HeldPart:
    job = jobs.create("backfill", {}, [{"from": 0}])
    part = jobs.claim(job.id, "one", lease_seconds)
    assert part is not None
    return HeldPart(jobs, part, "one", lease_seconds)


def test_no_other_worker_gets_a_part_that_is_worked_at(jobs: Renewals) -> None:
    found = held(jobs)

    with found.kept_alive():
        jobs.wait()
        assert jobs.claim(found.part.job, "two", 30.0) is None

    found.save(1, {"rows": 1}, is_done=True)
    assert jobs.progress(found.part.job).counts == {"rows": 1}


def test_a_renewal_whose_answer_was_lost_loses_no_part(jobs: Renewals) -> None:
    """I11: no other worker has it, so what was done is counted."""
    found, lost = held(jobs, 0.05), threading.Event()

    def lose() -> None:
        if not lost.is_set():
            lost.set()
            raise ControlUnavailable("The answer was lost.")

    jobs.then = lose
    with pytest.raises(ControlUnavailable):
        found.renew()
    found.save(1, {"rows": 1}, is_done=True)

    assert jobs.progress(found.part.job).counts == {"rows": 1}


@pytest.mark.parametrize("is_lost", [False, True], ids=["answered", "answer lost"])
def test_i11_what_is_counted_between_two_saves_goes_with_the_renewals_once(jobs: Renewals, *, is_lost: bool) -> None:
    found, lost, news = held(jobs, 0.05), threading.Event(), [{"rows": 3}, {"rows": 2}]

    def lose() -> None:
        if is_lost and not lost.is_set():
            lost.set()
            raise ControlUnavailable("The answer was lost.")

    jobs.then = lose
    with found.kept_alive(lambda: news.pop(0) if news else {}):
        while news:
            assert jobs.seen.wait(WAIT_SECONDS)
            jobs.seen.clear()
    found.save(1, {"rows": 1}, is_done=True)

    assert jobs.progress(found.part.job).counts == {"rows": 6}
    assert found.counted == {"rows": 6}
    assert lost.is_set() == is_lost


def test_a_renewal_that_breaks_is_heard_of(jobs: Renewals) -> None:
    found = held(jobs, 0.05)

    def fail() -> None:
        raise LookupError("a bug")

    jobs.then = fail
    with pytest.raises(LookupError), found.kept_alive():
        assert jobs.seen.wait(WAIT_SECONDS)


def test_what_is_lost_is_not_counted(jobs: Renewals) -> None:
    found = held(jobs, -1.0)
    assert jobs.claim(found.part.job, "two", 30.0) is not None

    with found.kept_alive():
        pass
    with pytest.raises(PartLost):
        found.save(1, {"rows": 1}, is_done=True)

    assert jobs.progress(found.part.job).counts == {}


def test_a_part_that_cannot_be_given_back_is_no_error(jobs: Renewals, caplog: pytest.LogCaptureFixture) -> None:
    found, away = held(jobs), ControlUnavailable("It is away.")

    with patch.object(jobs, "release", side_effect=away), caplog.at_level("WARNING"):
        found.give_back()
    events = [record.__dict__["event"] for record in caplog.records]
    found.give_back()

    assert events == ["jobs.release_failed"]
    assert jobs.claim(found.part.job, "two", 30.0) is not None


class SlowCopying:
    """One chunk that takes longer than a lease."""

    def __init__(self, wait: Callable[[], None]) -> None:
        self._wait = wait

    def copy(self, bounds: Json, checkpoint: Json, rows: int, verify_share: float, source_share: float = 1.0) -> Copied:
        self._wait()
        return Copied(5, 5, 5, True)


class SlowRepairing:
    """One part that takes longer than a lease."""

    def __init__(self, wait: Callable[[], None]) -> None:
        self._wait = wait

    def repair(self, targets: Sequence[Target]) -> list[TargetOutcome]:
        self._wait()
        return []


def test_a_chunk_may_take_longer_than_a_lease(jobs: Renewals) -> None:
    job = jobs.create("backfill", {}, [{"from": 0}])
    copying = cast(Copying, SlowCopying(jobs.wait))
    settings = BackfillSettings(lease_seconds=LEASE_SECONDS)

    Runner(jobs, copying, job, "one", chunks=ChunkSize(50), settings=settings).run()

    assert jobs.progress(job.id).counts == {"rows": 5, "equal": 5}


def test_a_part_of_a_repair_may_take_longer_than_a_lease(jobs: Renewals) -> None:
    job = begin(jobs, [Target(uuid4(), "BASE")], authority=Backend.LEGACY, source="diff-x", indexes=["by_status"])
    repairing = cast(Repairing, SlowRepairing(jobs.wait))
    runner = RepairRunner(jobs, job.id, repairing, slow_ending(job, jobs.wait), "one", lease_seconds=LEASE_SECONDS)

    assert [runner.serve_part(), jobs.progress(job.id).parts_done] == [True, 1]
    assert [runner.serve_part(), jobs.progress(job.id).parts_done] == [True, 2]  # so may its end


def slow_ending(job: Job, wait: Callable[[], None]) -> RepairEnding:
    """Takes longer than a lease for each thing."""

    def rebuild(_name: str) -> None:
        wait()

    def recheck(_diff: str) -> Rechecked:
        wait()
        return Rechecked()

    return RepairEnding(job, rebuild, recheck)
