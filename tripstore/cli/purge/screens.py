"""What `tripstore purge` shows to people."""

from __future__ import annotations

import click
from rich.text import Text

from schemaless_core.control.jobs.jobs import JobState
from tripstore.cli.jobs.screens import progress_line
from tripstore.cli.purge.documents import PurgeDocument, PurgePlanDocument
from tripstore.cli.tables import show


def print_plan(plan: PurgePlanDocument) -> None:
    of_rows = f" of {plan.rows:,} rows" if plan.rows else ""
    waiting = f", {plan.waiting:,} that wait in buffers, {plan.conflicts:,} in conflict" if plan.rows else ""
    click.echo(f"{plan.cells:,} cells{of_rows}{waiting} would be deleted for good.")
    _print_not_reached(plan.not_reached)


def print_purge(seen: PurgeDocument) -> None:
    progress = seen.progress
    of_rows = f" of {seen.rows:,} rows" if seen.rows else ""
    show(Text(f"{progress_line(progress)}, {progress.job.shown_state}; {seen.cells:,} cells{of_rows} deleted"))
    show(*(Text(advice, style="bold red") for advice in progress.advice))
    for row_key in seen.left:
        show(Text(f"Something of {row_key} is left: purge it again, and see docs/howto/purge.md.", style="bold red"))
    if seen.unfinished:
        show(*(Text(line, style="bold red") for line in _unfinished(seen)))
    for server in seen.behind:
        name = server.rpartition("@")[2]
        show(Text(f"{name} lacks some of what was purged: see docs/howto/purge.md#replicas.", style="bold red"))
    _print_not_reached(seen.not_reached)


def _unfinished(seen: PurgeDocument) -> list[str]:
    """What an operator does about rows that were begun."""
    job = seen.progress.job
    begun = f"{len(seen.unfinished):,} rows were begun and not finished"
    if job.state != JobState.CANCELLED:
        return [f"{begun}: `tripstore purge --resume {job.job}` does."]
    return [
        f"{begun}: they take no cells, may be readable in part, and"
        " bodies of theirs may be in the audit table. Purge them again:",
        f"  tripstore purge --show {job.job} --json | jq -r '.unfinished[]' > again.txt",
        "  tripstore purge --rows-file again.txt",
    ]


def _print_not_reached(lines: list[str]) -> None:
    if lines:
        click.echo("Not reached:")
    for line in lines:
        click.echo(f"  {line}")
