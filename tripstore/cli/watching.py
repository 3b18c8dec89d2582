"""`--watch`: one screen again and again, until Ctrl-C, or until there is nothing more to see."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import click
from rich.console import Group, RenderableType
from rich.live import Live

from tripstore.cli.tables import console, show

Seen = TypeVar("Seen")
Screen = Iterable[RenderableType]


def refuse_document(*, watch: bool, as_json: bool) -> None:
    """One document has an end."""
    if watch and as_json:
        raise click.UsageError("--watch has no end, and --json is one document: leave one of them out.")


def watch(
    look: Callable[[], Seen],
    screen: Callable[[Seen], Screen],
    seconds: float,
    is_over: Callable[[Seen], bool] | None = None,
) -> Seen | None:
    """Return what was seen last. None: Ctrl-C, which is the way out and no failure."""
    try:
        with _shown(is_whole=is_over is None) as put:
            while True:
                seen = look()
                put(screen(seen))
                if is_over is not None and is_over(seen):
                    return seen
                time.sleep(seconds)
    except KeyboardInterrupt:
        return None


@contextmanager
def _shown(*, is_whole: bool) -> Iterator[Callable[[Screen], None]]:
    """In place on a terminal, `is_whole`: all of it; else one below the other."""
    if not sys.stdout.isatty():
        yield lambda parts: show(*parts)
        return
    with Live(console=console(), auto_refresh=False, screen=is_whole) as live:
        yield lambda parts: live.update(Group(*parts), refresh=True)
