"""`tripstore backup`: makes, lists and reads backups; `restore` is a file of its own."""

from __future__ import annotations

import click
from rich.text import Text

from schemaless_core.backups.backups import BackupOrder, Backups
from schemaless_core.backups.folders import open_folder
from schemaless_core.backups.kept import find_backup, kept_backups
from schemaless_core.backups.runner import KIND, name_of
from schemaless_core.backups.verifying import verify as read_back
from schemaless_core.control.jobs.jobs import Job
from tripstore.cli.backfill.options import PROCESSES_MAX, detach_option
from tripstore.cli.backup.documents import (
    BackupDocument,
    BackupsDocument,
    PostgresDocument,
    backups_document,
    plan_document,
    verify_document,
)
from tripstore.cli.backup.postgres import postgres_of
from tripstore.cli.backup.restore import restore
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
from tripstore.cli.jobs.verbs import give_up, say_left
from tripstore.cli.options import CommandGroup, Settings, json_option, pass_settings
from tripstore.cli.progress import progress
from tripstore.cli.questions import yes_option
from tripstore.cli.tables import show, table
from tripstore.cli.worker.duty import Opened, authority_of, opened

folder_argument = click.argument("place", metavar="FOLDER")


@click.group(cls=CommandGroup)
def backup() -> None:
    """Keep the logs of all shards as files, full once and then only what came since; make a datastore of them.

    FOLDER is a path, or a URL that fsspec knows: s3://bucket/folder.

    \b
    Example:
      tripstore backup create /backups/trips
      tripstore backup verify /backups/trips
      tripstore backup restore /backups/trips --config elsewhere.yaml
    """


backup.add_command(restore)


