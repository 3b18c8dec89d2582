"""What a Postgres that was promoted may lack, and what of that has to be named: whatever was at work meanwhile."""

from __future__ import annotations

import threading
import time

from schemaless_core import CellKey
from schemaless_core.control.jobs.jobs import Jobs
from schemaless_core.control.jobs.records import Job, JobState
from tests.facades import Migration, facts_of
from tests.indexing import catch_up
from tests.mirrors import log_of
from tripstore.backends.postgres.errors import HistoryTruncated
from tripstore.handover.accept import EPOCHS_PER_TIMELINE
from tripstore.handover.authority import Authority, Backend
from tripstore.migration.cutover.plan import Direction, plan
from tripstore.migration.diff.diff import Diffing
from tripstore.migration.diff.order import Order as DiffOrder
from tripstore.migration.losses.losses import LookStart, Losses, key_of
from tripstore.migration.repair.job import RepairRunner, begin
from tripstore.migration.repair.opening import Repairs
from tripstore.migration.repair.targets import indexes_of, of_job, targets_of


def check_accepted(hands: Migration) -> Authority:
    """I9: the promoted server is the authority, at an epoch that the lost one has not given."""
    row = hands.duo.ports.control.authority()
    assert row.is_open_for(Backend.LEGACY)
    assert row.epoch == 2 * EPOCHS_PER_TIMELINE + 2, row
    return row


def check_ledger(hands: Migration) -> set[CellKey]:
    """I1: each cell that the mirror has and Postgres lacks, or has otherwise, is in the ledger, and no other is."""
    losses = Losses(hands.facade)
    job = losses.begin(LookStart())
    losses.serve(job)
    listed = {key_of(found) for found in losses.listed(job.id)}
    lacking, forgotten = lost(hands)
    assert listed - forgotten == lacking, (listed - forgotten).symmetric_difference(lacking)
    return listed


def lost(hands: Migration) -> tuple[set[CellKey], set[CellKey]]:
    """Of each cell of the mirror's logs: those that Postgres does not have like this, and of which it cannot tell."""
    lacking, forgotten = set[CellKey](), set[CellKey]()
    cells = log_of(hands)
    assert cells
    for cell in cells:
        try:
            known = hands.duo.legacy.get_cell(*cell.key)
        except HistoryTruncated:
            forgotten.add(CellKey(*cell.key))
        else:
            lacking |= set() if known == cell else {CellKey(*cell.key)}
    return lacking, forgotten


def refused(hands: Migration) -> set[str]:
    """The gates that refuse a switch."""
    verdicts = plan(Direction.FORWARD, facts_of(hands), hands.facade.config.cutover).verdicts
    return {each.name for each in verdicts if not each.is_passed}


def mend_mirror(hands: Migration) -> None:
    """What the promoted Postgres says is right: nothing of what was lost is left open."""
    losses = Losses(hands.facade)
    job = losses.begin(LookStart())
    losses.serve(job)
    losses.mend_mirror(job)
    assert losses.open(job) == 0


def compared(hands: Migration) -> str:
    """A diff of everything, by indexes that have caught up; its job."""
    catch_up(hands.facade.store)
    diffing = Diffing(hands.facade)
    job = diffing.begin(diffing.plan(DiffOrder()))
    assert diffing.runner(job, "test").run() is JobState.DONE
    return job.id


def repairing(hands: Migration, diff: str) -> Job:
    """A repair of what a diff has found; nothing is done yet."""
    repairs = Repairs(hands.facade)
    targets = targets_of(of_job(repairs.jobs, diff))
    return begin(repairs.jobs, targets, authority=Backend.LEGACY, source=diff, indexes=indexes_of(repairs.jobs, diff))


def repairer(hands: Migration, job: Job, *, is_patient: bool = False) -> RepairRunner:
    """A worker. One that is patient waits between its tries, as production does."""
    repairs = Repairs(hands.facade)
    sleep = time.sleep if is_patient else lambda _seconds: None
    return RepairRunner(repairs.jobs, job.id, repairs.of_job(job), repairs.ending(job), sleep=sleep)


def check_mends(hands: Migration) -> None:
    """I8, I12: what is offered after a loss makes the stores equal, whatever was believed before. Services rest."""
    mend_mirror(hands)
    assert repairer(hands, repairing(hands, compared(hands))).run(threading.Event()) is JobState.DONE
    hands.carry()
    counts = Jobs(hands.facade.store.control).progress(compared(hands)).counts
    assert (counts.get("open", 0), counts.get("not_compared", 0)) == (0, 0), counts
    assert counts["rows"] > 0
    assert not refused(hands).intersection({"lost changes", "diff"})
