"""How far backfills, diffs and repairs are, and what they found that is still open."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from schemaless_core.cell.canonical import Json
from schemaless_core.control.jobs.jobs import Job, JobProgress, Jobs, StoredFinding
from tripstore.engines.validation.report.document import JobReport
from tripstore.migration.cutover.facts import JobFacts
from tripstore.migration.cutover.job_facts import is_redone, scope_of

BACKFILL, DIFF = "backfill", "diff"
#: Of each kind the newest; and the newest that was of everything, however many parts were copied or compared since.
JOBS_MAX = 10


def job_reports(jobs: Jobs) -> list[JobReport]:
    return [job_report(jobs.progress(job.id)) for job in _told(jobs.all())]


def job_report(found: JobProgress) -> JobReport:
    job = found.job
    counts = dict(found.counts)
    rates = [rate for news in found.workers if (rate := _number(news.body.get("rate"))) is not None]
    throttles = [str(news.body["throttle"]) for news in found.workers if news.body.get("throttle")]
    estimate = _number(job.spec.get("estimate"))
    return JobReport(
        id=job.id,
        kind=job.kind,
        state=job.state.value,
        begun_at=job.begun_at,
        ended_at=job.ended_at,
        who=job.who,
        why=job.why,
        is_partial=bool(job.spec.get("is_partial")),
        parts=found.parts,
        parts_done=found.parts_done,
        counts=counts,
        estimate=None if estimate is None else round(estimate),
        findings_open=counts.get("open", found.findings_open),
        rate_per_second=sum(rates) if rates else None,
        throttle=throttles[0] if throttles else None,
    )


def counting_jobs(jobs: Jobs, judged: JobFacts | None) -> list[Job]:
    """All backfills, since a row that none could copy is open until one could; and the diffs that count.

    These are the newest, the one that the gate goes by, and those that this one has not redone.
    """
    diffs = jobs.all(DIFF)
    older = [job for job in diffs[1:] if judged is not None and _counts(job, judged)]
    return [*jobs.all(BACKFILL), *diffs[:1], *older]


def open_findings(jobs: Jobs, counting: Iterable[Job], limit: int) -> list[StoredFinding]:
    """The first of each kind: of two that stand in different lists none crowds the other out."""
    found: list[StoredFinding] = []
    for job in counting:
        kinds = [jobs.findings(job.id, kinds=[kind], limit=limit) for kind in jobs.open_kinds(job.id)]
        found += sorted((each for some in kinds for each in some), key=lambda each: each.id)
    return found


def _told(all_jobs: Sequence[Job]) -> list[Job]:
    """In their order."""
    told = set[str]()
    for kind in {job.kind for job in all_jobs}:
        of_kind = [job for job in all_jobs if job.kind == kind]
        whole = [job for job in of_kind if not job.spec.get("is_partial")]
        told |= {job.id for job in (*of_kind[:JOBS_MAX], *whole[:1])}
    return [job for job in all_jobs if job.id in told]


def _counts(diff: Job, judged: JobFacts) -> bool:
    """Whether the gate that goes by one diff hears of another, or that very one."""
    scope = scope_of(diff.spec.get("note"))
    return diff.begun_at == judged.begun_at or not is_redone(diff.id, diff.ended_at, scope, judged)


def _number(value: Json) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
