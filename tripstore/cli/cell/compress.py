"""`tripstore cell compress`: stores old cells in the form in which puts store new ones."""

from __future__ import annotations

import click
import msgspec
from rich.text import Text

from schemaless_core.compression.compress_jobs import CompressOrder, TurnedCells, order_of
from schemaless_core.compression.runner import KIND
from schemaless_core.control.jobs.jobs import Job, Jobs, JobState
from schemaless_core.process.seat import Seat
from tripstore.cli.backfill.options import PROCESSES_MAX, detach_option
from tripstore.cli.documents import print_document
from tripstore.cli.exits import Exit
from tripstore.cli.jobs.documents import ProgressDocument, progress_document
from tripstore.cli.jobs.running import given_verb, run_job, verb_options
from tripstore.cli.jobs.screens import progress_line
from tripstore.cli.jobs.verbs import give_up, say_left
from tripstore.cli.jobs.work import ProcessWork
from tripstore.cli.options import Command, Settings, json_option, pass_settings
from tripstore.cli.questions import yes_option
from tripstore.cli.tables import show


class CompressPlanDocument(msgspec.Struct, frozen=True):
    """The JSON document of `--dry-run`: cells that would be stored anew, and what their bodies take then."""

    cells: int
    looked: int
    bytes_before: int
    bytes_after: int


class CompressDocument(msgspec.Struct, frozen=True):
    """The JSON document of a run, of `--resume` and of `--show`."""

    progress: ProgressDocument
    cells: int
    bytes_before: int
    bytes_after: int

    @property
    def exit(self) -> Exit:
        if self.progress.is_done:
            return Exit.FINE
        return Exit.FAILED if self.progress.job.state == JobState.CANCELLED else Exit.INTERRUPTED


class CompressWork(ProcessWork):
    """What each process does."""

    __slots__ = ()

    def _run(self, seat: Seat) -> None:
        with self.settings.open() as datastore:
            runner = datastore.compress_jobs.runner(self.job, seat.name)
            seat.at_end(runner.stop)
            runner.run()


@click.command(cls=Command)
@click.option(
    "--rate", type=click.FloatRange(min=0, min_open=True), metavar="CELLS", help="So many a second, of each process."
)
@click.option("--processes", type=click.IntRange(1, PROCESSES_MAX), metavar="N", help="Else 1; with --resume as begun.")
@click.option("--dry-run", is_flag=True, help="Read all cells, and say what would become of them.")
@detach_option
@verb_options(pause="Have it begin no other step.", cancel="Give one up; what it has done stays as it is.")
@yes_option
@json_option
@pass_settings
def compress(
    settings: Settings,
    rate: float | None,
    processes: int | None,
    dry_run: bool,
    detach: bool,
    shown: str | None,
    paused: str | None,
    resumed: str | None,
    cancelled: str | None,
    yes: bool,
    as_json: bool,
) -> Exit:
    """Store old cells in the form in which puts store new ones. No cell is another one by it.

    Cells of the columns under `compression` become compressed, or compressed with the newest dictionary of their
    column (`tripstore cell train`); cells of all other columns become plain again. Callers work meanwhile.

    Exit code 5 when it was interrupted: --resume goes on.

    \b
    Example:
      tripstore cell compress --dry-run
      tripstore cell compress --rate 5000
      tripstore cell compress --resume last
    """
    verbs = {"--show": shown, "--pause": paused, "--resume": resumed, "--cancel": cancelled}
    given_verb(verbs, is_more=dry_run or rate is not None)
    with settings.open() as datastore:
        its = datastore.compress_jobs
        if shown is not None:
            return _said(its.jobs, its.jobs.find(KIND, shown), as_json=as_json).exit
        if paused is not None or cancelled is not None:
            job = (
                its.jobs.pause(KIND, paused)
                if paused is not None
                else give_up(its.jobs, KIND, str(cancelled), "", is_answered=yes)
            )
            _said(its.jobs, job, as_json=as_json)
            return Exit.FINE
        if resumed is not None:
            job = its.jobs.resume(KIND, resumed, is_detached=True if detach else None)
            processes = processes or order_of(job).processes
        else:
            plan = its.plan(CompressOrder(rate, processes or 1))
            if dry_run:
                return _said_plan(its.count(plan), as_json=as_json)
            job = its.begin(plan, is_detached=detach)
        if detach:
            if as_json:
                _said(its.jobs, job, as_json=True)
            else:
                say_left(job)
            return Exit.FINE
        work = CompressWork(settings, job)
        return run_job(its.jobs, work, processes or 1, "steps", lambda: _said(its.jobs, job, as_json=as_json).exit)


def _said_plan(counted: TurnedCells, *, as_json: bool) -> Exit:
    document = CompressPlanDocument(*counted)
    if as_json:
        print_document(document)
    else:
        click.echo(
            f"{document.cells:,} of {document.looked:,} cells would be stored anew; their bodies take"
            f" {document.bytes_before:,} bytes, and would take {document.bytes_after:,}."
        )
    return Exit.FINE


def _said(jobs: Jobs, job: Job, *, as_json: bool) -> CompressDocument:
    progress = progress_document(jobs.progress(job.id))
    counts = progress.counts
    numbers = (counts.get(name, 0) for name in ("cells", "bytes_before", "bytes_after"))
    document = CompressDocument(progress, *numbers)
    if as_json:
        print_document(document)
        return document
    show(
        Text(
            f"{progress_line(progress)}, {progress.job.shown_state}; {document.cells:,} cells stored anew:"
            f" {document.bytes_before:,} bytes before, {document.bytes_after:,} now"
        )
    )
    show(*(Text(advice, style="bold red") for advice in progress.advice))
    return document
