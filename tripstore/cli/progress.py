"""Progress of a long command on stderr: a bar on a terminal, one line per interval otherwise."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

Advance = Callable[[int, int], None]

INTERVAL_SECONDS = 1.0


@contextmanager
def progress(noun: str) -> Iterator[Advance]:
    """Lend a function that is told how many are done, of how many."""
    if sys.stderr.isatty():
        with _bar() as bar:
            task = bar.add_task(noun, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)
    else:
        yield Lines(noun)


class Lines:
    """Says how far it is: at first, at last, and once per interval between."""

    def __init__(self, noun: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._noun = noun
        self._clock = clock
        self._next = 0.0

    def __call__(self, done: int, total: int) -> None:
        if done < total and self._clock() < self._next:
            return
        self._next = self._clock() + INTERVAL_SECONDS
        click.echo(f"{self._noun}: {done:,} of {total:,}", err=True)


def _bar() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=Console(stderr=True))
