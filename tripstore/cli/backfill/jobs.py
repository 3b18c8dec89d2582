"""The verbs of `tripstore backfill` that look at jobs, hold them, and give them up."""

from __future__ import annotations

import click

from schemaless_core.control.jobs.records import Job
from schemaless_core.errors import SchemalessError
from tripstore.cli.both import why_option
from tripstore.cli.documents import print_document
from tripstore.cli.exits import Exit
from tripstore.cli.jobs.documents import (
    FindingList,
    ProgressDocument,
    finding_document,
    progress_document,
)
from tripstore.cli.jobs.screens import findings_screen, progress_screen
from tripstore.cli.jobs.verbs import give_up, job_argument, list_command, opened_jobs
from tripstore.cli.options import Command, Settings, json_option, pass_settings
from tripstore.cli.questions import yes_option
from tripstore.cli.tables import show
from tripstore.cli.watching import refuse_document, watch
from tripstore.migration.backfill.walk import BlockWalk, record_of

KIND = "backfill"
DEFAULT_LIMIT = 100

list_jobs = list_command(KIND)


@click.command(cls=Command)
@job_argument
@click.option("--watch", "is_watched", is_flag=True, help="Look again and again, until it ends or Ctrl-C.")
@click.option("--interval", type=click.FloatRange(min=0.1), default=1.0, show_default=True, metavar="SECONDS")
@json_option
@pass_settings
def status(settings: Settings, job: str, is_watched: bool, interval: float, as_json: bool) -> Exit:
    """Show how far a job is, how fast, which workers copy, and why they wait.

    Exit code 1 when rows are in quarantine, or no process works at a job that runs.

    \b
    Example:
      tripstore backfill status
      tripstore backfill status backfill-5f0a7c1e --watch
    """
    refuse_document(watch=is_watched, as_json=as_json)
    with opened_jobs(settings) as jobs:
        found = jobs.find(KIND, job).id

        def look() -> ProgressDocument:
            return progress_document(jobs.progress(found))

        seen = watch(look, progress_screen, interval, _has_ended) if is_watched else look()
    if not is_watched and seen is not None:
        say(seen, as_json=as_json)
    return Exit.FINE if seen is None or seen.is_fine else Exit.FAILED


@click.command(cls=Command)
@job_argument
@why_option
@json_option
@pass_settings
def pause(settings: Settings, job: str, why: str, as_json: bool) -> None:
    """Have a job wait until it is resumed. Its workers finish the chunk that they are at.

    \b
    Example:
      tripstore backfill pause --why "the sale begins at eight"
    """
    with opened_jobs(settings) as jobs:
        seen = progress_document(jobs.progress(jobs.pause(KIND, job, why).id))
    say(seen, as_json=as_json)


@click.command(cls=Command)
@job_argument
@why_option
@yes_option
@json_option
@pass_settings
def cancel(settings: Settings, job: str, why: str, yes: bool, as_json: bool) -> None:
    """Give a job up for ever. What it copied stays. Moves are noted no more, where it walks by blocks.

    \b
    Example:
      tripstore backfill cancel --why "the predicate was wrong"
    """
    with opened_jobs(settings) as jobs:
        given_up = give_up(jobs, KIND, job, why, is_answered=yes)
        _note_no_more(settings, given_up)
        seen = progress_document(jobs.progress(given_up.id))
    say(seen, as_json=as_json)


@click.command("show", cls=Command)
@job_argument
@click.option("--kind", "kinds", multiple=True, metavar="KIND", help="unreadable, conflict or refused; repeatable.")
@click.option("--solved", "is_all", is_flag=True, help="Those too that are solved by now.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=DEFAULT_LIMIT, show_default=True)
@json_option
@pass_settings
def show_findings(
    settings: Settings, job: str, kinds: tuple[str, ...], is_all: bool, limit: int, as_json: bool
) -> Exit:
    """List the quarantine of a job: rows that could not be copied, with the field and the reason.

    `unreadable`: no cell can be made of the row. `conflict`: Schemaless has something else under its key. `refused`: no
    cell can be like this. Exit code 1 when there are any.

    \b
    Example:
      tripstore backfill show
      tripstore backfill show --json | jq -r '.findings[].row_key'
    """
    with opened_jobs(settings) as jobs:
        found = jobs.find(KIND, job).id
        listed = jobs.findings(found, kinds=kinds or None, limit=limit + 1, open_only=not is_all)
    findings = [finding_document(each) for each in listed[:limit]]
    is_complete = len(listed) <= limit
    if as_json:
        print_document(FindingList(found, findings, is_complete))
    elif findings:
        show(findings_screen(findings))
        if not is_complete:
            click.echo(f"These are the first {limit}; --limit shows more.", err=True)
        click.echo(f"When their reasons are mended, `tripstore backfill retry {found}` copies just these.")
    else:
        click.echo(f"Nothing of {found} is in quarantine.")
    return Exit.FAILED if any(each.is_open for each in findings) else Exit.FINE


def _note_no_more(settings: Settings, job: Job) -> None:
    """It is given up whether Postgres answers or not."""
    record, legacy = record_of(job.spec), settings.load().legacy
    if record is None or legacy is None:
        return
    try:
        BlockWalk(legacy.postgres.text, legacy.layout).drop(record)
    except SchemalessError as error:
        click.echo(f"The triggers of its walk are left to the next `tripstore backfill start`. {error}", err=True)


def say(seen: ProgressDocument, *, as_json: bool) -> None:
    if as_json:
        print_document(seen)
    else:
        show(*progress_screen(seen))


def _has_ended(seen: ProgressDocument) -> bool:
    return seen.job.ended_at is not None
