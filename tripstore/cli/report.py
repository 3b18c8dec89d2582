"""`tripstore report`: what justifies a switch, for those who decide on it: a page, a document, or a short table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
from rich.console import RenderableType
from rich.text import Text

from tripstore.cli.both import both
from tripstore.cli.documents import print_document
from tripstore.cli.exits import Exit
from tripstore.cli.options import Command, Settings, json_option, pass_settings
from tripstore.cli.progress import waiting
from tripstore.cli.tables import show, table
from tripstore.cli.whole_files import write_whole
from tripstore.engines.validation.report.document import Report
from tripstore.engines.validation.report.glance import glance
from tripstore.migration.report.gather import WantedReport, gather


@click.command(cls=Command)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write one HTML page that needs no network, over whatever stands there.",
)
@click.option("--hours", type=click.IntRange(1), metavar="N", help="Of so many hours; else what the gates count.")
@click.option(
    "--mismatches",
    "listed_max",
    type=click.IntRange(1, 1000),
    default=200,
    show_default=True,
    metavar="N",
    help="List so many mismatches, quarantined rows and conflicts, each.",
)
@click.option("--bodies", is_flag=True, help="Show bodies and the values that messages quote; else they are left out.")
@json_option
@pass_settings
def report(
    settings: Settings, output: Path | None, hours: int | None, listed_max: int, bodies: bool, as_json: bool
) -> Exit:
    """Say whether we may switch, and on what evidence. Changes nothing.

    Coverage, mismatch rates with their bounds, lag, jobs, latency of both backends, every mismatch with a command that
    shows it. Exit code 4 when a gate refuses; the report is made all the same.

    \b
    Example:
      tripstore report -o report.html
      tripstore report --json | jq '.gates[] | select(.is_passed | not)'
    """
    with both(settings) as stores, waiting("looking at both stores"):
        made = gather(stores.facade, WantedReport(hours, listed_max, bodies))
    if output is not None:
        write(made, output)
    if as_json:
        print_document(made)
    else:
        show(*_screen(made))
        click.echo(_farewell(output))
    return Exit.FINE if made.verdict.is_allowed else Exit.REFUSED


def write(made: Report, file: Path) -> None:
    """Write the page."""
    from tripstore.engines.validation.report.html import (
        render,  # the one command that needs a template engine pays for it
    )

    write_whole(file, render(made).encode())


def _screen(made: Report) -> Iterator[RenderableType]:
    verdict = made.verdict
    answer = Text("Yes. ", style="bold green") if verdict.is_allowed else Text("Not yet. ", style="bold red")
    yield Text(verdict.question, style="bold")
    yield answer + Text(verdict.answer, style="")
    yield Text()
    yield table(
        ("", "", ""),
        [(each.name, Text(each.figure, style="red" if each.is_bad else ""), each.note) for each in glance(made)],
    )
    refusing = [gate for gate in made.gates if not gate.is_passed]
    if refusing:
        yield Text()
        yield table(("refuses", "is", "to do"), [(gate.name, gate.said, gate.hint) for gate in refusing])
    if made.unknown:
        yield Text()
        yield from (Text(f"not known: {each.what}: {each.reason}", style="bold red") for each in made.unknown)


def _farewell(output: Path | None) -> str:
    if output is None:
        return "\n`tripstore report -o report.html` writes all of it on one page."
    return f"\n{output} has all of it."
