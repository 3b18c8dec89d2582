"""`FollowWork`: what the process of `replicate start` does; and both datastores, as each command of it opens them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from prometheus_client import start_http_server

from schemaless_core.datastore import Datastore
from schemaless_core.errors import ReplicationRefused
from schemaless_core.process.seat import Seat
from schemaless_core.replication.ports import StandbyState
from schemaless_core.replication.record import StandbyRecord
from schemaless_core.replication.replication import Replication
from tripstore.cli.jobs.work import ProcessWork
from tripstore.cli.options import Settings
from tripstore.config import load_config


@dataclass(frozen=True, slots=True)
class FollowWork(ProcessWork):
    """Follow until the datastore leads, or the seat is to end."""

    metrics_port: int | None
    metrics_host: str

    def _run(self, seat: Seat) -> None:
        if self.metrics_port is not None:
            start_http_server(self.metrics_port, self.metrics_host)
        with both(self.settings, str(self.job.spec["other"])) as replication:
            runner = replication.runner(self.job, seat.name)
            seat.at_end(runner.stop)
            runner.run()


@contextmanager
def own(settings: Settings) -> Iterator[Datastore]:
    """The datastore of the configuration, by itself."""
    config = settings.load()
    if config.legacy is not None:
        raise ReplicationRefused(
            "This configuration has a section legacy:, and standbys know no Postgres.",
            hint="Leave the section out until this datastore leads, then add it.",
        )
    with Datastore(config.core) as datastore:
        yield datastore


@contextmanager
def both(settings: Settings, other: str) -> Iterator[Replication]:
    """The datastore of the configuration, and the one that leads. `other`: the path of its configuration."""
    with own(settings) as standby, Datastore(load_config(other).core) as led:
        yield standby.replication(led)


@contextmanager
def both_as_recorded(settings: Settings) -> Iterator[Replication]:
    """The same; the other one as the datastore's own record names it."""
    with own(settings) as standby:
        found = StandbyRecord(standby.control, standby.config.shards).find().standby
        if found.state is not StandbyState.NONE and not found.job:  # it gave the lead away, and may lead again
            with _taker(found.other, standby) as led:
                yield standby.replication(led)
            return
        if not found.other:
            raise ReplicationRefused(
                "This datastore follows none.", hint="`tripstore replicate start --from FILE` has it follow one."
            )
        with Datastore(load_config(found.other).core) as led:
            yield standby.replication(led)


@contextmanager
def _taker(path: str, left: Datastore) -> Iterator[Datastore]:
    """The one that was given the lead. Its file is on its own hosts, so it may not be here, or be another one's here.

    Then the datastore itself stands in its place, as one that is not known.
    """
    config = load_config(path).core if os.path.isfile(path) else left.config
    if (config.control, config.datastore) == (left.config.control, left.config.datastore):
        yield left
        return
    with Datastore(config) as led:
        yield led
