"""How `tripstore diff` compares: in so many processes, with progress, until the job is done or interrupted."""

from __future__ import annotations

import multiprocessing
import sys
from dataclasses import dataclass
from typing import NamedTuple

import click

from schemaless_core.control.jobs import Job
from schemaless_core.errors import SchemalessError
from schemaless_core.triggers.fleet import Fleet
from schemaless_core.triggers.seat import Seat
from tripstore.cli.diff_documents import DiffDocument, diff_document
from tripstore.cli.exits import Exit
from tripstore.cli.job_documents import progress_document
from tripstore.cli.job_screens import telling
from tripstore.cli.logs import show_logs
from tripstore.cli.options import Settings
from tripstore.diffing.diffing import Diffing
from validation import ValidationError


@dataclass(frozen=True, slots=True)
class CompareWork:
    """The work of one process: compare until the job has ended, or the seat is to."""

    settings: Settings
    job: Job

    def __call__(self, seat: Seat) -> None:
        if multiprocessing.parent_process() is None:
            self._compare(seat)
            return
        show_logs(self.settings.verbosity, seat.name)
        try:
            self._compare(seat)
        except (SchemalessError, ValidationError) as error:
            if self.settings.is_debug:
                raise
            click.echo(f"{seat.name}: {error.message} {error.hint or ''}".rstrip(), err=True)
            sys.exit(Exit.FAILED)

    def _compare(self, seat: Seat) -> None:
        with self.settings.connect() as store:
            runner = Diffing(store.facade).runner(self.job, seat.name)
            seat.at_end(runner.stop)
            runner.run()


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


def compare(settings: Settings, diffing: Diffing, job: Job, processes: int) -> Compared:
    """Compare in the foreground; what came of it."""
    fleet = Fleet(CompareWork(settings, job), processes, is_finite=True)
    if job.ended_at is None:
        said = "Ctrl-C ends it after the step at hand, `tripstore diff resume` goes on"
        click.echo(f"{job.id} begins; {said}.", err=True)
        with telling(lambda: progress_document(diffing.jobs.progress(job.id))):
            fleet.run()
    diffing.finish(job)
    if fleet.failed:
        click.echo(f"{fleet.failed:,} of {processes:,} processes ended with an error.", err=True)
    return Compared(diff_document(progress_document(diffing.jobs.progress(job.id))), fleet.failed)
