"""How `tripstore repair` repairs: in so many processes, with progress, until the job is done or interrupted."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from schemaless_core.control.job_commands import job_command
from schemaless_core.control.jobs import Job, JobState
from schemaless_core.errors import SchemalessError
from schemaless_core.triggers.fleet import Fleet, leave_at_once
from schemaless_core.triggers.seat import Seat, heard_signals
from tripstore.cli.documents import print_document
from tripstore.cli.exits import Exit
from tripstore.cli.job_documents import progress_document
from tripstore.cli.job_screens import telling
from tripstore.cli.logs import show_logs
from tripstore.cli.options import Settings
from tripstore.cli.repair_jobs import seen_repair
from tripstore.cli.repair_screens import print_repair
from tripstore.repairing.job import KIND, RepairRunner
from tripstore.repairing.opening import Repairs
from tripstore.repairing.repairing import AuthorityMoved
from tripstore.repairing.tally import Tally

#: A process has to load the library before its first cell: another one pays off from so many parts on.
PARTS_PER_PROCESS = 5
#: Without --processes never more: each asks Postgres, where services wait.
PROCESSES_MAX = 4


@dataclass(frozen=True, slots=True)
class RepairWork:
    """The work of one process: repair until the job has ended, or the seat is to."""

    settings: Settings
    job: Job
    tallies: Path

    def __call__(self, seat: Seat) -> None:
        if multiprocessing.parent_process() is not None:
            show_logs(self.settings.verbosity, seat.name)
        try:
            self._repair(seat)
        except SchemalessError as error:
            if self.settings.is_debug:
                raise
            click.echo(f"{seat.name}: {error.message} {error.hint or ''}".rstrip(), err=True)
            sys.exit(Exit.FAILED)

    def _repair(self, seat: Seat) -> None:
        stop, tally = threading.Event(), Tally.of_process(self.tallies, seat.name)
        with self.settings.connect() as store:
            seat.at_end(stop.set)
            _runner(Repairs(store.facade), self.job, tally).run(stop)


def repair_all(settings: Settings, repairs: Repairs, job: Job, processes: int | None, *, as_json: bool) -> Exit:
    """Serve the job until it is done, its end included; Ctrl-C ends it after the parts, or index, at hand."""
    found = repairs.jobs.progress(job.id)
    if held := found.parts_claimed:
        click.echo(
            f"Other processes hold {held:,} parts; those that they do not finish are free in a moment.", err=True
        )
    wanted = processes or processes_for(found.parts - found.parts_done)
    with (
        TemporaryDirectory(prefix="tripstore-repair-") as folder,
        telling(lambda: progress_document(repairs.jobs.progress(job.id))),
    ):
        tallies = Path(folder)
        failed = 0
        if wanted == 1:
            _repair_here(repairs, job, tallies)
        else:
            failed = _repair_beside(settings, repairs, job, wanted, tallies)
        actions = Tally.total(tallies)
    document = seen_repair(repairs.jobs, job.id, actions)
    if as_json:
        print_document(document)
    else:
        print_repair(document)
    if document.state == JobState.CANCELLED:
        click.echo(f"{job.id} was given up; what it repaired stays.", err=True)
    elif not document.progress.is_done:
        click.echo(f"`{job_command(KIND, 'resume', job.id)}` goes on.", err=True)
    # What an error ended was not interrupted.
    return Exit.FAILED if failed and document.exit is Exit.INTERRUPTED else document.exit


def processes_for(parts: int) -> int:
    """How many processes serve so many parts, if the operator does not say it."""
    return max(1, min(os.cpu_count() or 1, PROCESSES_MAX, parts // PARTS_PER_PROCESS))


def _repair_here(repairs: Repairs, job: Job, tallies: Path) -> None:
    with _stopping() as stop:
        try:
            _runner(repairs, job, Tally.of_process(tallies, "here")).run(stop)
        except AuthorityMoved:  # says itself what helps
            raise
        except BaseException:
            click.echo(f"`{job_command(KIND, 'resume', job.id)}` goes on where it was.", err=True)
            raise


def _repair_beside(settings: Settings, repairs: Repairs, job: Job, processes: int, tallies: Path) -> int:
    """How many processes ended with an error, which they said."""
    fleet = Fleet(RepairWork(settings, job, tallies), processes, is_finite=True)
    fleet.run()
    if fleet.failed:
        repairs.of_job(job).check()  # an authority that moved is a refusal, and no failure
        click.echo(f"{fleet.failed:,} of {processes:,} processes ended with an error.", err=True)
    return fleet.failed


def _runner(repairs: Repairs, job: Job, tally: Tally) -> RepairRunner:
    return RepairRunner(repairs.jobs, job.id, repairs.of_job(job), repairs.ending(job), saved=tally.add)


@contextmanager
def _stopping() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set: what is at hand is finished. A second one waits for nothing."""
    stop = threading.Event()
    with heard_signals(stop.set, leave_at_once):
        yield stop
