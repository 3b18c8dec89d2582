"""`MoveWork`: what each process of `shards move` does."""

from __future__ import annotations

import multiprocessing
from dataclasses import dataclass

from schemaless_core.control.jobs.jobs import Job
from schemaless_core.process.seat import Seat
from tripstore.cli.jobs.work import errors_told
from tripstore.cli.logs import show_logs
from tripstore.cli.options import Settings
from tripstore.cli.worker.duty import authority_of, opened


@dataclass(frozen=True, slots=True)
class MoveWork:
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

    def _run(self, seat: Seat) -> None:
        with opened(self.settings) as stores:
            runner = stores.datastore.moves(authority_of(stores)).runner(self.job, seat.name)
            seat.at_end(runner.stop)
            runner.run()
