"""Tables for people: on a terminal as wide as it is, in a pipe as wide as they need to be."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Sequence

import click
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from tripstore.cli.visible import visible

#: A pipe has no width: only a body that is wider than this folds. With a height given, too, rich asks no terminal, not
#: even where its variables say that there is one.
_PIPE_COLUMNS, _PIPE_LINES = 100_000, 25


def console() -> Console:
    """Return a console of the terminal that prints texts as they are: a body is no markup."""
    return Console(file=sys.stdout, markup=False, highlight=False)


def table(headings: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> Table:
    """Return a plain table, without a head when that is empty; its cells fold, they are never cut."""
    made = Table(
        box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", show_header=any(headings), highlight=False
    )
    for heading in headings:
        made.add_column(heading, overflow="fold")
    for row in rows:
        made.add_row(*(Text(visible(entry)) if isinstance(entry, str) else entry for entry in row))
    return made


def show(*parts: RenderableType) -> None:
    """Print parts below each other."""
    if sys.stdout.isatty():
        console().print(Group(*parts))
        return
    text = io.StringIO()
    wide = Console(file=text, width=_PIPE_COLUMNS, height=_PIPE_LINES, markup=False, highlight=False)
    wide.print(Group(*parts))
    # The blanks that fill a column up to its widest cell are of no use behind the last one.
    lines = (line.rstrip(" ") for line in text.getvalue().split("\n"))
    click.echo("\n".join(lines), nl=False, color=True)  # rich has judged whether it wants colours
