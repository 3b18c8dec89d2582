"""What is old goes out of control databases of every engine, by portions; what a gate or a running job needs stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from schemaless_core.cell.canonical import Json
from schemaless_core.config import PruneConfig
from schemaless_core.control.audit import AuditLog
from schemaless_core.control.database import ControlDatabase
from schemaless_core.control.jobs.jobs import Finding, Job, Jobs
from schemaless_core.control.ledgers.ledgers import Ledgers
from schemaless_core.control.paces import SharedPace
from schemaless_core.control.pruning import old_jobs, old_rows
from schemaless_core.control.pruning.old_jobs import OldJobs
from schemaless_core.control.pruning.old_rows import audit_portions, count_portions
from schemaless_core.control.pruning.pruner import Pruner
from schemaless_core.control.pruning.pruning import PrunedRows, Pruning
from schemaless_core.control.seals import seal_faults
from schemaless_core.control.sizes import size_fact, table_sizes
from schemaless_core.control.tables import audit as audit_table
from schemaless_core.control.tables import job_count, job_finding, job_part, job_worker
from schemaless_core.errors import InvalidRequest
from schemaless_core.failpoints import FailpointReached, use_folder
from tests.stores import Stores
from tripstore.migration.cutover.look import find_job_facts
from tripstore.migration.cutover.redone import redone_diffs
from tripstore.migration.diff.again import seen_by_samples

#: Every job that has ended is older than so many days.
ALL = -1.0
NOW = datetime(2026, 6, 1, 12, 30, tzinfo=UTC)
MISSING: Json = {"reason": "missing"}


@pytest.fixture
def open_control(datastore_engine: str, stores: Stores) -> Callable[[], ControlDatabase]:
    return stores.control_opener(datastore_engine)


@pytest.fixture
def control(open_control: Callable[[], ControlDatabase], monkeypatch: pytest.MonkeyPatch) -> Iterator[ControlDatabase]:
    """One of which few rows are kept, and go by few at a time."""
    monkeypatch.setattr(old_jobs, "KEPT", 1)
    monkeypatch.setattr(old_jobs, "PORTION_ROWS", 2)
    monkeypatch.setattr(old_rows, "PORTION_ROWS", 2)
    with closing(open_control()) as opened:
        yield opened


def done(control: ControlDatabase, kind: str, findings: int = 0, parts: int = 3, **spec: Json) -> Job:
    """A job that has ended, and found so much, which is open."""
    jobs = Jobs(control)
    job = jobs.create(kind, spec, [None] * parts)
    jobs.tell(job.id, "w", {"rate": 1})
    for number in range(parts):
        part = jobs.claim(job.id, "w", 3600.0)
        assert part is not None, "a part is free"
        found = [Finding("missing", None, None, None, {})] * (findings if not number else 0)
        counts = {"rows": 1} | ({"open": findings} if found and kind == "diff" else {})
        jobs.save(part, "w", checkpoint=None, counts=counts, findings=found, is_done=True, lease_seconds=3600.0)
    return jobs.find(kind, job.id)


def ids(control: ControlDatabase) -> set[str]:
    return {job.id for job in Jobs(control).all()}


def rows_of(control: ControlDatabase, *jobs: Job) -> int:
    """How many rows there are beside those of the jobs themselves."""
    with control.begin() as connection:
        return sum(
            connection.execute(sa.select(sa.func.count()).where(table.c.job.in_([job.id for job in jobs]))).scalar_one()
            for table in (job_part, job_count, job_finding, job_worker)
        )


def solve(control: ControlDatabase, job: Job) -> None:
    jobs = Jobs(control)
    jobs.solve(job.id, [each.id for each in jobs.findings(job.id)])


def test_jobs_that_ended_long_ago_go_with_all_their_rows_and_gates_see_the_same(control: ControlDatabase) -> None:
    first, solved = done(control, "backfill"), done(control, "backfill", findings=5)
    solve(control, solved)
    newest = done(control, "backfill")
    seen = find_job_facts(control, "backfill")

    assert OldJobs(control).due(90) == []
    removed = sum(OldJobs(control).portions(ALL))

    assert ids(control) == {newest.id}
    assert rows_of(control, first, solved) == 0
    assert removed == 2 + 2 * 3 + 5  # the jobs, their parts and findings
    assert find_job_facts(control, "backfill") == seen
    assert len(Ledgers(control).notes("backfill")) == 3


def test_a_job_that_is_pruned_while_diffs_are_listed_is_named_or_passed(
    control: ControlDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, newest = done(control, "diff"), done(control, "diff")
    jobs, listed = Jobs(control), Jobs(control).all("diff")
    list(OldJobs(control).portions(ALL))
    with pytest.raises(InvalidRequest, match=f"There is no job {old.id}"):
        jobs.progress(old.id)

    monkeypatch.setattr(jobs, "all", lambda _kind: listed)

    assert seen_by_samples(jobs).rows == {}
    assert ids(control) == {newest.id}


def test_what_is_open_or_runs_or_is_named_or_is_history_stays(control: ControlDatabase) -> None:
    whole, lost = done(control, "diff"), done(control, "loss")
    done(control, "loss")
    named = done(control, "backfill")
    quarantined = done(control, "backfill", findings=1)
    differs = done(control, "diff", findings=1, is_partial=True)
    part_of_one = done(control, "diff", is_partial=True)
    for kind in ("backfill", "diff"):
        done(control, kind, is_partial=True)
    running = Jobs(control).create("repair", {"of": named.id}, [None])
    old = OldJobs(control, ["loss"])

    assert old.due(ALL) == [part_of_one.id]
    Jobs(control).cancel("repair", running.id)
    assert old.due(ALL) == [named.id, part_of_one.id]
    list(old.portions(ALL))
    # The newest whole one of its kind; what Postgres lost; what is open.
    assert {whole.id, lost.id, quarantined.id, differs.id} <= ids(control)


def test_control_without_a_look_at_what_is_open_a_quarantine_is_forgotten(
    control: ControlDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    quarantined = done(control, "backfill", findings=1)
    done(control, "backfill")
    assert OldJobs(control).due(ALL) == []

    monkeypatch.setattr(old_jobs, "_OPEN_FINDING", sa.false())

    assert OldJobs(control).due(ALL) == [quarantined.id]


def test_a_diff_that_a_later_one_has_redone_goes_with_what_it_found(control: ControlDatabase) -> None:
    differs = done(control, "diff", findings=1)
    assert redone_diffs(control) == set()
    last = done(control, "diff")

    assert redone_diffs(control) == {differs.id}
    assert OldJobs(control).due(ALL) == []
    assert OldJobs(control, (), lambda: redone_diffs(control)).due(ALL) == [differs.id]
    assert last.id in ids(control)


@pytest.mark.parametrize("failpoint", ["pruning.job_gone", "pruning.portion_gone"])
def test_what_a_killed_process_left_of_a_job_is_removed_by_the_next(
    control: ControlDatabase, failpoints: Path, failpoint: str
) -> None:
    old = done(control, "backfill", findings=5)
    solve(control, old)
    newest = done(control, "backfill")
    use_folder(failpoints)
    (failpoints / failpoint).write_text("raise")

    with pytest.raises(FailpointReached):
        list(OldJobs(control).portions(ALL))
    assert ids(control) == {newest.id}  # no command shows a half of it
    assert rows_of(control, old)
    list(OldJobs(control).portions(ALL))

    assert rows_of(control, old) == 0
    assert rows_of(control, newest)


def test_counts_go_by_their_hour_and_what_gates_ask_for_is_the_same(control: ControlDatabase) -> None:
    ledgers, week = Ledgers(control), NOW - timedelta(days=7)
    for days in (200, 100, 91, 89, 7, 0):
        for ledger in ("shadow", "timings"):
            ledgers.add(ledger, {"equal": 1, "mismatch": 2}, NOW - timedelta(days=days))
    seen = ledgers.counts("shadow", week)

    assert list(count_portions(control, 90, NOW)) == [2] * 6

    assert ledgers.counts("shadow", week) == seen == {"equal": 2, "mismatch": 4}
    assert ledgers.counts("timings") == {"equal": 3, "mismatch": 6}
    assert list(count_portions(control, 90, NOW)) == []


def test_the_audit_log_keeps_everything_unless_it_is_told_otherwise(control: ControlDatabase) -> None:
    audit = AuditLog(control)
    for number in range(5):
        audit.add("phase.set", {"number": number})
    later = datetime.now(UTC) + timedelta(days=3)
    jobs = OldJobs(control)

    assert list(Pruning(control, PruneConfig(), jobs, lambda: later + timedelta(days=4000)).portions()) == []
    assert list(audit_portions(control, 4, later)) == []
    assert len(audit.newest()) == 5
    told = Pruning(control, PruneConfig(jobs_days=0, counts_days=0, audit_days=2), jobs, lambda: later)
    assert list(told.portions()) == [PrunedRows("audit", 2), PrunedRows("audit", 2), PrunedRows("audit", 1)]
    assert audit.newest() == []
    assert [*seal_faults(*audit.sealed())] == []
    assert audit.sealed()[0].pruned == 5


def test_no_entry_of_the_audit_log_goes_before_one_that_stays(control: ControlDatabase) -> None:
    """A host's clock was behind: its entry says that it is older than the one before it."""
    log = AuditLog(control)
    for number in range(3):
        log.add("phase.set", {"number": number})
    with control.begin() as connection:
        entries = connection.execute(sa.select(audit_table.c.id).order_by(audit_table.c.id)).scalars().all()
        behind = sa.update(audit_table).where(audit_table.c.id == entries[1]).values(at="2020-01-01T00:00:00")
        connection.execute(behind)

    assert list(audit_portions(control, 1, datetime.now(UTC))) == []
    assert len(log.newest()) == 3


