"""How far backfills, diffs and repairs are, and what they found that is still open."""

from __future__ import annotations

from collections.abc import Iterator

from schemaless_core.canonical import Json
from schemaless_core.control.jobs import Job, Jobs, Progress, StoredFinding
from validation.report.document import JobReport

BACKFILL, DIFF = "backfill", "diff"
#: Of all kinds, the newest.
JOBS_MAX = 30


def job_reports(jobs: Jobs) -> list[JobReport]:
    return [job_report(jobs.progress(job.id)) for job in jobs.all()[:JOBS_MAX]]


def job_report(found: Progress) -> JobReport:
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


def open_findings(jobs: Jobs, limit: int) -> list[StoredFinding]:
    """Of all backfills, since a row that none could copy is open until one could; and of the diffs that count."""
    found: list[StoredFinding] = []
    for job in [*jobs.all(BACKFILL), *_diffs(jobs)]:
        found += jobs.findings(job.id, limit=limit)
    return found


def _diffs(jobs: Jobs) -> Iterator[Job]:
    """The newest, and the newest of everything, which the gate goes by."""
    all_ = jobs.all(DIFF)
    yield from all_[:1]
    whole = next((job for job in all_ if not job.spec.get("is_partial")), None)
    if whole is not None and whole is not all_[0]:
        yield whole


def _number(value: Json) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
