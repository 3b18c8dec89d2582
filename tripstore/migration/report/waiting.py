"""How many findings need attention: all of them, however few are listed."""

from __future__ import annotations

from collections.abc import Iterable

from schemaless_core.control.jobs.jobs import Job, Jobs
from schemaless_core.control.jobs.notes import NOT_COMPARED
from tripstore.engines.validation.diff.differences import NotCompared
from tripstore.engines.validation.diff.runner import KIND as DIFF
from tripstore.engines.validation.report.document import ReportWaiting
from tripstore.migration.report.mismatches import CONFLICT, DIFFERENT, INDEX, is_difference

FINDINGS_PER_PAGE = 1000


def waiting_of(jobs: Jobs, counting: Iterable[Job]) -> ReportWaiting:
    """Of these jobs."""
    quarantine = conflicts = 0
    for job in counting:
        kinds = jobs.open_kinds(job.id)
        conflicts += kinds.pop(CONFLICT, 0)
        unverified = _unverified(jobs, job) if kinds.pop(INDEX, 0) else 0
        quarantine += unverified + sum(count for kind, count in kinds.items() if kind not in DIFFERENT)
        if job.kind == DIFF:
            quarantine += _left_out(jobs, job, unverified + sum(kinds.get(kind, 0) for kind in NotCompared))
    return ReportWaiting(quarantine=quarantine, conflicts=conflicts)


def _left_out(jobs: Jobs, job: Job, kept: int) -> int:
    """A diff keeps a sample of what it could not compare, and counts all of it."""
    counts = jobs.progress(job.id).counts
    return max(0, sum(counts.get(name, 0) for name in NOT_COMPARED) - kept)


def _unverified(jobs: Jobs, job: Job) -> int:
    """Of what was found of indexes, what is no difference."""
    count, after = 0, 0
    while page := jobs.findings(job.id, kinds=[INDEX], after=after, limit=FINDINGS_PER_PAGE):
        count += sum(not is_difference(each) for each in page)
        after = page[-1].id
    return count
