"""`Jobs`: work in parts that any number of processes do together, kept in the control database.

A part is held by a lease and saved with a fence: its checkpoint, what was counted and what was found are one
transaction (I11). A change of a job or of its parts first locks the job's row; several are locked in order of ids.
"""

from __future__ import annotations

import json
import socket
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, cast
from uuid import UUID, uuid4

import sqlalchemy as sa

from schemaless_core.cell.canonical import Json
from schemaless_core.control.audit import AuditLog, who_am_i
from schemaless_core.control.changes import make_change
from schemaless_core.control.clock import moment, now_ms
from schemaless_core.control.database import ControlDatabase
from schemaless_core.control.jobs.commands import job_command
from schemaless_core.control.jobs.findings import (
    add_findings,
    count_open,
    count_open_kinds,
    jobs_of,
    read_findings,
    read_open_of,
    solve_findings,
)
from schemaless_core.control.jobs.notes import keep_note
from schemaless_core.control.jobs.parts import (
    add_counts,
    add_parts,
    claim_part,
    is_finished,
    is_held_by,
    read_begun,
    read_checkpoint,
    read_checkpoints,
    read_counts,
    release_part,
    save_part,
    survey,
    text_of,
    with_state,
)
from schemaless_core.control.jobs.records import (
    Finding,
    Job,
    JobProgress,
    JobState,
    Part,
    PartLost,
    StoredFinding,
    WorkerNews,
)
from schemaless_core.control.jobs.rows import LAST, find_job, hold_job, read_job, see_job
from schemaless_core.control.tables import job as table
from schemaless_core.control.tables import job_worker as worker_table
from schemaless_core.errors import InvalidRequest
from schemaless_core.failpoints import reach

__all__ = [
    "HAS_END",
    "LAST",
    "STAGES",
    "Finding",
    "Job",
    "JobState",
    "Jobs",
    "Part",
    "PartLost",
    "JobProgress",
    "StoredFinding",
    "WorkerNews",
]


#: Of a job's spec: whether its last part is to be done after all others.
HAS_END = "has_end"
#: Of a job's spec: numbers of parts. Each of these waits, with those behind it, until all parts before it are done.
STAGES = "stages"


