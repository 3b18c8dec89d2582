"""Jobs on control databases of every engine: leased, fenced, and exact whatever happens between (I11)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa

from schemaless_core import ControlUnavailable
from schemaless_core.cell.canonical import Json
from schemaless_core.control.audit import AuditLog
from schemaless_core.control.database import ControlDatabase
from schemaless_core.control.jobs.jobs import HAS_END, STAGES, Finding, Job, Jobs, JobState, Part, PartLost
from schemaless_core.control.ledgers.ledgers import Ledgers
from schemaless_core.control.tables import job_part
from schemaless_core.errors import InvalidRequest
from schemaless_core.failpoints import FailpointReached, use_folder
from tests.stores import Stores

Opener = Callable[[], ControlDatabase]
#: Longer than a test; and one that is over when it is looked at.
LONG, OVER = 3600.0, -1.0


@pytest.fixture
def open_control(datastore_engine: str, stores: Stores) -> Opener:
    return stores.control_opener(datastore_engine)


@pytest.fixture
def control(open_control: Opener) -> Iterator[ControlDatabase]:
    with closing(open_control()) as opened:
        yield opened


@pytest.fixture
def jobs(control: ControlDatabase) -> Jobs:
    return Jobs(control)


def begun(jobs: Jobs, parts: int = 2, **spec: Json) -> Job:
    return jobs.create("backfill", spec, [{"from": number} for number in range(parts)])


def claimed(jobs: Jobs, job: Job, worker: str = "w", lease_seconds: float = LONG) -> Part:
    part = jobs.claim(job.id, worker, lease_seconds)
    assert part is not None
    return part


def saved(jobs: Jobs, part: Part, worker: str = "w", *, is_done: bool = False, **options: Any) -> Part:
    known: dict[str, Any] = {"checkpoint": {"after": "k"}, "counts": {"rows": 10}, "lease_seconds": LONG} | options
    return jobs.save(part, worker, is_done=is_done, **known)


def note_of(control: ControlDatabase, job: Job) -> dict[str, Json]:
    (found,) = [note.body for note in Ledgers(control).notes(job.kind) if note.body["job"] == job.id]
    return found


def test_a_job_is_found_by_its_id_and_the_newest_as_last(jobs: Jobs) -> None:
    first, second = begun(jobs), begun(jobs, columns=["BASE"])
    jobs.create("diff", {}, [None])

    assert jobs.find("backfill", first.id) == first
    assert jobs.find("backfill", "last") == second
    assert [job.id for job in jobs.all("backfill")] == [second.id, first.id]
    assert len(jobs.all()) == 3
    assert second.spec == {"columns": ["BASE"]}
    assert abs(second.begun_at - datetime.now(UTC)) < timedelta(minutes=1)


@pytest.mark.parametrize("asked", ["last", "backfill-00000000"])
def test_a_job_that_is_not_there_is_refused_with_a_hint(jobs: Jobs, asked: str) -> None:
    jobs.create("diff", {}, [None])

    with pytest.raises(InvalidRequest) as caught:
        jobs.find("backfill", asked)

    assert caught.value.hint


def test_a_part_is_one_workers_until_its_lease_is_over(jobs: Jobs) -> None:
    job = begun(jobs)
    first, second = claimed(jobs, job, "a"), claimed(jobs, job, "b")

    assert (first.number, second.number) == (0, 1)
    assert (first.bounds, first.checkpoint) == ({"from": 0}, None)
    assert jobs.claim(job.id, "c", LONG) is None

    saved(jobs, second, "b", lease_seconds=OVER)
    taken = claimed(jobs, job, "c")

    assert (taken.number, taken.checkpoint) == (1, {"after": "k"})
    assert taken.fence > second.fence


def test_a_worker_whose_claim_was_never_answered_gets_the_same_part(jobs: Jobs) -> None:
    job = begun(jobs)
    lost = claimed(jobs, job, "a")

    assert claimed(jobs, job, "a").number == lost.number


def test_a_part_that_was_given_back_is_claimed_again(jobs: Jobs) -> None:
    job = begun(jobs, 1)
    part = saved(jobs, claimed(jobs, job, "a"), "a")

    jobs.release(part, "a")

    assert claimed(jobs, job, "b").checkpoint == {"after": "k"}
    jobs.release(part, "a")  # what is not its own any more
    assert jobs.progress(job.id).parts_claimed == 1


def test_who_was_away_for_too_long_saves_nothing(jobs: Jobs) -> None:
    job = begun(jobs, 1)
    late = claimed(jobs, job, "a", OVER)
    present = claimed(jobs, job, "b")

    with pytest.raises(PartLost):
        saved(jobs, late, "a", findings=[Finding("unreadable")])

    assert jobs.progress(job.id).counts == {}
    assert jobs.findings(job.id) == []
    assert saved(jobs, present, "b").fence == present.fence + 1


def test_a_lease_that_is_over_still_saves_when_no_other_worker_has_taken_the_part(jobs: Jobs) -> None:
    job = begun(jobs, 1)

    saved(jobs, claimed(jobs, job, "a", OVER), "a")

    assert jobs.progress(job.id).counts == {"rows": 10}


def test_a_save_whose_answer_was_lost_counts_once(jobs: Jobs) -> None:
    """I11."""
    job = begun(jobs, 1)
    part = claimed(jobs, job)

    first = saved(jobs, part, findings=[Finding("unreadable")])
    again = saved(jobs, part, findings=[Finding("unreadable")])

    assert again == first
    assert jobs.progress(job.id).counts == {"rows": 10}
    assert len(jobs.findings(job.id)) == 1
    last = saved(jobs, again, is_done=True)
    assert saved(jobs, again, is_done=True) == last
    assert jobs.progress(job.id).counts == {"rows": 20}


def test_the_same_checkpoint_twice_is_refused_when_it_was_moved_in_between(jobs: Jobs) -> None:
    job = begun(jobs, 1)
    part = claimed(jobs, job)
    saved(jobs, saved(jobs, part), checkpoint={"after": "l"})

    with pytest.raises(PartLost):
        saved(jobs, part)


def test_a_save_is_all_or_nothing(jobs: Jobs, control: ControlDatabase, failpoints: Path) -> None:
    """I11: counters, checkpoint and findings are one transaction."""
    job = begun(jobs, 1)
    part = claimed(jobs, job)
    use_folder(failpoints)
    try:
        (failpoints / "jobs.saving").write_text("raise")
        with pytest.raises(FailpointReached):
            saved(jobs, part, findings=[Finding("unreadable", uuid4(), "BASE", 3, {"reason": "r"})], is_done=True)
    finally:
        use_folder(None)

    progress = jobs.progress(job.id)
    assert (progress.counts, progress.parts_done, progress.findings_open) == ({}, 0, 0)
    assert note_of(control, job)["is_complete"] is False
    assert saved(jobs, part, is_done=True).state is JobState.DONE


def test_the_last_part_ends_the_job_and_its_note_says_so(jobs: Jobs, control: ControlDatabase) -> None:
    job = begun(jobs, 2, is_partial=True, note={"capture_since": "2026"})
    first, second = claimed(jobs, job, "a"), claimed(jobs, job, "b")

    assert saved(jobs, first, "a", is_done=True).state is JobState.RUNNING
    assert note_of(control, job)["is_complete"] is False
    found = saved(jobs, second, "b", is_done=True, findings=[Finding("unreadable")], counts={"rows": 5})

    assert found.state is JobState.DONE
    ended = jobs.find("backfill", job.id)
    assert ended.ended_at is not None
    assert note_of(control, job) == {
        "job": job.id,
        "begun_at": job.begun_at.isoformat(),
        "ended_at": ended.ended_at.isoformat(),
        "is_complete": True,
        "is_partial": True,
        "rows": 15,
        "open": 1,
        "not_compared": 0,
        "capture_since": "2026",
    }


def test_the_last_part_of_a_job_with_an_end_waits_until_all_others_are_done(jobs: Jobs) -> None:
    job = begun(jobs, 3, **{HAS_END: True})
    first, second = claimed(jobs, job, "a"), claimed(jobs, job, "b")

    assert jobs.claim(job.id, "c", LONG) is None
    saved(jobs, second, "b", is_done=True)
    assert jobs.claim(job.id, "b", LONG) is None
    saved(jobs, first, "a", is_done=True)
    assert jobs.state(job.id) is JobState.RUNNING
    last = claimed(jobs, job, "b")
    assert jobs.claim(job.id, "a", LONG) is None  # it is one worker's, too

    assert (first.number, second.number, last.number) == (0, 1, 2)
    assert saved(jobs, last, "b", is_done=True).state is JobState.DONE
    alone = begun(jobs, 1, **{HAS_END: True})
    assert claimed(jobs, alone).number == 0


def test_parts_of_a_stage_wait_until_all_before_it_are_done_and_are_shared(jobs: Jobs) -> None:
    stages: dict[str, Json] = {STAGES: [2, 4]}
    job = begun(jobs, 5, **stages)
    first, second = claimed(jobs, job, "a"), claimed(jobs, job, "b")
    saved(jobs, first, "a", is_done=True)
    assert jobs.claim(job.id, "a", LONG) is None

    saved(jobs, second, "b", is_done=True)

    third, fourth = claimed(jobs, job, "a"), claimed(jobs, job, "b")
    assert jobs.claim(job.id, "c", LONG) is None
    saved(jobs, fourth, "b", is_done=True)
    assert jobs.claim(job.id, "b", LONG) is None
    saved(jobs, third, "a", is_done=True)
    last = claimed(jobs, job, "b")
    assert [part.number for part in (first, second, third, fourth, last)] == [0, 1, 2, 3, 4]
    assert saved(jobs, last, "b", is_done=True).state is JobState.DONE


def test_two_who_finish_the_last_parts_at_once_end_the_job(open_control: Opener, jobs: Jobs) -> None:
    job = begun(jobs, 4)
    parts = {name: claimed(jobs, job, name) for name in "abcd"}
    begin = threading.Barrier(4)

    def finish(name: str) -> None:
        with closing(open_control()) as own:
            begin.wait()
            saved(Jobs(own), parts[name], name, is_done=True)

    threads = [threading.Thread(target=finish, args=(name,)) for name in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert jobs.state(job.id) is JobState.DONE
    assert jobs.progress(job.id).counts == {"rows": 40}


def test_many_who_claim_at_once_get_a_part_each(open_control: Opener, jobs: Jobs) -> None:
    job = begun(jobs, 6)
    begin = threading.Barrier(6)
    found: list[int] = []

    def take(name: str) -> None:
        with closing(open_control()) as own:
            begin.wait()
            found.append(claimed(Jobs(own), job, name).number)

    threads = [threading.Thread(target=take, args=(name,)) for name in "abcdef"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(found) == list(range(6))


def test_findings_are_paged_and_solved_wherever_they_were_found(jobs: Jobs, control: ControlDatabase) -> None:
    job, key = begun(jobs, 1), uuid4()
    some = [Finding("unreadable", key, "BASE", n, {"reason": "r", "field": "$.fare"}) for n in range(3)]
    saved(jobs, claimed(jobs, job), findings=[*some, Finding("conflict", key)], is_done=True)

    page = jobs.findings(job.id, limit=2)
    rest = jobs.findings(job.id, after=page[-1].id)
    assert [each.ref_key for each in page + rest] == [0, 1, 2, None]
    assert page[0].row_key == key
    assert page[0].body == {"reason": "r", "field": "$.fare"}
    assert [each.kind for each in jobs.findings(job.id, kinds=["conflict"])] == ["conflict"]

    jobs.solve(job.id, [page[0].id])
    retry = jobs.create("backfill", {"is_partial": True}, [None])
    saved(jobs, claimed(jobs, retry), solved=[page[1].id], is_done=True)

    assert [each.id for each in jobs.findings(job.id)] == [each.id for each in rest]
    assert len(jobs.findings(job.id, open_only=False)) == 4
    assert note_of(control, job)["open"] == 2


def test_what_is_counted_as_open_is_that_where_findings_are_a_sample(jobs: Jobs, control: ControlDatabase) -> None:
    job = jobs.create("diff", {}, [None])
    saved(
        jobs, claimed(jobs, job), findings=[Finding("missing")], counts={"open": 900, "not_compared": 2}, is_done=True
    )

    (found,) = jobs.findings(job.id)
    jobs.solve(job.id, [found.id], counts={found.id: {"open": -899}})

    assert note_of(control, job)["open"] == 1
    assert note_of(control, job)["not_compared"] == 2


def test_a_finding_that_several_solve_is_counted_once(
    jobs: Jobs, control: ControlDatabase, open_control: Opener
) -> None:
    """I11, I12: two rechecks of a diff that look at the same page, and one whose answer was lost."""
    job = jobs.create("diff", {}, [None])
    some = [Finding("differs", uuid4(), "BASE", n) for n in range(3)]
    saved(jobs, claimed(jobs, job), findings=some, counts={"open": 3, "rows": 3}, is_done=True)
    page = [each.id for each in jobs.findings(job.id)]
    begin = threading.Barrier(4)

    def recheck(ids: list[int]) -> None:
        with closing(open_control()) as own:
            begin.wait()
            Jobs(own).solve(job.id, ids, counts={number: {"open": -1, "solved": 1} for number in ids})

    threads = [threading.Thread(target=recheck, args=(ids,)) for ids in (page[:1], page[:1], page[:2], page[1:2])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    recheck_again = {number: {"open": -1, "solved": 1} for number in page[:2]}
    jobs.solve(job.id, page[:2], counts=recheck_again)

    counts = jobs.progress(job.id).counts
    assert (counts["open"], counts["solved"]) == (1, 2)
    assert [each.id for each in jobs.findings(job.id)] == page[2:]
    assert note_of(control, job)["open"] == 1


def test_an_index_that_was_not_compared_is_in_the_note(jobs: Jobs, control: ControlDatabase) -> None:
    """I12: the gate goes by the note. So are older versions, but for those that a store has forgotten."""
    job = jobs.create("diff", {}, [None])
    counts = {"not_compared": 2, "index_not_compared": 5, "older_not_compared": 3, "older_forgotten": 100}
    saved(jobs, claimed(jobs, job), counts=counts, is_done=True)

    assert note_of(control, job)["not_compared"] == 10


def test_a_paused_job_is_not_begun_and_a_chunk_in_hand_still_counts(jobs: Jobs, control: ControlDatabase) -> None:
    job = begun(jobs)
    part = claimed(jobs, job)

    paused = jobs.pause("backfill", "last", "load")

    assert (paused.state, paused.why) == (JobState.PAUSED, "load")
    assert jobs.claim(job.id, "other", LONG) is None
    assert saved(jobs, part).state is JobState.PAUSED
    assert jobs.progress(job.id).counts == {"rows": 10}
    assert jobs.resume("backfill", job.id).state is JobState.RUNNING
    assert claimed(jobs, job, "other").number == 1
    assert [each.action for each in AuditLog(control).newest(3)] == [
        "backfill.resume",
        "backfill.pause",
        "backfill.start",
    ]


def test_a_cancelled_job_never_goes_on(jobs: Jobs, control: ControlDatabase) -> None:
    job = begun(jobs, 1)
    part = claimed(jobs, job)
    jobs.cancel("backfill", job.id)

    assert saved(jobs, part, is_done=True).state is JobState.CANCELLED
    assert jobs.claim(job.id, "w", LONG) is None
    with pytest.raises(InvalidRequest, match="cancelled"):
        jobs.resume("backfill", job.id)
    assert jobs.find("backfill", job.id).ended_at is not None
    assert note_of(control, job)["is_complete"] is False


def test_a_job_that_is_done_cannot_be_paused(jobs: Jobs) -> None:
    job = begun(jobs, 0)

    assert job.state is JobState.DONE
    with pytest.raises(InvalidRequest, match="done"):
        jobs.pause("backfill", job.id)


def test_progress_tells_parts_and_what_workers_said_last(jobs: Jobs) -> None:
    job = begun(jobs, 3)
    saved(jobs, claimed(jobs, job, "a"), "a", is_done=True)
    claimed(jobs, job, "b")
    claimed(jobs, job, "c", OVER)
    for rate in (1, 2):
        jobs.tell(job.id, "b", {"rate": rate, "throttle": None})
    jobs.tell(job.id, "c", {"rate": 0})
    jobs.leave(job.id, "c")

    found = jobs.progress(job.id)

    assert (found.parts, found.parts_done, found.parts_claimed) == (3, 1, 1)
    assert [(news.worker, news.body) for news in found.workers] == [("b", {"rate": 2, "throttle": None})]
    assert found.workers[0].seconds < 60
    assert found.saved_at is not None


def test_leases_go_by_the_control_databases_clock(
    jobs: Jobs, control: ControlDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host whose clock is a day ahead takes nothing from anybody."""
    job = begun(jobs, 1)
    claimed(jobs, job, "a", 60)
    monkeypatch.setattr("time.time", lambda: 4e9)

    assert jobs.claim(job.id, "b", 60) is None
    with control.begin() as connection:
        connection.execute(sa.update(job_part).values(until_ms=job_part.c.until_ms - 61_000))
    assert claimed(jobs, job, "b").number == 0


def test_without_its_database_a_job_waits(
    jobs: Jobs, control: ControlDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_arguments: object) -> None:
        raise ControlUnavailable("The control database cannot be reached.")

    job = begun(jobs, 1)
    part = claimed(jobs, job)
    with monkeypatch.context() as patched:
        patched.setattr(ControlDatabase, "begin", broken)
        with pytest.raises(ControlUnavailable):
            saved(jobs, part)

    assert saved(jobs, part).fence == part.fence + 1
