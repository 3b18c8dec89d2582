"""How far a job is, as it is told: estimates are called estimates, and no worker that fell silent is said to work."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from schemaless_core.control.jobs.jobs import Job, JobProgress, JobState, WorkerNews
from schemaless_core.errors import ControlUnavailable
from tripstore.cli.jobs.documents import IDLE, SILENT_SECONDS, ProgressDocument, progress_document
from tripstore.cli.jobs.screens import progress_line, telling

AT = datetime(2026, 11, 2, 3, 0, tzinfo=UTC)
EARLIER = AT - timedelta(minutes=5)


def progress(
    *workers: WorkerNews,
    state: JobState = JobState.RUNNING,
    claimed: int = 1,
    detached: bool = False,
    saved: datetime | None = AT,
    **spec: Any,
) -> JobProgress:
    ended = AT if state is JobState.DONE else None
    job = Job("backfill-1", "backfill", {"estimate": 1_000, **spec}, state, EARLIER, ended, "ann", "host", "", detached)
    return JobProgress(job, {"rows": 250}, 4, 1, claimed, 0, workers, saved, AT)


def worker(rate: float, seconds: float = 0.5, throttle: str | None = None) -> WorkerNews:
    return WorkerNews(f"worker {rate}", seconds, {"rate": rate, "throttle": throttle})


def test_the_time_left_follows_from_the_estimate_and_from_what_all_workers_do() -> None:
    seen = progress_document(progress(worker(100.0), worker(50.0)))

    assert (seen.rows, seen.rows_estimate, seen.rate, seen.eta_seconds) == (250, 1_000, 150.0, 5.0)
    assert progress_line(seen) == "backfill-1: 250 of about 1,000 (est.) rows, 150 rows/s, about 5 s left"
    assert seen.is_fine


def test_an_estimate_that_was_too_low_leaves_no_time_and_no_estimate_says_nothing() -> None:
    assert progress_document(progress(worker(100.0), estimate=100)).eta_seconds == 0.0
    assert progress_document(progress(worker(100.0), estimate=None)).eta_seconds is None
    assert progress_document(progress(worker(0.0))).eta_seconds is None


def test_why_workers_wait_is_said_once_per_reason() -> None:
    seen = progress_document(progress(worker(1.0, throttle="rate limit"), worker(2.0, throttle="rate limit")))

    assert seen.throttles == ["rate limit"]
    assert progress_line(seen).endswith("; waits: rate limit")


def test_which_limits_hold_is_said_by_name() -> None:
    slow = WorkerNews("slow", 0.5, {"rate": 1.0, "throttle": "the probe took 60 ms", "limit": "probe"})
    former = WorkerNews("former", 0.5, {"rate": 1.0, "throttle": None})

    seen = progress_document(progress(slow, former))

    assert seen.limits == ["probe"]
    assert [each.limit for each in seen.workers] == ["probe", None]


def test_a_silent_worker_does_not_count_and_no_worker_at_all_is_an_advice() -> None:
    silent = worker(100.0, seconds=SILENT_SECONDS + 1)

    held, left = progress_document(progress(silent)), progress_document(progress(silent, claimed=0, saved=EARLIER))
    detached = progress_document(progress(silent, claimed=0, saved=EARLIER, detached=True))

    assert (held.workers, held.rate, held.is_fine) == ([], 0.0, True)  # its lease is not over
    ways = "`tripstore backfill resume backfill-1` goes on, `tripstore backfill cancel backfill-1` gives it up"
    since = "no process works at backfill-1 since 2026-11-02 02:59:49 UTC:"
    assert left.advice == [f"{since} {ways}"]
    assert detached.advice == [f"{since} `tripstore worker run` does, or {ways}"]
    assert (left.job.state, left.job.shown_state, held.job.shown_state) == ("running", IDLE, "running")
    assert progress_line(left) == "backfill-1: 250 of about 1,000 (est.) rows", "it has no pace"
    assert progress_document(progress(claimed=0, state=JobState.PAUSED)).is_fine


def test_the_last_sign_of_life_of_a_job_is_that_of_its_workers_or_what_they_saved_or_its_beginning() -> None:
    silent = worker(100.0, seconds=60.0)

    def since(*workers: WorkerNews, saved: datetime | None) -> datetime | None:
        return progress_document(progress(*workers, claimed=0, saved=saved)).job.idle_since

    assert since(silent, saved=EARLIER) == AT - timedelta(seconds=60)
    assert since(silent, saved=AT) == AT
    assert since(saved=None) == EARLIER


def test_a_line_comes_per_interval_and_a_control_database_that_is_away_ends_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    looks: list[int] = []
    seen, enough = progress_document(progress(worker(100.0))), threading.Event()

    def look() -> ProgressDocument:
        looks.append(1)
        if len(looks) == 2:
            raise ControlUnavailable("It is away.")
        if len(looks) == 4:
            enough.set()
        return seen

    with telling(look, interval=0.001):
        assert enough.wait(10)

    lines = capsys.readouterr().err.splitlines()
    assert len(looks) - 1 == len(lines) >= 3
    assert set(lines) == {progress_line(seen)}