class Jobs:
    """The jobs of one datastore."""

    def __init__(self, control: ControlDatabase) -> None:
        self._control = control
        self._audit = AuditLog(control)

    def create(
        self,
        kind: str,
        spec: Mapping[str, Json],
        parts: Sequence[Json],
        *,
        is_detached: bool = False,
        with_it: Callable[[sa.Connection, str], object] | None = None,
    ) -> Job:
        """Begin a job with so many parts. One without any is done at once.

        `with_it`: writes something that holds the job's id, by the same transaction; without it there is no job.
        """
        job_id = f"{kind}-{uuid4().hex[:8]}"

        def work(connection: sa.Connection) -> Job:
            row = {
                "id": job_id,
                "kind": kind,
                "spec": text_of(dict(spec)),
                "state": JobState.RUNNING.value,
                "is_detached": is_detached,
                "begun_ms": now_ms(connection),
                "who": who_am_i(),
                "host": socket.gethostname()[:128],
                "why": "",
            }
            connection.execute(sa.insert(table).values(row))
            add_parts(connection, job_id, parts)
            if with_it is not None:
                with_it(connection, job_id)
            job = self._ended(connection, job_id)
            self._audit.add_within(connection, f"{kind}.start", {"job": job_id, "parts": len(parts)})
            return job

        job = make_change(self._control, work)
        reach("jobs.created")
        return job

    def find(self, kind: str, job_id: str) -> Job:
        """Return a job; "last" is the newest of its kind."""
        with self._control.begin() as connection:
            return find_job(connection, kind, job_id)

    def all(self, kind: str | None = None) -> list[Job]:
        """The newest first."""
        with self._control.begin() as connection:
            return self.all_within(connection, kind)

    def all_within(self, connection: sa.Connection, kind: str | None = None) -> list[Job]:
        """The same, as a transaction sees them."""
        wanted = sa.select(table) if kind is None else sa.select(table).where(table.c.kind == kind)
        return [read_job(row) for row in connection.execute(wanted.order_by(table.c.number.desc()))]

    def claim(self, job_id: str, worker: str, lease_seconds: float) -> Part | None:
        """Take a part that is free or whose lease is over; None: there is none now, or the job does not run.

        The last part of a job whose spec says `HAS_END` is free when all others are done; parts of a stage that it
        names in `STAGES`, when all before are.
        """

        def work(connection: sa.Connection) -> Part | None:
            job = hold_job(connection, job_id)
            if job.state is not JobState.RUNNING:
                return None
            spec = cast("Mapping[str, Any]", job.spec)
            has_end, stages = bool(spec.get(HAS_END)), spec.get(STAGES) or ()
            return claim_part(connection, job_id, worker, lease_seconds, has_end=has_end, stages=stages)

        part = make_change(self._control, work)
        if part is not None:
            reach("jobs.claimed")
        return part

    def save(
        self,
        part: Part,
        worker: str,
        *,
        checkpoint: Json,
        counts: Mapping[str, int],
        findings: Sequence[Finding] = (),
        solved: Collection[int] = (),
        is_done: bool,
        lease_seconds: float,
    ) -> Part:
        """Move a part forward: checkpoint, counts, findings and lease together or not at all.

        `PartLost` when another worker has it. After a `ControlUnavailable` the caller repeats it as it was; it counts
        once. It is right for a paused or cancelled job as well: what was done was done. The answer has the job's state.
        """
        reach("jobs.before_save")

        def work(connection: sa.Connection) -> JobState:
            others = jobs_of(connection, solved) - {part.job} if solved else set()
            held = {each: hold_job(connection, each) for each in sorted({part.job, *others})}
            job = held[part.job]
            if not save_part(connection, part, worker, checkpoint, is_done=is_done, lease_seconds=lease_seconds):
                return job.state
            add_counts(connection, part.job, counts)
            add_findings(connection, part.job, findings)
            solve_findings(connection, solved)
            reach("jobs.saving")
            if is_done:
                job = self._ended(connection, part.job)
            elif findings or solved or counts.get("open"):
                keep_note(connection, job)
            for other in others:
                keep_note(connection, held[other])
            return job.state

        state = make_change(self._control, work)
        reach("jobs.saved")
        saved = Part(part.job, part.number, part.bounds, checkpoint, part.fence + 1)
        return with_state(saved, state)

    def holds(self, part: Part, worker: str) -> bool:
        """Whether no other worker has taken a part since, even if its lease is over."""
        with self._control.begin() as connection:
            return is_held_by(connection, part, worker)

    def release(self, part: Part, worker: str) -> None:
        """Give a part back; one that is lost or done is no error."""

        def work(connection: sa.Connection) -> None:
            hold_job(connection, part.job)
            release_part(connection, part, worker)

        make_change(self._control, work)

    def tell(self, job_id: str, worker: str, news: Mapping[str, Json]) -> None:
        """Say what a worker is doing now, for the commands that show the job's progress."""
        body = text_of(dict(news))

        def work(connection: sa.Connection) -> None:
            is_it = (worker_table.c.job == job_id) & (worker_table.c.worker == worker)
            now = now_ms(connection)
            if not connection.execute(sa.update(worker_table).where(is_it).values(at_ms=now, body=body)).rowcount:
                row = {"job": job_id, "worker": worker, "at_ms": now, "body": body}
                connection.execute(sa.insert(worker_table).values(row))

        make_change(self._control, work)

    def told_at(self, job_id: str, worker: str) -> datetime | None:
        """When it told last; None: it left, or never told."""
        told = sa.select(worker_table.c.at_ms).where(worker_table.c.job == job_id, worker_table.c.worker == worker)
        with self._control.begin() as connection:
            at_ms = connection.execute(told).scalar_one_or_none()
        return None if at_ms is None else moment(at_ms)

    def leave(self, job_id: str, worker: str) -> None:
        """A worker is not at it any more."""
        is_it = (worker_table.c.job == job_id) & (worker_table.c.worker == worker)
        make_change(self._control, lambda connection: connection.execute(sa.delete(worker_table).where(is_it)))

    def progress(self, job_id: str) -> JobProgress:
        """How far it is. `InvalidRequest`: it was pruned."""
        with self._control.begin() as connection:
            job = see_job(connection, job_id)
            now = now_ms(connection)
            parts, done, claimed, saved_ms = survey(connection, job_id)
            told = sa.select(worker_table.c.worker, worker_table.c.at_ms, worker_table.c.body)
            rows = connection.execute(told.where(worker_table.c.job == job_id).order_by(worker_table.c.worker))
            return JobProgress(
                job,
                read_counts(connection, job_id),
                parts,
                done,
                claimed,
                count_open(connection, job_id),
                tuple(WorkerNews(name, max(0, now - at) / 1000, json.loads(body)) for name, at, body in rows),
                None if saved_ms is None else moment(saved_ms),
                moment(now),
            )

    def now(self) -> datetime:
        """The control database's clock, by which jobs begin and end."""
        with self._control.begin() as connection:
            return moment(now_ms(connection))

    def state(self, job_id: str) -> JobState:
        """Whether it runs."""
        with self._control.begin() as connection:
            found = connection.execute(sa.select(table.c.state).where(table.c.id == job_id)).scalar_one()
            return JobState(found)

    def checkpoints(self, job_id: str) -> dict[int, Json]:
        """Where each part is, as its worker saved it; None: at its beginning."""
        with self._control.begin() as connection:
            return read_checkpoints(connection, job_id)

    def begun(self, job_id: str) -> list[tuple[Json, Json]]:
        """Bounds and checkpoints of the parts that were begun and are not done."""
        with self._control.begin() as connection:
            return read_begun(connection, job_id)

    def checkpoint(self, job_id: str, number: int) -> Json:
        """Where one part is; None: at its beginning."""
        with self._control.begin() as connection:
            return read_checkpoint(connection, job_id, number)

    def findings(
        self,
        job_id: str,
        *,
        kinds: Collection[str] | None = None,
        after: int = 0,
        limit: int = 1000,
        open_only: bool = True,
    ) -> list[StoredFinding]:
        """What was found, in that order; the next page begins after the last id."""
        with self._control.begin() as connection:
            return read_findings(connection, job_id, kinds, after, limit, open_only=open_only)

    def open_of(self, job_id: str, row_keys: Collection[UUID]) -> list[StoredFinding]:
        """What is open about some rows."""
        with self._control.begin() as connection:
            return read_open_of(connection, job_id, row_keys)

    def open_kinds(self, job_id: str) -> dict[str, int]:
        """How many findings of each kind are open, of those that it keeps."""
        with self._control.begin() as connection:
            return count_open_kinds(connection, job_id)

    def solve(
        self, job_id: str, finding_ids: Collection[int], *, counts: Mapping[int, Mapping[str, int]] | None = None
    ) -> None:
        """Findings of a job are open no more; what changes in its counts with each of them is added in the same go.

        Only with those that were open until now: a second solver, or a repeated call, counts nothing (I11).
        """

        def work(connection: sa.Connection) -> None:
            jobs = sorted({job_id, *jobs_of(connection, finding_ids)})
            held = [hold_job(connection, each) for each in jobs]
            changed = Counter[str]()
            for number in solve_findings(connection, finding_ids):
                changed.update((counts or {}).get(number, {}))
            add_counts(connection, job_id, changed)
            for job in held:
                keep_note(connection, job)

        make_change(self._control, work)

    def pause(self, kind: str, job_id: str, why: str = "") -> Job:
        """No worker begins another chunk of it. Workers see it after the chunk that they are at."""
        return self._change(kind, job_id, "pause", JobState.PAUSED, (JobState.RUNNING, JobState.PAUSED), why)

    def resume(self, kind: str, job_id: str, why: str = "", *, is_detached: bool | None = None) -> Job:
        """It goes on where it was; by any worker, if it is to be detached."""
        allowed = (JobState.RUNNING, JobState.PAUSED)
        values = {} if is_detached is None else {"is_detached": is_detached}
        return self._change(kind, job_id, "resume", JobState.RUNNING, allowed, why, values)

    def cancel(
        self, kind: str, job_id: str, why: str = "", *, may: Callable[[sa.Connection], None] = lambda connection: None
    ) -> Job:
        """It never goes on. What it did stays. `may` raises if it must go on; the job's row is held meanwhile."""
        allowed = (JobState.RUNNING, JobState.PAUSED, JobState.CANCELLED)
        return self._change(kind, job_id, "cancel", JobState.CANCELLED, allowed, why, may=may)

    def _change(
        self,
        kind: str,
        job_id: str,
        verb: str,
        state: JobState,
        allowed: Collection[JobState],
        why: str,
        values: Mapping[str, Any] | None = None,
        *,
        may: Callable[[sa.Connection], None] = lambda connection: None,
    ) -> Job:
        def work(connection: sa.Connection) -> Job:
            job = hold_job(connection, find_job(connection, kind, job_id).id)
            may(connection)
            if job.state not in allowed:
                hint = f"`{job_command(kind, 'start')} --help` says how another one is begun."
                raise InvalidRequest(f"{job.id} is {job.state}: it cannot {verb}.", hint=hint)
            row = {"state": state.value, "why": why, **(values or {})}
            if state is JobState.CANCELLED and job.ended_at is None:
                row["ended_ms"] = now_ms(connection)
            connection.execute(sa.update(table).where(table.c.id == job.id).values(row))
            changed = hold_job(connection, job.id)
            keep_note(connection, changed)
            # Last: all changes that are written down wait for each other from here on.
            self._audit.add_within(connection, f"{kind}.{verb}", {"job": job.id, "why": why})
            return changed

        return make_change(self._control, work)

    def _ended(self, connection: sa.Connection, job_id: str) -> Job:
        """The job, which is done when its parts are; its note says so in the same transaction."""
        is_running = table.c.state.in_([JobState.RUNNING.value, JobState.PAUSED.value])
        if is_finished(connection, job_id):
            done = {"state": JobState.DONE.value, "ended_ms": now_ms(connection)}
            connection.execute(sa.update(table).where(table.c.id == job_id, is_running).values(done))
        job = hold_job(connection, job_id)
        keep_note(connection, job)
        return job
