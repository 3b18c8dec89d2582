"""Progress of a long command on stderr: a bar on a terminal, one line per interval otherwise.

Where it is not known how much there is to do, the line says how long it takes already.
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

from tripstore.cli.awaited import Awaited, AwaitsNothing

#: Told how many are done, and of how many; None: not known.
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
        yield ProgressLines(noun)


@contextmanager
def waiting(what: str, awaited: Awaited | None = None) -> Iterator[None]:
    """Say again and again what is being done, for how long already, and which worker it waits for."""
    awaited = awaited or AwaitsNothing()
    waits = awaited.look()
    if sys.stderr.isatty():
        with Console(stderr=True).status(what + waits):
            yield
        return
    ended = threading.Event()
    teller = threading.Thread(target=_tell, args=(what, awaited, ended), name="waiting", daemon=True)
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join()


class ProgressLines:
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


def _tell(what: str, awaited: Awaited, ended: threading.Event) -> None:
    started = time.monotonic()
    while not ended.wait(WAITING_SECONDS):
        waits = awaited.look()
        click.echo(f"{what}, {time.monotonic() - started:.0f} s{waits}", err=True)


def _bar() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=Console(stderr=True))
