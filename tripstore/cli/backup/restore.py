"""`tripstore backup restore`: a datastore made of a backup, as a job that any worker may serve."""

from __future__ import annotations

from datetime import UTC, datetime

import click
from rich.text import Text

from schemaless_core.backups.backups import Backups, RestoreOrder, RestorePlan
from schemaless_core.backups.restore_runner import KIND
from schemaless_core.control.jobs.jobs import Job
from tripstore.cli.backfill.options import PROCESSES_MAX, detach_option
from tripstore.cli.backup.documents import RestoreDocument, restore_document, restore_plan_document
from tripstore.cli.backup.verbs import check_verbs, whole_place
from tripstore.cli.backup.work import BackupWork
from tripstore.cli.documents import print_document
from tripstore.cli.elsewhere.address import EngineAddress, on_option
from tripstore.cli.elsewhere.hosts import engine_at
from tripstore.cli.exits import Exit
from tripstore.cli.jobs.documents import progress_document
from tripstore.cli.jobs.hands import refuse_two_places
from tripstore.cli.jobs.running import run_job, verb_options
from tripstore.cli.jobs.screens import progress_line
from tripstore.cli.jobs.verbs import say_left
from tripstore.cli.options import Command, Settings, json_option, pass_settings
from tripstore.cli.questions import ask, yes_option
from tripstore.cli.tables import show
from tripstore.cli.worker.duty import authority_of, opened


class Moment(click.ParamType["datetime"]):
    """A time; UTC unless it says."""

    name = "time"

    def convert(self, value: str | datetime, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is no time: write 2026-11-29T12:00:00+00:00.", param, ctx)
        return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


@click.command(cls=Command)
@click.argument("place", metavar="[FOLDER]", default="")
@click.argument("name", metavar="[BACKUP]", default="last")
@click.option("--until", type=Moment(), metavar="TIME", help="Leave out cells that were stored later.")
@click.option(
    "--despite-lost-purges",
    is_flag=True,
    help="Restore although a later backup cannot be read: what only that knows to be purged comes back.",
)
@click.option("--dry-run", is_flag=True, help="Look at folder and servers, and say what would be written.")
@click.option("--processes", type=click.IntRange(1, PROCESSES_MAX), metavar="N", help="Else 1; with --on one for each.")
@on_option
@detach_option
@verb_options(
    pause="Have it begin no other page.",
    cancel="Give one up for ever; what it wrote stays, and is closed.",
)
@yes_option
@json_option
@pass_settings
def restore(
    settings: Settings,
    place: str,
    name: str,
    until: datetime | None,
    despite_lost_purges: bool,
    dry_run: bool,
    processes: int | None,
    on: EngineAddress | None,
    detach: bool,
    shown: str | None,
    paused: str | None,
    resumed: str | None,
    cancelled: str | None,
    yes: bool,
    as_json: bool,
) -> Exit:
    """Make a datastore of a backup: the configured one, which must have no shards yet, on any number of clusters.

    Cells get the added ids and times that they had. No shard takes a call before all are there. Then all open, each
    at a later epoch than it was backed up at. Configured indexes are built anew.

    Exit code 1 when a cell that waited met a later one under its key, 4 when the restore is refused, 5 when it was
    interrupted: --resume goes on.

    \b
    Example:
      tripstore backup restore /backups/trips --dry-run --config elsewhere.yaml
      tripstore backup restore /backups/trips --until 2026-11-29T02:00:00+00:00 --config elsewhere.yaml
      tripstore backup restore --resume last --config elsewhere.yaml
    """
    verbs = {"--show": shown, "--pause": paused, "--resume": resumed, "--cancel": cancelled}
    is_new = until is not None or despite_lost_purges or dry_run
    check_verbs(verbs, place, "tripstore backup restore /backups/trips", is_new=is_new)
    refuse_two_places(on, detach=detach)
    with engine_at(settings, on) as engine, opened(settings) as stores:
        backups = stores.datastore.backups(authority_of(stores))
        if shown is not None:
            return _said(backups, backups.jobs.find(KIND, shown), as_json=as_json).exit
        if paused is not None:
            _said(backups, backups.jobs.pause(KIND, paused), as_json=as_json)
            return Exit.FINE
        if cancelled is not None:
            job = backups.jobs.find(KIND, cancelled)
            ask(f"Give up {job.id} for ever?", is_answered=yes)
            _said(backups, backups.cancel_restore(job.id), as_json=as_json)
            return Exit.FINE
        if resumed is not None:
            job = backups.jobs.resume(KIND, resumed, is_detached=True if detach else None)
        else:
            plan = backups.plan_restore(RestoreOrder(whole_place(place), name, until, despite_lost_purges))
            if dry_run or plan.refusals:
                return _show_plan(plan, as_json=as_json)
            as_what = settings.load().core.datastore
            ask(f"Restore {_named(plan)} as {as_what}?{_too_late(plan)}", is_answered=yes)
            job = backups.begin_restore(plan, is_detached=detach)
        if detach:
            say_left(job)
            return Exit.FINE
        work = BackupWork(settings, job)

        def say() -> Exit:
            return _said(backups, job, as_json=as_json).exit

        return run_job(backups.jobs, work, processes, "pages", say, engine)


def _said(backups: Backups, job: Job, *, as_json: bool) -> RestoreDocument:
    seen = progress_document(backups.jobs.progress(job.id))
    document = restore_document(seen, backups.jobs.findings(job.id))
    if as_json:
        print_document(document)
        return document
    show(Text(f"{progress_line(seen)}, {seen.job.shown_state}"))
    show(*(Text(advice, style="bold red") for advice in seen.advice))
    show(*(Text(f"{each.row_key}/{each.column_name}/{each.ref_key}: {each.reason}") for each in document.conflicts))
    if seen.is_done:
        click.echo("All shards are open. `tripstore fsck` looks at them.")
        if document.waiting:
            click.echo(f"{document.waiting:,} cells wait in buffers again: `tripstore buffer drain` carries them.")
        click.echo("Indexes are filled by `tripstore worker run`; then `tripstore index verify` and `index promote`.")
    return document


def _show_plan(plan: RestorePlan, *, as_json: bool) -> Exit:
    if as_json:
        print_document(restore_plan_document(plan))
    elif plan.refusals:
        show(*(Text(refusal, style="bold red") for refusal in plan.refusals))
    else:
        made = plan.manifest
        click.echo(f"{_named(plan)}: {made.cells:,} cells{_too_late(plan)}")
        click.echo(", ".join(f"{count:,} shards to {cluster}" for cluster, count in plan.places.items()))
        if made.indexes:
            click.echo(f"Indexes that it had: {', '.join(made.indexes)}. Those that are configured are built anew.")
    return Exit.REFUSED if plan.refusals else Exit.FINE


def _named(plan: RestorePlan) -> str:
    made = plan.manifest
    return f"{made.backup} of datastore {made.datastore}, begun {made.begun_at.isoformat(timespec='seconds')}"


def _too_late(plan: RestorePlan) -> str:
    """What an operator who names a moment after the backup must know."""
    until = plan.order.until
    if until is None or until <= plan.manifest.begun_at:
        return ""
    return " It was begun before --until: what was stored after it was read is not in it."