def test_of_all_workers_one_prunes_at_a_time_and_the_others_have_their_turn_later(control: ControlDatabase) -> None:
    def pruner() -> Pruner:
        pruning = Pruning(control, PruneConfig(), OldJobs(control), lambda: NOW)
        return Pruner(pruning, SharedPace(control, "prune"), rest_seconds=0.0)

    def add() -> None:
        Ledgers(control).add("shadow", {"equal": 1}, NOW - timedelta(days=100))

    add()
    assert pruner().turn() > 0
    assert Ledgers(control).counts("shadow") == {}
    add()
    assert pruner().turn() > 0
    assert Ledgers(control).counts("shadow") == {"equal": 1}


def test_doctor_says_how_large_the_tables_are_and_that_no_worker_prunes_them(control: ControlDatabase) -> None:
    Ledgers(control).add("shadow", {"equal": 1}, NOW - timedelta(days=91))
    done(control, "backfill")

    sizes = {size.table: size for size in table_sizes(control)}

    assert {"audit", "job", "job_finding", "job_part", "ledger_count", "ledger_note"} <= set(sizes)
    assert "ledger_count" in size_fact(control, 90, NOW).value
    assert size_fact(control, 90, NOW).is_fine  # a worker may come yet
    late = size_fact(control, 90, NOW + timedelta(days=3))
    assert not late.is_fine
    assert "worker run" in late.advice
    assert size_fact(control, 0, NOW + timedelta(days=3)).is_fine
