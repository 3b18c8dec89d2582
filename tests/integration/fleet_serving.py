"""Work for the processes of a fleet that serve a group of triggers."""

from __future__ import annotations

from dataclasses import dataclass

from schemaless_core import Datastore
from schemaless_core.process.seat import Seat
from tests.crew import Notebook, noting


@dataclass(frozen=True)
class Serving:
    """Serves a group that does nothing."""

    config: str

    def __call__(self, seat: Seat) -> None:
        with Datastore.open(self.config) as datastore:
            worker = datastore.triggers.worker([noting(Notebook())], name=seat.name)
            seat.at_end(worker.stop)
            worker.run()
