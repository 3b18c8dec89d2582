"""Where each shard is, as this process knows it: from the control database, and from the servers themselves.

A process starts without the control database: every server says which shards it holds, and at which epoch. Whatever is
known here may be stale; the stores refuse a stale epoch, and then it is learned anew.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from schemaless_core.clusters import Cluster
from schemaless_core.control.database import ControlDatabase
from schemaless_core.control.topologies import Topologies
from schemaless_core.deadline import Deadline
from schemaless_core.errors import (
    ControlUnavailable,
    InvalidConfig,
    NodeUnavailable,
    SchemaMissing,
    Unavailable,
)
from schemaless_core.standing import ShardHead, ShardStatus
from schemaless_core.topology import Topology

logger = logging.getLogger(__name__)

LOOK_SECONDS = 2.0


class Place(NamedTuple):
    """A shard's cluster, and the epochs to present there."""

    cluster: str
    epoch: int
    authority_epoch: int


class Places:
    """The places of all shards; learned at first use and again whenever a store refuses."""

    def __init__(self, shards: int, clusters: Mapping[str, Cluster], control: ControlDatabase) -> None:
        self._shards = shards
        self._clusters = clusters
        self._topologies = Topologies(control)
        self._lock = threading.Lock()
        self._places: dict[int, Place] = {}
        self._is_learned = False

    def get(self, shard: int) -> Place:
        """Return where a shard is, or raise `Unavailable` when nobody who knows can be reached."""
        if not self._is_learned:
            self._learn_all()
        place = self._places.get(shard)
        if place is None:
            self._learn_all(again=True)
            place = self._places.get(shard)
        if place is None:
            raise Unavailable(
                f"Nobody can say where shard {shard} is.", hint="Start the control database or the shard's cluster."
            )
        return place

    def learn(self, shards: Iterable[int]) -> set[int]:
        """Look again after refusals; return the shards whose place or epochs changed."""
        before = {shard: self._places.get(shard) for shard in shards}
        self._learn_all(again=True)
        return {shard for shard, place in before.items() if self._places.get(shard) != place}

    def after_fork(self) -> None:
        """A lock that another thread of the parent held would never be released here."""
        self._lock = threading.Lock()

    def _learn_all(self, *, again: bool = False) -> None:
        with self._lock:
            if self._is_learned and not again:
                return
            topology = self._topology()
            self._look_at_servers(self._clusters.values(), topology)
            self._is_learned = True

    def _topology(self) -> Topology | None:
        """What the control database says; None while it cannot be asked."""
        try:
            topology = self._topologies.find_newest()
        except ControlUnavailable as error:
            logger.warning("starting without the control database", extra={"event": "control.unavailable"})
            logger.debug("%s", error)
            return None
        except SchemaMissing:
            return None
        if topology is not None:
            check_topology(topology, self._shards, self._clusters)
            for shard, placement in topology:
                known = self._places.get(shard)
                if known is None or known.epoch < placement.epoch:
                    self._places[shard] = Place(placement.cluster, placement.epoch, 0)
        return topology

    def _look_at_servers(self, clusters: Iterable[Cluster], topology: Topology | None) -> None:
        """Let every server that answers say what it holds; the highest epoch of a shard is its owner."""
        answered = 0
        for cluster in clusters:
            try:
                heads = self._heads(cluster)
                answered += 1
            except NodeUnavailable as error:
                logger.warning(
                    "a cluster does not answer", extra={"event": "cluster.unavailable", "cluster": cluster.name}
                )
                logger.debug("%s", error)
                continue
            for shard, head in heads.items():
                known = self._places.get(shard)
                if head.state.status != ShardStatus.MOVED.value and (known is None or head.state.epoch >= known.epoch):
                    self._places[shard] = Place(cluster.name, head.state.epoch, head.state.authority_epoch)
        if topology is None and answered == len(self._clusters) and not self._places:
            raise SchemaMissing("The datastore has no shards yet.", hint="Run `tripstore schema apply`.")

    def _heads(self, cluster: Cluster) -> dict[int, ShardHead]:
        def look(node: object) -> dict[int, ShardHead]:
            recorded = cluster.primary.node.shard_count()
            if recorded is None:
                return {}
            if recorded != self._shards:
                raise wrong_shard_count(self._shards, recorded)
            return cluster.primary.node.heads(None, Deadline(LOOK_SECONDS))

        return cluster.primary.ask(look)


def check_topology(topology: Topology, shards: int, clusters: Collection[str]) -> None:
    """Refuse a configuration that does not fit what was created."""
    if topology.shards != shards:
        raise wrong_shard_count(shards, topology.shards)
    for placement in topology.placements:
        if placement.cluster not in clusters:
            raise InvalidConfig(
                "clusters",
                f"lacks {placement.cluster!r}, which holds shards {placement.first} to {placement.last}",
                hint=f"Add {placement.cluster}: {{primary: …}}.",
            )


def wrong_shard_count(configured: int, created: int) -> InvalidConfig:
    return InvalidConfig(
        "shards",
        f"is {configured}, but the datastore was created with {created}",
        hint=f"Write shards: {created}. The number is fixed at creation, row keys depend on it.",
    )
