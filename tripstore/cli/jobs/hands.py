"""Who does a job that a command waits for: processes of its own, or tasks of an engine on other hosts."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Protocol

import click

from schemaless_core.control.jobs.commands import job_command
from schemaless_core.control.jobs.jobs import Jobs
from schemaless_core.control.jobs.records import Job
from schemaless_core.process.fleet import Fleet
from schemaless_core.process.seat import Seat
from schemaless_core.process.spares import Spares
from schemaless_core.version import VERSION
from tripstore.cli.elsewhere.address import EngineAddress
from tripstore.cli.elsewhere.engine import TaskEngine, TaskOrder
from tripstore.cli.elsewhere.errors import EngineUnavailable
from tripstore.cli.elsewhere.presence import Presence
from tripstore.cli.elsewhere.submission import OpenJob, Submission
from tripstore.cli.jobs.work import ProcessWork

#: A process of an engine gets about so many tasks of a job one after the other.
TASKS_PER_PROCESS = 4


class JobHands(Protocol):
    """Run once, until the job has ended or a signal comes."""

    #: Processes or tasks that ended with an error, which they said.
    failed: int

    def run(self) -> bool: ...


class HandsElsewhere:
    """Tasks of an engine."""

    def __init__(
        self, jobs: Jobs, job: Job, engine: TaskEngine, tasks: int | None, limits: Mapping[str, int | float]
    ) -> None:
        self.failed = 0
        self._job = job
        self._jobs = jobs
        self._engine = engine
        self._tasks = tasks
        self._limits = dict(limits)

    def run(self) -> bool:
        job, engine = self._job, self._engine
        parts, count = self._jobs.progress(job.id).parts, 1
        with suppress(EngineUnavailable):  # the submission finds out whether it is lost
            count = max(1, engine.count())
        presence = Presence(self._jobs, job.id, f"{Seat(0).name} by {engine.name}"[:128])
        order = TaskOrder(
            VERSION,
            kind=job.kind,
            subject=job.id,
            submitter=presence.submitter,
            parts_max=max(1, parts // (TASKS_PER_PROCESS * (self._tasks or count))),
            limits=self._limits,
        )
        submission = Submission(engine, OpenJob(self._jobs, job.id), presence, order, self._tasks)
        is_whole = submission.run()
        self.failed = submission.failed
        lost = f", {submission.lost:,} were lost" if submission.lost else ""
        said = f"{submission.tasks:,} tasks of {engine.name} ended{lost}; by their own words they did"
        click.echo(f"{said} {submission.parts:,} parts, {submission.counts['rows']:,} rows.", err=True)
        if submission.trouble is not None:
            again = f"`{job_command(job.kind, 'resume', job.id)}` goes on where it was"
            click.echo(f"{submission.trouble.message} {again}, with --on or without.", err=True)
        return is_whole


def hands(
    jobs: Jobs,
    work: ProcessWork,
    processes: int,
    engine: TaskEngine | None,
    tasks: int | None = None,
    limits: Mapping[str, int | float] | None = None,
    spares: Spares | None = None,
) -> JobHands:
    """`processes` are of this command; `tasks` of an engine, at once: None for one each of its processes.

    `limits` hold for this command alone.
    """
    if engine is None:
        return Fleet(work, processes, is_finite=True, spares=spares)
    return HandsElsewhere(jobs, work.job, engine, tasks, limits or {})


def spares_for(processes: int | None, on: EngineAddress | None, *, is_left: bool) -> int:
    """How many processes to fork before anything connects, where this command will need some. One alone works here.

    `is_left`: nothing is to be done, or by others.
    """
    return 0 if processes in (None, 1) or on is not None or is_left else processes


def refuse_two_places(on: EngineAddress | None, *, detach: bool) -> None:
    if on is not None and detach:
        raise click.UsageError("--detach leaves it to `tripstore worker run`, and --on to an engine: give one.")


def refuse_limits_of_workers(kind: str, *, detach: bool, are_given: bool) -> None:
    """Of a job that is left to others: they keep to those that it was started with."""
    if detach and are_given:
        way_out = f"leave --detach out; or `tripstore {kind} cancel`, and start another with them"
        raise click.UsageError(f"With --detach workers keep to the limits that the job was started with: {way_out}.")
