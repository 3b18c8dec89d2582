"""`BackupWork`: what each process of `backup create` and `backup restore` does."""

from __future__ import annotations

from schemaless_core.backups.restore_runner import KIND as RESTORE
from schemaless_core.process.seat import Seat
from tripstore.cli.jobs.work import ProcessWork
from tripstore.cli.worker.duty import authority_of, opened


class BackupWork(ProcessWork):
    """Of a datastore's own."""

    __slots__ = ()

    def _run(self, seat: Seat) -> None:
        with opened(self.settings) as stores:
            backups = stores.datastore.backups(authority_of(stores))
            runner_of = backups.restore_runner if self.job.kind == RESTORE else backups.runner
            runner = runner_of(self.job, seat.name)
            seat.at_end(runner.stop)
            runner.run()