@backup.command()
@click.argument("place", metavar="[FOLDER]", default="")
@click.option("--full", "is_full", is_flag=True, help="Read everything, and build upon no backup before.")
@click.option("--dry-run", is_flag=True, help="Look at servers and folder, and say what would be read.")
@click.option(
    "--rate", type=click.FloatRange(min=0, min_open=True), metavar="CELLS", help="So many a second, of each process."
)
@click.option("--processes", type=click.IntRange(1, PROCESSES_MAX), metavar="N", help="Else 1; with --on one for each.")
@on_option
@detach_option
@verb_options(
    pause="Have it begin no other file.",
    cancel="Give one up for ever; its files stay, and are no backup.",
)
@yes_option
@json_option
@pass_settings
def create(
    settings: Settings,
    place: str,
    is_full: bool,
    dry_run: bool,
    rate: float | None,
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
    """Write a backup while callers read and write.

    It has all that was acknowledged before it began, cells that wait in buffers too. The first one in a folder is full;
    each one after that reads what came since. Any `tripstore worker run` goes on with one that was detached.

    Exit code 5 when it was interrupted: --resume goes on.

    \b
    Example:
      tripstore backup create /backups/trips --dry-run
      tripstore backup create /backups/trips --processes 2
      tripstore backup create s3://backups/trips --on dask://scheduler:8786
      tripstore backup create --resume last
    """
    verbs = {"--show": shown, "--pause": paused, "--resume": resumed, "--cancel": cancelled}
    check_verbs(verbs, place, "tripstore backup create /backups/trips", is_new=is_full or dry_run or rate is not None)
    refuse_two_places(on, detach=detach)
    with engine_at(settings, on) as engine, opened(settings) as stores:
        backups = stores.datastore.backups(authority_of(stores))
        if shown is not None:
            return _said(stores, backups, backups.jobs.find(KIND, shown), as_json=as_json).exit
        if paused is not None:
            _said(stores, backups, backups.jobs.pause(KIND, paused), as_json=as_json)
            return Exit.FINE
        if cancelled is not None:
            job = give_up(backups.jobs, KIND, cancelled, "", is_answered=yes)
            _said(stores, backups, job, as_json=as_json)
            return Exit.FINE
        if resumed is not None:
            job = backups.jobs.resume(KIND, resumed, is_detached=True if detach else None)
        else:
            plan = backups.plan(BackupOrder(whole_place(place), is_full, rate))
            if dry_run:
                if as_json:
                    print_document(plan_document(plan))
                else:
                    upon = f", {plan.there:,} of which {plan.base} has" if plan.base else ""
                    click.echo(f"{plan.cells:,} cells in {plan.shards:,} shards{upon}.")
                return Exit.FINE
            job = backups.begin(plan, is_detached=detach)
        if detach:
            say_left(job)
            return Exit.FINE
        work = BackupWork(settings, job)

        def say() -> Exit:
            return _said(stores, backups, job, as_json=as_json).exit

        return run_job(backups.jobs, work, processes, "files", say, engine)


@backup.command("list")
@folder_argument
@json_option
def list_backups(place: str, as_json: bool) -> Exit:
    """List the backups of a folder, the newest first. It asks no server.

    `needs` names the backups whose files one builds upon: without them it cannot be restored.

    \b
    Example:
      tripstore backup list /backups/trips
    """
    document = backups_document(kept_backups(open_folder(place)))
    if as_json:
        print_document(document)
    else:
        _show_list(document)
    return Exit.FINE


@backup.command()
@folder_argument
@click.argument("name", metavar="[BACKUP]", default="last")
@json_option
def verify(place: str, name: str, as_json: bool) -> Exit:
    """Read each file of a backup, and of those that it builds upon, and compare checksums and added ids.

    It asks no server. Exit code 1 when something is damaged.

    \b
    Example:
      tripstore backup verify /backups/trips
      tripstore backup verify /backups/trips backup-20261129T020000123-1a2b3c4d
    """
    folder = open_folder(place)
    made = find_backup(folder, name)
    with progress("files read") as tell:
        seen = read_back(folder, made, tell)
    document = verify_document(made, seen)
    if as_json:
        print_document(document)
    else:
        show(*(Text(f"{file} {reason}.", style="bold red") for file, reason in document.damages.items()))
        verdict = "are damaged" if document.damages else "is as it was written"
        count = f"{len(document.damages):,} of {seen.files:,} files" if document.damages else "Everything"
        click.echo(f"{made.backup}: {seen.files:,} files, {seen.cells:,} cells. {count} {verdict}.")
    return Exit.FAILED if document.damages else Exit.FINE


def _said(stores: Opened, backups: Backups, job: Job, *, as_json: bool) -> BackupDocument:
    seen = progress_document(backups.jobs.progress(job.id))
    document = BackupDocument(seen, name_of(job), seen.counts.get("bytes", 0), postgres_of(stores))
    if as_json:
        print_document(document)
        return document
    show(Text(f"{progress_line(seen)}, {seen.job.shown_state}; {document.bytes:,} bytes were written"))
    show(*(Text(advice, style="bold red") for advice in seen.advice))
    if seen.is_done:
        click.echo(f"{document.backup} is a backup: `tripstore backup verify` reads it back.")
    if document.postgres is not None:
        _say_postgres(document.postgres)
    return document


def _say_postgres(postgres: PostgresDocument) -> None:
    held = ", ".join(postgres.holds)
    if postgres.epoch is None:
        show(Text(f"Postgres is not in it, and its authority row was not read: {postgres.trouble}", style="bold red"))
        click.echo(f"Back it up after this, with: {held}.")
        return
    click.echo(
        f"Postgres ({postgres.backend} is the authority, epoch {postgres.epoch}) is not in it."
        f" Back it up after this, with: {held}."
    )


def _show_list(document: BackupsDocument) -> None:
    if not document.backups:
        click.echo("There is no backup yet.")
        return
    rows = [
        (each.backup, each.state, f"{each.cells:,}", f"{each.own_bytes:,}", each.base or "full", each.reason)
        for each in document.backups
    ]
    show(table(("backup", "state", "cells", "bytes of its own", "builds upon", ""), rows))
