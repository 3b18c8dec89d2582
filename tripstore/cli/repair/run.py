"""How `tripstore repair` repairs: in so many processes, with progress, until the job is done or interrupted."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path

import click

from schemaless_core.control.jobs.commands import job_command
from schemaless_core.control.jobs.jobs import LAST, Job, JobState
from schemaless_core.process.fleet import Fleet, leave_at_once
from schemaless_core.process.seat import Seat
from schemaless_core.process.spares import Spares
from tripstore.cli.documents import print_document
from tripstore.cli.exits import Exit
from tripstore.cli.jobs.documents import progress_document
from tripstore.cli.jobs.screens import telling
from tripstore.cli.jobs.work import errors_told
from tripstore.cli.logs import show_logs
from tripstore.cli.options import Settings
from tripstore.cli.repair.jobs import seen_repair
from tripstore.cli.repair.screens import print_repair
from tripstore.migration.repair.job import KIND, RepairRunner
from tripstore.migration.repair.opening import Repairs
from tripstore.migration.repair.repair import AuthorityMoved
from tripstore.migration.repair.tally import RepairTally, tally_folder

#: A process opens stores of its own before its first cell: another one pays off from so many parts on.
PARTS_PER_PROCESS = 5
#: Without --processes never more: each asks Postgres, where services wait.
PROCESSES_MAX = 4
#: What the first Ctrl-C is answered with.
ENDING = "Ending after the parts at hand. Ctrl-C again ends at once."


@dataclass(frozen=True, slots=True)
class RepairWork:
    """The work of a process beside the command's own, with stores of its own."""

    settings: Settings
    job: Job
    tallies: Path

    def __call__(self, seat: Seat) -> None:
        show_logs(self.settings.verbosity, seat.name)
        with errors_told(self.settings, seat.name), self.settings.connect() as store:
            _repair(Repairs(store.facade), self.job, RepairTally.of_process(self.tallies, seat.name), seat)


@dataclass(frozen=True, slots=True)
class OwnShare:
    """What the command itself repairs, through the stores that it has opened."""

    settings: Settings
    repairs: Repairs
    job: Job
    tallies: Path
    is_alone: bool

    def __call__(self, seat: Seat) -> None:
        seat.at_end(lambda: click.echo(ENDING, err=True))
        tally = RepairTally.of_process(self.tallies, "here")
        if self.is_alone:
            _repair(self.repairs, self.job, tally, seat)
            return
        with errors_told(self.settings, "this process"):
            _repair(self.repairs, self.job, tally, seat)


def _repair(repairs: Repairs, job: Job, tally: RepairTally, seat: Seat) -> None:
    """Until the job has ended, or the seat is to: then what is at hand is finished."""
    stop = threading.Event()
    seat.at_end(stop.set)
    RepairRunner(repairs.jobs, job.id, repairs.of_job(job), repairs.ending(job), saved=tally.add).run(stop)


def repair_all(
    settings: Settings, repairs: Repairs, job: Job, processes: int | None, spares: Spares, *, as_json: bool
) -> Exit:
    """Serve the job until it is done, its end included; Ctrl-C ends it after the parts, or index, at hand."""
    found = repairs.jobs.progress(job.id)
    if held := found.parts_claimed:
        click.echo(
            f"Other processes hold {held:,} parts; parts that they do not finish are free when their lease ends.",
            err=True,
        )
    wanted = processes or processes_for(found.parts - found.parts_done)
    resume = resume_command(repairs, job)
    with (
        tally_folder() as tallies,
        telling(lambda: progress_document(repairs.jobs.progress(job.id))),
    ):
        failed = _serve(settings, repairs, job, wanted, tallies, spares, resume)
        actions = RepairTally.total(tallies)
    document = seen_repair(repairs.jobs, job.id, actions)
    if as_json:
        print_document(document)
    else:
        print_repair(document)
    if document.state == JobState.CANCELLED:
        click.echo(f"{job.id} was given up; what it repaired stays.", err=True)
    elif not document.progress.is_done:
        click.echo(f"`{resume}` goes on.", err=True)
    # What an error ended was not interrupted.
    return Exit.FAILED if failed and document.exit is Exit.INTERRUPTED else document.exit


def resume_command(repairs: Repairs, job: Job) -> str:
    """What to type to go on with a job: `last`, as people remember it, while it is the newest."""
    is_newest = repairs.jobs.find(KIND, LAST).id == job.id
    return job_command(KIND, "resume", LAST if is_newest else job.id)


def processes_for(parts: int) -> int:
    """How many processes serve so many parts, if the operator does not say it."""
    return max(1, min(os.cpu_count() or 1, PROCESSES_MAX, parts // PARTS_PER_PROCESS))


def spares_for(processes: int | None) -> int:
    """How many processes may be wanted beside this one, before anybody knows how much there is to do."""
    return (processes or min(os.cpu_count() or 1, PROCESSES_MAX)) - 1


def _serve(
    settings: Settings, repairs: Repairs, job: Job, processes: int, tallies: Path, spares: Spares, resume: str
) -> int:
    """Repair in this process and beside it; how many processes ended with an error, which they said."""

    def leave() -> None:
        click.echo(f"`{resume}` goes on.", err=True)
        leave_at_once()

    fleet = Fleet(
        RepairWork(settings, job, tallies),
        processes - 1,
        is_finite=True,
        here=OwnShare(settings, repairs, job, tallies, is_alone=processes == 1),
        spares=spares,
        leave=leave,
    )
    try:
        fleet.run()
    except AuthorityMoved:  # says itself what helps
        raise
    except BaseException:
        click.echo(f"`{resume}` goes on where it was.", err=True)
        raise
    if fleet.failed:
        repairs.of_job(job).check()  # an authority that moved is a refusal, and no failure
        click.echo(f"{fleet.failed:,} of {processes:,} processes ended with an error.", err=True)
    return fleet.failed
