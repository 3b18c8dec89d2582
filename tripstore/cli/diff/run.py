"""How `tripstore diff` compares: in so many processes, with progress, until the job is done or interrupted."""

from __future__ import annotations

from typing import NamedTuple

import click

from schemaless_core.control.jobs.jobs import Job
from schemaless_core.process.fleet import Fleet
from tripstore.cli.awaited import Awaited
from tripstore.cli.diff.documents import DiffDocument, diff_document
from tripstore.cli.exits import Exit
from tripstore.cli.jobs.documents import progress_document
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


def compare(settings: Settings, diffing: Diffing, job: Job, processes: int, awaited: Awaited) -> Compared:
    """Compare in the foreground; what came of it."""
    fleet = Fleet(JobWork(settings, job, _runner), processes, is_finite=True)
    if job.ended_at is None:
        said = "Ctrl-C ends it after the step at hand, `tripstore diff resume` goes on"
        click.echo(f"{job.id} begins; {said}.", err=True)
        with telling(lambda: progress_document(diffing.jobs.progress(job.id)), awaited):
            fleet.run()
    diffing.finish(job)
    if fleet.failed:
        click.echo(f"{fleet.failed:,} of {processes:,} processes ended with an error.", err=True)
    return Compared(diff_document(progress_document(diffing.jobs.progress(job.id))), fleet.failed)
