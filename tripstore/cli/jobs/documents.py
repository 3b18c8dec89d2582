"""Jobs as JSON documents: what is the same of every kind of job."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from schemaless_core.control.jobs.commands import job_command
from schemaless_core.control.jobs.jobs import Job, JobProgress, JobState, StoredFinding
from tripstore.migration.cutover.verdicts import moment

#: Who said nothing for so long does not work any more.
SILENT_SECONDS = 10.0
#: How a running job is called that no process works at.
IDLE = "idle"


class WorkerDocument(msgspec.Struct, frozen=True):
    """What a worker said of itself last, so many seconds ago.

    `throttle` is why it waits; null: it does not. `limit` is the name of the limit that holds, if it is one.
    """

    worker: str
    seconds: float
    rate: float
    throttle: str | None
    limit: str | None = None


class JobDocument(msgspec.Struct, frozen=True):
    """A job, whatever it does."""

    job: str
    state: str
    is_detached: bool
    is_partial: bool
    begun_at: datetime
    ended_at: datetime | None
    who: str
    host: str
    why: str
    #: What is to be done.
    spec: dict[str, Any]
    #: Of a running job: since when no process works at it; null: one does, or that was not looked at.
    idle_since: datetime | None = None

    @property
    def shown_state(self) -> str:
        """As people read it: what no process works at does not run."""
        return IDLE if self.idle_since is not None else self.state


class ProgressDocument(msgspec.Struct, frozen=True):
    """How far a job is. The estimate and what follows from it are estimates; null: not known."""

    job: JobDocument
    parts: int
    parts_done: int
    parts_claimed: int
    rows: int
    rows_estimate: int | None
    #: Rows per second of all workers together, as they said last.
    rate: float
    eta_seconds: float | None
    #: Why workers wait.
    throttles: list[str]
    counts: dict[str, int]
    #: Findings that an operator has to look at.
    open: int
    saved_at: datetime | None
    workers: list[WorkerDocument]
    advice: list[str]
    #: Which limits hold now, by name.
    limits: list[str] = []

    @property
    def is_done(self) -> bool:
        return self.job.state == JobState.DONE

    @property
    def is_fine(self) -> bool:
        return not self.open and not self.advice


class FindingDocument(msgspec.Struct, frozen=True):
    """A row that an operator has to look at."""

    id: int
    kind: str
    row_key: UUID | None
    column_name: str | None
    ref_key: int | None
    reason: str
    field: str | None
    at: datetime
    is_open: bool
    more: dict[str, Any]


class FindingList(msgspec.Struct, frozen=True):
    """The JSON document of `show`."""

    job: str
    findings: list[FindingDocument]
    is_complete: bool


class JobList(msgspec.Struct, frozen=True):
    """The JSON document of `list`."""

    jobs: list[JobDocument]


def job_document(job: Job, idle_since: datetime | None = None) -> JobDocument:
    return JobDocument(
        job.id,
        job.state.value,
        job.is_detached,
        bool(job.spec.get("is_partial")),
        job.begun_at,
        job.ended_at,
        job.who,
        job.host,
        job.why,
        job.spec,
        idle_since,
    )


def progress_document(seen: JobProgress) -> ProgressDocument:
    """How far it is, by what is saved and what its workers say."""
    workers = [_worker(each.worker, each.seconds, each.body) for each in seen.workers if each.seconds < SILENT_SECONDS]
    rows, estimate = seen.counts.get("rows", 0), _estimate(seen.job)
    rate = sum(each.rate for each in workers)
    left = None if estimate is None else max(0, estimate - rows)
    is_running = seen.job.state is JobState.RUNNING
    since = _idle_since(seen, workers)
    return ProgressDocument(
        job=job_document(seen.job, since),
        parts=seen.parts,
        parts_done=seen.parts_done,
        parts_claimed=seen.parts_claimed,
        rows=rows,
        rows_estimate=estimate,
        rate=round(rate, 1),
        eta_seconds=round(left / rate, 1) if is_running and left is not None and rate > 0 else None,
        throttles=sorted({each.throttle for each in workers if each.throttle}),
        counts=dict(seen.counts),
        # Whose findings are a sample counts what is open by itself.
        open=seen.counts.get("open", seen.findings_open),
        saved_at=seen.saved_at,
        workers=workers,
        advice=_advice(seen.job, since),
        limits=sorted({each.limit for each in workers if each.limit}),
    )


def finding_document(found: StoredFinding) -> FindingDocument:
    body = dict(found.body)
    reason, field = str(body.pop("reason", "")), body.pop("field", None)
    return FindingDocument(
        found.id,
        found.kind,
        found.row_key,
        found.column_name,
        found.ref_key,
        reason,
        None if field is None else str(field),
        found.at,
        found.is_open,
        body,
    )


def _worker(name: str, seconds: float, body: dict[str, Any]) -> WorkerDocument:
    throttle, limit = (None if (said := body.get(key)) is None else str(said) for key in ("throttle", "limit"))
    return WorkerDocument(name, round(seconds, 1), float(body.get("rate") or 0.0), throttle, limit)


def _estimate(job: Job) -> int | None:
    found = job.spec.get("estimate")
    return found if isinstance(found, int) else None


def _idle_since(seen: JobProgress, workers: list[WorkerDocument]) -> datetime | None:
    """The last sign of life of a running job whose workers are silent and whose leases are over; else None."""
    if seen.job.state is not JobState.RUNNING or workers or seen.parts_claimed:
        return None
    told = [seen.at - timedelta(seconds=each.seconds) for each in seen.workers]
    return max([seen.job.begun_at, *told, *([] if seen.saved_at is None else [seen.saved_at])])


def _advice(job: Job, since: datetime | None) -> list[str]:
    if since is None:
        return []
    resume, cancel = (job_command(job.kind, verb, job.id) for verb in ("resume", "cancel"))
    way = "`tripstore worker run` does, or " if job.is_detached else ""
    return [f"no process works at {job.id} since {moment(since)} UTC: {way}`{resume}` goes on, `{cancel}` gives it up"]
