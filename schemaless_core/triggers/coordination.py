"""`Coordination`: where the workers of a datastore agree, as it is configured, and what the doctor says of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from schemaless_core.config import DatastoreConfig
from schemaless_core.control.database import ControlDatabase
from schemaless_core.engine.base import Fact
from schemaless_core.errors import InvalidConfig, SchemalessError
from schemaless_core.triggers.leases.coordinator import Coordinator, LeaseConfig
from schemaless_core.triggers.leases.leases import Leases
from schemaless_core.triggers.leases.pulse import living_workers
from schemaless_core.urls import ZooKeeperUrl

if TYPE_CHECKING:  # The extra may not be installed.
    from schemaless_core.triggers.zookeeper.ensemble import Ensemble

#: A call of a worker with short leases may take this long all the same: a new connection is made in it.
CALL_SECONDS_MIN = 1.0
#: A session means nothing to us, and ends a connection that is silent for two thirds of it.
SESSION_SECONDS_MIN = 6.0
_STOP = "Stop them, then start them with triggers.coordinator set: until then shards go to and fro between both."


class Coordination:
    """Shared by a store and all that `using` made of it: ZooKeeper is asked over one connection of a process."""

    def __init__(self, config: DatastoreConfig, control: ControlDatabase) -> None:
        self._config = config
        self._control = control
        url = config.triggers.coordinator
        self._ensemble: Ensemble | None = None if url is None else _ensemble(url, config)

    @property
    def place(self) -> str:
        """Where the leases are."""
        return self._control.name if self._ensemble is None else self._ensemble.name

    def coordinator(self) -> Coordinator:
        """A coordinator with a memory of its own, for one set of groups and their worker."""
        if self._ensemble is None:
            return Leases(self._control)
        from schemaless_core.triggers.zookeeper.leases import ZooKeeperLeases  # with kazoo, an extra

        return ZooKeeperLeases(self._ensemble, Leases(self._control), self._config.shards)

    def facts(
        self, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> list[Fact]:
        """What the doctor says of a coordinator of its own; nothing where it is the control database."""
        if self._ensemble is None:
            return []
        try:
            survey = self.coordinator().survey()
        except SchemalessError as error:
            reason = getattr(error, "reason", error.message)
            return [Fact("reachable", reason, False, advice=error.hint or "Start it: no shard changes its worker.")]
        told = f"of {len(survey.groups)} groups, {len(survey.workers)} workers"
        return [Fact("reachable", "yes", True), Fact("leases", told, True), *self._divided(clock, sleep)]

    def close(self) -> None:
        """End the connection."""
        if self._ensemble is not None:
            self._ensemble.close()

    def after_fork(self) -> None:
        """Forget the parent's connection."""
        if self._ensemble is not None:
            self._ensemble.after_fork()

    def _divided(self, clock: Callable[[], float], sleep: Callable[[float], None]) -> Iterator[Fact]:
        """Workers that do not know of the coordinator yet."""
        lease_seconds = self._config.triggers.lease_seconds
        astray = living_workers(Leases(self._control), lease_seconds, clock=clock, sleep=sleep)
        if astray:
            yield Fact("workers", f"{len(astray)} use the control database instead", False, advice=_STOP)


def _ensemble(url: ZooKeeperUrl, config: DatastoreConfig) -> Ensemble:
    try:
        from schemaless_core.triggers.zookeeper.ensemble import Ensemble
    except ImportError:
        hint = "Install it: pip install 'tripstore[zookeeper]'."
        raise InvalidConfig("triggers.coordinator", "needs kazoo, which is not installed", hint=hint) from None
    lease_seconds = config.triggers.lease_seconds
    call_seconds = max(CALL_SECONDS_MIN, LeaseConfig(lease_seconds).beat_seconds)
    return Ensemble(url, config.datastore, max(SESSION_SECONDS_MIN, lease_seconds), call_seconds)
