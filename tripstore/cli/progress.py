"""Progress of a long command on stderr: a bar on a terminal, one line per interval otherwise.

Where nobody can say how much there is to do, it is said how long it takes already.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

#: Told how many are done, and of how many; None: nobody knows.
Advance = Callable[[int, int | None], None]

INTERVAL_SECONDS = 1.0
#: A command that ends sooner need not say that it is at work.
WAITING_SECONDS = 2.0


@contextmanager
def progress(noun: str) -> Iterator[Advance]:
    """Lend a function that is told how many are done, of how many."""
    if sys.stderr.isatty():
        with _bar() as bar:
            task = bar.add_task(noun, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)
    else:
        yield Lines(noun)


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Say again and again what is being done, and for how long already."""
    if sys.stderr.isatty():
        with Console(stderr=True).status(what):
            yield
        return
    ended = threading.Event()
    teller = threading.Thread(target=_tell, args=(what, ended), name="waiting", daemon=True)
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join()


class Lines:
    """Says how far it is: at first, at last, and once per interval between."""

    def __init__(self, noun: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._noun = noun
        self._clock = clock
        self._next = 0.0

    def __call__(self, done: int, total: int | None) -> None:
        if (total is None or done < total) and self._clock() < self._next:
            return
        self._next = self._clock() + INTERVAL_SECONDS
        click.echo(f"{self._noun}: {done:,}" + ("" if total is None else f" of {total:,}"), err=True)


def _tell(what: str, ended: threading.Event) -> None:
    started = time.monotonic()
    while not ended.wait(WAITING_SECONDS):
        click.echo(f"{what}, {time.monotonic() - started:.0f} s", err=True)


def _bar() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=Console(stderr=True))
