"""The verbs of `tripstore backfill` that look at jobs, hold them, and give them up."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import click
from rich.console import Group as Parts
from rich.live import Live

from schemaless_core.control.jobs import Jobs
from tripstore.cli.both import why_option
from tripstore.cli.documents import print_document
from tripstore.cli.exits import Exit
from tripstore.cli.job_documents import (
    FindingList,
    ProgressDocument,
    finding_document,
    job_document,
    progress_document,
)
from tripstore.cli.job_screens import findings_screen, progress_screen
from tripstore.cli.job_verbs import give_up, job_argument, opened_jobs, say_jobs
from tripstore.cli.options import Command, Settings, json_option, pass_settings
from tripstore.cli.questions import yes_option
from tripstore.cli.tables import console, show

KIND = "backfill"
DEFAULT_LIMIT = 100


@click.command(cls=Command)
@job_argument
@click.option("--watch", is_flag=True, help="Look again and again, until it ends or Ctrl-C.")
@click.option("--interval", type=click.FloatRange(min=0.1), default=1.0, show_default=True, metavar="SECONDS")
@json_option
@pass_settings
def status(settings: Settings, job: str, watch: bool, interval: float, as_json: bool) -> Exit:
    """Show how far a job is, how fast, who works at it, and why somebody waits.

    Exit code 1 when rows are in quarantine, or nobody works at a job that runs.

    \b
    Example:
      tripstore backfill status
      tripstore backfill status backfill-5f0a7c1e --watch
    """
    if watch and as_json:
        raise click.UsageError("--watch has no end, and --json is one document: leave one of them out.")
    with opened_jobs(settings) as jobs:
        found = jobs.find(KIND, job).id
        if watch:
            return _watch(jobs, found, interval)
        seen = progress_document(jobs.progress(found))
    say(seen, as_json=as_json)
    return Exit.FINE if seen.is_fine else Exit.FAILED


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
    """Give a job up for ever. What it copied stays.

    \b
    Example:
      tripstore backfill cancel --why "the predicate was wrong"
    """
    with opened_jobs(settings) as jobs:
        seen = progress_document(jobs.progress(give_up(jobs, KIND, job, why, is_answered=yes).id))
    say(seen, as_json=as_json)


@click.command("list", cls=Command)
@json_option
@pass_settings
def list_jobs(settings: Settings, as_json: bool) -> None:
    """List all backfills, the newest first.

    \b
    Example:
      tripstore backfill list
    """
    with opened_jobs(settings) as jobs:
        listed = [job_document(each) for each in jobs.all(KIND)]
    say_jobs(KIND, listed, as_json=as_json)


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


def say(seen: ProgressDocument, *, as_json: bool) -> None:
    if as_json:
        print_document(seen)
    else:
        show(*progress_screen(seen))


def _watch(jobs: Jobs, job_id: str, interval: float) -> Exit:
    """Ctrl-C is the way out, so it is no failure; so is the end of the job."""
    try:
        if sys.stdout.isatty():
            with Live(console=console(), auto_refresh=False) as live:
                for seen in _looks(jobs, job_id, interval):
                    live.update(Parts(*progress_screen(seen)), refresh=True)
        else:
            for seen in _looks(jobs, job_id, interval):
                show(*progress_screen(seen))
    except KeyboardInterrupt:
        return Exit.FINE
    return Exit.FINE if seen.is_fine else Exit.FAILED


def _looks(jobs: Jobs, job_id: str, interval: float) -> Iterator[ProgressDocument]:
    """How far it is, again and again, until it has ended."""
    while True:
        seen = progress_document(jobs.progress(job_id))
        yield seen
        if seen.job.ended_at is not None:
            return
        time.sleep(interval)
