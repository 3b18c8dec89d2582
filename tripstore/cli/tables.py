"""Tables for people: on a terminal as wide as it is, in a pipe as wide as they need to be."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from tripstore.cli.visible import visible

#: A pipe has no width.
_PIPE_COLUMNS = 400


def console() -> Console:
    """Return a console that prints texts as they are: a body is no markup."""
    width = None if sys.stdout.isatty() else _PIPE_COLUMNS
    return Console(file=sys.stdout, width=width, markup=False, highlight=False)


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
    console().print(Group(*parts))
