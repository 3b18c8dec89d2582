"""`ProcessWork`: what each process of a command does that works at a job; `JobWork`, of those that need the facade."""

from __future__ import annotations

import multiprocessing
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import click

from schemaless_core.control.jobs.jobs import Job
from schemaless_core.errors import SchemalessError
from schemaless_core.process.seat import Seat
from tripstore.cli.exits import Exit
from tripstore.cli.logs import show_logs
from tripstore.cli.options import Settings
from tripstore.engines.backfill import BackfillError
from tripstore.engines.validation import ValidationError
from tripstore.facade.facade import Facade
from tripstore.migration.backfill.serving import JobRunner


@contextmanager
def errors_told(settings: Settings, name: str) -> Iterator[None]:
    """An error ends this process alone, with a sentence and its name."""
    try:
        yield
    except (SchemalessError, BackfillError, ValidationError) as error:
        if settings.is_debug:
            raise
        click.echo(f"{name}: {error.message} {error.hint or ''}".rstrip(), err=True)
        sys.exit(Exit.FAILED)


@dataclass(frozen=True, slots=True)
class ProcessWork(ABC):
    """Until the job has ended, or the seat is to. Goes to its process by pickle."""

    settings: Settings
    job: Job

    def __call__(self, seat: Seat) -> None:
        if multiprocessing.parent_process() is None:  # the command itself: its own edge tells of errors
            self._run(seat)
            return
        show_logs(self.settings.verbosity, seat.name)
        with errors_told(self.settings, seat.name):
            self._run(seat)

    @abstractmethod
    def _run(self, seat: Seat) -> None:
        """Serve the job, with stores that are this process' own."""


@dataclass(frozen=True, slots=True)
class JobWork(ProcessWork):
    """Of a job whose runner works at both stores."""

    #: A function of a module: makes the runner of a process, by the process' name.
    runner_of: Callable[[Facade, Job, str], JobRunner]

    def _run(self, seat: Seat) -> None:
        with self.settings.connect() as store:
            runner = self.runner_of(store.facade, self.job, seat.name)
            seat.at_end(runner.stop)
            runner.run()
