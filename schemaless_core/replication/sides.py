"""`DatastoreSide`: one of the two datastores, where its logs are and end, and how far one is behind the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from schemaless_core.config import DatastoreConfig
from schemaless_core.control.database import ControlDatabase
from schemaless_core.deadline import Deadline
from schemaless_core.errors import SchemaMissing
from schemaless_core.logcopy.ends import CALL_SECONDS, ClusterEnd
from schemaless_core.purging.purges import Purges
from schemaless_core.replication.forks import History, fork, history_of
from schemaless_core.replication.led import places_of
from schemaless_core.replication.other import heads
from schemaless_core.replication.ports import Standby, StandbySeen
from schemaless_core.replication.record import StandbyRecord
from schemaless_core.servers.clusters import Cluster
from schemaless_core.servers.routing import Router
from schemaless_core.servers.schema import Schema
from schemaless_core.servers.topologies import Topologies
from schemaless_core.servers.topology import Topology


class DatastoreSide(NamedTuple):
    """What a datastore is made of."""

    config: DatastoreConfig
    clusters: Mapping[str, Cluster]
    control: ControlDatabase
    schema: Schema
    router: Router
    purges: Purges


class ShardLag(NamedTuple):
    """One shard, in cells."""

    shard: int
    cells: int
    #: None: the one that leads does not answer, or does not have the shard.
    behind: int | None


class ShardEnd(NamedTuple):
    """Where the log of a shard is, and ends."""

    end: ClusterEnd
    head: int
    epoch: int

    def history(self, shard: int) -> History:
        """Its epochs, and where they were opened."""
        return history_of(self.end.cluster.ask(lambda node: node.epochs(shard, Deadline(CALL_SECONDS))))


def ends_of(side: DatastoreSide) -> dict[int, ShardEnd]:
    """Of each shard the cluster where its log is, and where the log ends."""
    places = places_in(side)
    found = {name: side.clusters[name].ask(heads) for name in set(places.values())}
    return {
        shard: ShardEnd(
            ClusterEnd(side.clusters[cluster]), found[cluster][shard].head, found[cluster][shard].state.epoch
        )
        for shard, cluster in places.items()
        if shard in found[cluster]
    }


def places_in(side: DatastoreSide) -> dict[int, str]:
    """Of each shard the cluster where its log is, also where another datastore leads."""
    topology, seen = known(side)
    if topology is None or topology.is_elsewhere:
        return places_of(seen.standby.places)
    return {shard: at.cluster for shard, at in topology}


def lag_of(shard: int, own: ShardEnd | None, other: ShardEnd | None) -> ShardLag:
    """How many cells of the other's log are not among its own. None of either: there is no row of the shard."""
    head = 0 if own is None else own.head
    if other is None:
        return ShardLag(shard, head, None)
    same = head
    if own is not None and own.epoch != other.epoch and head:
        same = min(head, fork(own.history(shard), other.history(shard)))
    return ShardLag(shard, head, max(0, other.head - same))


def known(side: DatastoreSide) -> tuple[Topology | None, StandbySeen]:
    """What a datastore's control database says; a new one knows nothing."""
    try:
        return Topologies(side.control).find_newest(), StandbyRecord(side.control, side.config.shards).find()
    except SchemaMissing:
        return None, StandbySeen(Standby(), 0, 0)
