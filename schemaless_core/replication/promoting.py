"""`StandbySide`: a standby's own copies, as its promotion has them catch up, arrive and open."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from schemaless_core.engine.primacy import Opening
from schemaless_core.errors import StaleEpoch, Unavailable
from schemaless_core.promotion.ports import SILENT, Silent
from schemaless_core.replication.beside import THREADS
from schemaless_core.replication.copied import StandbyCopies
from schemaless_core.replication.following import LogFollowing
from schemaless_core.replication.replicas import OwnReplicas
from schemaless_core.servers.topology import Topology

T = TypeVar("T")

logger = logging.getLogger(__name__)

#: Two datastores take the lead from each other at epochs that are so far apart: between them are those of promotions
#: within the one that leads, of which the other one may not have heard.
EPOCHS_PER_LEAD = 1_000
#: Rounds without a new page, while logs are longer: their servers are at other epochs than their topology.
ROUNDS_MAX = 20
#: For shards that are refused: their cluster may be on its way to another primary.
PATIENCE_SECONDS = 30.0


class UnopenedShards(Unavailable):
    """They were tried for long enough."""

    def __init__(self) -> None:
        super().__init__(
            "A copy was not to be made a shard.",
            hint="Its server is read-only, or its cluster is being promoted: `tripstore shards status`.",
        )


class StandbySide:
    """A `CopiesPort`."""

    def __init__(
        self,
        copies: StandbyCopies,
        following: LogFollowing,
        replicas: OwnReplicas,
        placed: Callable[[], Topology],
        hear: Callable[[int], object],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`placed`: the own topology; its caller knows from then on who leads the clusters.

        `hear`: is told how many cells the copies lack.
        """
        self._placed = placed
        self._clock = clock
        self._refused_since: float | None = None
        self._replicas = replicas
        following.hears_by(replicas.waits)
        self._copies = copies
        self._following = following
        self._hear = hear
        #: The shard that was not to be opened, the last time, and its state.
        self.unopened = ""
        #: Why a server did not answer, the last time.
        self.silence: Unavailable | StaleEpoch | None = None

    def next_epoch(self, known: int) -> int | Silent:
        def look() -> int:
            latest = max((each.epoch for each in self._each(self._copies.look)), default=0)
            return (max(latest, known) // EPOCHS_PER_LEAD + 1) * EPOCHS_PER_LEAD

        return self._tried(look)

    def catch_up(self) -> bool | Silent:
        caught_up = self._tried(self._catch_up)
        self._replicas.wants_anew()
        return caught_up

    def replicated(self) -> bool | Silent:
        return self._tried(self._replicas.have)

    def _catch_up(self) -> bool:
        self._following.look_again()
        idle = 0
        while idle < ROUNDS_MAX:
            seen = self._following.round()
            self._hear(seen.behind)
            if not seen.behind and self._following.is_at_epochs and not self._following.is_ahead:
                self._following.beside()
                return True
            idle = 0 if seen.cells else idle + 1
        return False

    def arrive(self, epoch: int) -> bool | Silent:
        def arrive() -> bool:
            epochs = self._epochs(epoch)
            have_come = self._each(lambda shard: self._copies.arrive(shard, epochs[shard], epoch), epochs)
            return self._patiently(is_done=all(have_come))

        return self._tried(arrive)

    def open(self, epoch: int, opening: Opening | None) -> bool | Silent:
        def open_all() -> bool:
            epochs = self._epochs(epoch)
            are_open = self._each(lambda shard: self._copies.open(shard, epochs[shard], opening), epochs)
            self._replicas.wants_anew()
            shut = next((shard for shard, is_open in zip(sorted(epochs), are_open, strict=True) if not is_open), None)
            if shut is not None:
                self.unopened = f"Shard {shut} is {self._copies.look(shut).state}"
            return shut is None

        return self._tried(open_all)

    def are_open(self, epoch: int) -> bool | Silent:
        def look() -> bool:
            epochs = self._epochs(epoch)
            are_open = self._each(lambda shard: self._copies.is_open(shard, epochs[shard]), epochs)
            return self._patiently(is_done=all(are_open))

        return self._tried(look)

    def _epochs(self, epoch: int) -> dict[int, int]:
        """At which each shard is to be open: a promotion of its cluster may have gone on. What has moved since is open.

        The topology is read before who leads: what a later epoch asks for is asked of the server that has it.
        """
        return {shard: max(epoch, at.epoch) for shard, at in self._placed() if at.cluster == self._copies.places[shard]}

    def _patiently(self, *, is_done: bool) -> bool:
        """It may be that a cluster is being promoted; but not for ever."""
        if is_done:
            self._refused_since = None
            return True
        now = self._clock()
        if self._refused_since is None:
            self._refused_since = now
        if now - self._refused_since > PATIENCE_SECONDS:
            self._refused_since = None
            raise UnopenedShards
        return False

    def _each(self, verb: Callable[[int], T], shards: Iterable[int] | None = None) -> list[T]:
        with ThreadPoolExecutor(THREADS) as threads:
            return list(threads.map(verb, sorted(self._copies.places if shards is None else shards)))

    def _tried(self, work: Callable[[], T]) -> T | Silent:
        try:
            return work()
        except (Unavailable, StaleEpoch) as error:
            self.silence = error
            extra = {"event": "replicate.silent", "reason": error.message}
            logger.warning("a server does not do what a promotion asks", extra=extra)
            return SILENT
