"""`tripstore purge`: deletes rows, or superseded versions, so that they never come back."""

from __future__ import annotations

from collections.abc import Mapping

import click

from schemaless_core.control.jobs.jobs import Job, JobState
from schemaless_core.datastore import Datastore
from schemaless_core.process.seat import Seat
from schemaless_core.purging.purge_jobs import PurgeOrder, PurgePlan, order_of
from schemaless_core.purging.runner import BEHIND, KIND, LEFT
from tripstore.cli.backfill.options import PROCESSES_MAX, detach_option
from tripstore.cli.documents import print_document
from tripstore.cli.exits import Exit
from tripstore.cli.jobs.documents import progress_document
from tripstore.cli.jobs.running import given_verb, run_job, verb_options
from tripstore.cli.jobs.verbs import give_up, say_left
from tripstore.cli.jobs.work import ProcessWork
from tripstore.cli.options import Command, Settings, json_option, pass_settings
from tripstore.cli.purge.beyond import not_reached
from tripstore.cli.purge.documents import PurgeDocument, purge_document, purge_plan_document
from tripstore.cli.purge.order import PurgeWanted, wanted_options
from tripstore.cli.purge.screens import print_plan, print_purge
from tripstore.cli.questions import ask, yes_option
from tripstore.config import TripstoreConfig
from tripstore.migration.layouts.columns import known_kinds

#: Rows that are named of those that something is left of.
LISTED_MAX = 1_000


class PurgeWork(ProcessWork):
    """What each process does."""

    __slots__ = ()

    def _run(self, seat: Seat) -> None:
        with self.settings.open() as datastore:
            runner = datastore.purge_jobs.runner(self.job, seat.name)
            seat.at_end(runner.stop)
            runner.run()


@click.command(cls=Command)
@wanted_options
@click.option("--processes", type=click.IntRange(1, PROCESSES_MAX), metavar="N", help="Else 1; with --resume as begun.")
@click.option("--dry-run", is_flag=True, help="Count what would be deleted, and say what would not be reached.")
@detach_option
@verb_options(pause="Have it begin no other step.", cancel="Give one up for ever; names rows that were begun.")
@yes_option
@json_option
@pass_settings
def purge(
    settings: Settings,
    wanted: PurgeWanted,
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
    """Delete whole rows, or superseded versions, for good: nothing brings them back.

    Their keys are recorded first. From then on no put, mirror, backfill, replay, salvage, repair, move or restore
    stores one of them: a service that tries gets CellPurged. Cells go in small transactions while callers work.
    Superseded versions are purged of columns that hold one thing of a row. Layouts say it, and are remembered; of a
    column that none of them has, --versioned says it. Columns of children are refused.
    What a purge does not reach (Postgres, files of backups) is listed by --dry-run and at the end.

    Exit code 1 when something of a row is left or a replica lacks what was purged, 5 when it was interrupted:
    --resume goes on.

    \b
    Example:
      tripstore purge --rows-file forget.txt --dry-run
      tripstore purge --rows-file forget.txt
      tripstore purge --superseded --older-than 90d --columns BASE --rate 2000
      tripstore purge --resume last
    """
    verbs = {"--show": shown, "--pause": paused, "--resume": resumed, "--cancel": cancelled}
    _check(verbs, is_new=wanted.is_new, has_more=dry_run or wanted.rate is not None)
    config = settings.load()
    with settings.open() as datastore:
        purges = datastore.purge_jobs
        if shown is not None:
            return _said(config, datastore, purges.jobs.find(KIND, shown), as_json=as_json).exit
        if paused is not None or cancelled is not None:
            job = (
                purges.jobs.pause(KIND, paused)
                if paused is not None
                else give_up(purges.jobs, KIND, str(cancelled), "", is_answered=yes)
            )
            _said(config, datastore, job, as_json=as_json)
            return Exit.FINE
        if resumed is not None:
            job = purges.jobs.resume(KIND, resumed, is_detached=True if detach else None)
            processes = processes or order_of(job).processes
        else:
            plan = purges.plan(wanted.order(processes or 1, lambda: known_kinds(config, datastore)))
            if dry_run:
                return _said_plan(config, datastore, plan, as_json=as_json)
            ask(_question(plan.order), is_answered=yes)
            job = purges.begin(plan, is_detached=detach)
        if detach:
            if as_json:
                _said(config, datastore, job, as_json=True)
            else:
                say_left(job)
            return Exit.FINE
        return run_job(
            purges.jobs,
            PurgeWork(settings, job),
            processes or 1,
            "steps",
            lambda: _said(config, datastore, job, as_json=as_json).exit,
        )


def _check(verbs: Mapping[str, str | None], *, is_new: bool, has_more: bool) -> None:
    """Of the options for a job that was begun one alone, and none that would begin another."""
    if given_verb(verbs, is_more=is_new or has_more) is None and not is_new:
        raise click.UsageError("Say what to purge: --rows-file FILE, or --superseded --older-than 90d --columns A,B.")


def _question(order: PurgeOrder) -> str:
    if order.rows:
        return f"Delete {len(order.rows):,} rows for good?"
    assert order.before is not None, "columns come with an age"
    names, moment = ", ".join(order.columns), order.before.isoformat(timespec="seconds")
    return f"Delete superseded versions of {names} from before {moment} for good?"


def _said_plan(config: TripstoreConfig, datastore: Datastore, plan: PurgePlan, *, as_json: bool) -> Exit:
    beyond = not_reached(config, datastore, is_of_rows=bool(plan.order.rows))
    document = purge_plan_document(datastore.purge_jobs.count(plan), beyond)
    if as_json:
        print_document(document)
    else:
        print_plan(document)
    return Exit.FINE


def _said(config: TripstoreConfig, datastore: Datastore, job: Job, *, as_json: bool) -> PurgeDocument:
    jobs = datastore.purge_jobs.jobs
    progress = jobs.progress(job.id)
    left = [found.row_key for found in jobs.findings(job.id, kinds=[LEFT], limit=LISTED_MAX) if found.row_key]
    behind = sorted({str(found.body["server"]) for found in jobs.findings(job.id, kinds=[BEHIND])})
    beyond = not_reached(config, datastore, is_of_rows=bool(job.spec.get("purged_rows")))
    # Of one that goes on its workers know.
    unfinished = [] if progress.job.state == JobState.RUNNING else datastore.purge_jobs.unfinished(job)
    seen = purge_document(progress_document(progress), left, behind, unfinished, beyond)
    if as_json:
        print_document(seen)
    else:
        print_purge(seen)
    return seen
