"""`MoveWork`: what each process of `shards move` does."""

from __future__ import annotations

from schemaless_core.process.seat import Seat
from tripstore.cli.jobs.work import ProcessWork
from tripstore.cli.worker.duty import authority_of, opened


class MoveWork(ProcessWork):
    """Of a datastore's own."""

    __slots__ = ()

    def _run(self, seat: Seat) -> None:
        with opened(self.settings) as stores:
            runner = stores.datastore.moves(authority_of(stores)).runner(self.job, seat.name)
            seat.at_end(runner.stop)
            runner.run()
