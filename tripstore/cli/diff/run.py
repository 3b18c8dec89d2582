"""How `tripstore diff` compares: in so many processes, with progress, until the job is done or interrupted."""

from __future__ import annotations

from typing import NamedTuple

import click

from schemaless_core.control.jobs.jobs import Job
from schemaless_core.process.spares import Spares
from tripstore.cli.awaited import Awaited
from tripstore.cli.backfill.options import SparingOptions
from tripstore.cli.backfill.run import numbers_of
from tripstore.cli.diff.documents import DiffDocument, diff_document
from tripstore.cli.elsewhere.engine import TaskEngine
from tripstore.cli.exits import Exit
from tripstore.cli.jobs.documents import progress_document
from tripstore.cli.jobs.hands import hands
from tripstore.cli.jobs.screens import telling
from tripstore.cli.jobs.work import JobWork
from tripstore.cli.options import Settings
from tripstore.facade.facade import Facade
from tripstore.migration.backfill.serving import JobRunner
from tripstore.migration.diff.diff import Diffing


def _runner(facade: Facade, job: Job, name: str) -> JobRunner:
    return Diffing(facade).runner(job, name)


class Compared(NamedTuple):
    """What came of a comparison in the foreground."""

    document: DiffDocument
    #: Processes that ended with an error, which they said.
    failed: int

    @property
    def exit(self) -> Exit:
        """That of the diff; what an error ended was not interrupted."""
        is_error = self.failed and self.document.exit is Exit.INTERRUPTED
        return Exit.FAILED if is_error else self.document.exit


def compare(
    settings: Settings,
    diffing: Diffing,
    job: Job,
    processes: int,
    awaited: Awaited,
    engine: TaskEngine | None = None,
    tasks: int | None = None,
    spares: Spares | None = None,
) -> Compared:
    """Compare in the foreground, here or by tasks of an engine; what came of it."""
    limits = numbers_of(job, SparingOptions)
    comparers = hands(diffing.jobs, JobWork(settings, job, _runner), processes, engine, tasks, limits, spares)
    if job.ended_at is None:
        said = "Ctrl-C ends it after the step at hand, `tripstore diff resume` goes on"
        click.echo(f"{job.id} begins; {said}.", err=True)
        with telling(lambda: progress_document(diffing.jobs.progress(job.id)), awaited):
            comparers.run()
    diffing.finish(job)
    if comparers.failed and engine is None:
        click.echo(f"{comparers.failed:,} of {processes:,} processes ended with an error.", err=True)
    return Compared(diff_document(progress_document(diffing.jobs.progress(job.id))), comparers.failed)
