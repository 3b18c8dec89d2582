"""How `tripstore backfill` copies: in so many processes, with progress, until the job is done or interrupted."""

from __future__ import annotations

import multiprocessing
import sys
from dataclasses import dataclass

import click
import msgspec

from backfill import BackfillError
from backfill.errors import CannotCopy
from schemaless_core.control.job_commands import job_command
from schemaless_core.control.jobs import Job, Jobs, JobState
from schemaless_core.errors import SchemalessError
from schemaless_core.triggers.fleet import Fleet
from schemaless_core.triggers.seat import Seat
from tripstore.cli.backfill_jobs import say
from tripstore.cli.exits import Exit
from tripstore.cli.job_documents import ProgressDocument, progress_document
from tripstore.cli.job_screens import telling
from tripstore.cli.logs import show_logs
from tripstore.cli.options import Settings
from tripstore.cli.questions import Refused
from tripstore.copying.backfill import Backfill


@dataclass(frozen=True, slots=True)
class CopyWork:
    """The work of one process: copy until the job has ended, or the seat is to."""

    settings: Settings
    job: Job

    def __call__(self, seat: Seat) -> None:
        if multiprocessing.parent_process() is None:
            self._copy(seat)
            return
        show_logs(self.settings.verbosity, seat.name)
        try:
            self._copy(seat)
        except (SchemalessError, BackfillError) as error:
            if self.settings.is_debug:
                raise
            click.echo(f"{seat.name}: {error.message} {error.hint or ''}".rstrip(), err=True)
            sys.exit(Exit.FAILED)

    def _copy(self, seat: Seat) -> None:
        with self.settings.connect() as store:
            runner = Backfill(store.facade).runner(self.job, seat.name)
            seat.at_end(runner.stop)
            runner.run()


def copy(settings: Settings, jobs: Jobs, job: Job, processes: int, *, as_json: bool) -> Exit:
    """Copy in the foreground, and say what came of it."""
    said = "Ctrl-C ends it after the chunks at hand, `tripstore backfill resume` goes on"
    click.echo(f"{job.id}: {said}.", err=True)
    fleet = Fleet(CopyWork(settings, job), processes, is_finite=True)
    with telling(lambda: progress_document(jobs.progress(job.id))):
        fleet.run()
    seen = progress_document(jobs.progress(job.id))
    say(seen, as_json=as_json)
    if not seen.is_done and not as_json:
        click.echo(_left(seen), err=True)
    return _exit(seen, has_failed=fleet.failed > 0)


def refusing(error: CannotCopy) -> Refused:
    """What keeps a job from beginning is a gate."""
    return Refused(error.message, hint=error.hint)


def with_limits(job: Job, limits: msgspec.Struct) -> Job:
    """The same job with other limits, for the processes of this command."""
    return msgspec.structs.replace(job, spec={**job.spec, **msgspec.to_builtins(limits)})


def _left(seen: ProgressDocument) -> str:
    job = seen.job
    if job.state == JobState.CANCELLED:
        return f"{job.job} was given up; what it copied stays."
    return f"{job.job} is not done: `{job_command('backfill', 'resume', job.job)}` goes on where it was."


def _exit(seen: ProgressDocument, *, has_failed: bool) -> Exit:
    if seen.is_done:
        return Exit.FAILED if seen.open else Exit.FINE
    if has_failed or seen.job.state == JobState.CANCELLED:
        return Exit.FAILED
    return Exit.INTERRUPTED
