"""`ClusterShards`: a shard's rows on the primaries of its two clusters, as a move changes them."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping
from typing import TypeVar

from schemaless_core.cell.standing import ShardStatus
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import Node
from schemaless_core.engine.copies import CopySeen
from schemaless_core.engine.primacy import Opening
from schemaless_core.errors import NodeUnavailable, missing_shard
from schemaless_core.logcopy.ends import copies_of
from schemaless_core.moves.closed_time import ClosedTime
from schemaless_core.moves.ports import Arrival, ShardSeen
from schemaless_core.promotion.ports import SILENT, Silent
from schemaless_core.servers.clusters import Cluster

T = TypeVar("T")

logger = logging.getLogger(__name__)

#: One row is changed. A stopped writer keeps it for up to two seconds.
CALL_SECONDS = 5.0
DDL_SECONDS = 60.0


class ClusterShards:
    """A `MoveShardsPort` of one shard."""

    def __init__(self, clusters: Mapping[str, Cluster], shard: int, shards: int, patience: ClosedTime) -> None:
        self._clusters = clusters
        self._shard = shard
        self._shards = shards
        self._patience = patience
        #: The cluster whose shard this process has closed.
        self._left: str | None = None
        #: By which this process writes to copies.
        self.claim = secrets.randbits(62)
        #: Why a cluster did not answer, the last time that it did not.
        self.silences: dict[str, NodeUnavailable] = {}

    def look(self, cluster: str) -> ShardSeen | Silent:
        # A look at the shard that is closed leads to its opening: that is no wait.
        is_of_copy = self._left not in (None, cluster)
        deadline = self._patience.deadline(CALL_SECONDS) if is_of_copy else Deadline(CALL_SECONDS)
        return self._heard(self._seen(cluster, lambda node, end: copies_of(node).look(self._shard, end), deadline))

    def claims(self, cluster: str) -> bool | Silent:
        return self.asked(cluster, lambda node, deadline: copies_of(node).claims(self._shard, self.claim, deadline))

    def prepare(self, cluster: str, epoch: int) -> ShardSeen | Silent:
        def prepare(node: Node, deadline: Deadline) -> CopySeen | None:
            node.record_shard_count(self._shards)
            copies_of(node).prepare(self._shard, self.claim, epoch, deadline)
            return copies_of(node).look(self._shard, deadline)

        return self._seen(cluster, prepare, Deadline(DDL_SECONDS))

    def leave(self, cluster: str, epoch: int) -> ShardSeen | Silent:
        self._patience.close()
        self._left = cluster
        seen = self._seen(cluster, lambda node, deadline: copies_of(node).leave(self._shard, epoch, deadline))
        if isinstance(seen, ShardSeen) and seen.state == ShardStatus.MOVED.value:
            self._patience.open()  # it has gone, and what was closed was another process's
        return self._heard(seen)

    def replicated(self, cluster: str) -> bool | Silent:
        def look(node: Node, deadline: Deadline) -> bool:
            replicas = self._clusters[cluster].replicas
            if not replicas:
                return True
            candidate = node.candidate()
            try:
                reached = candidate.reached(deadline)
            finally:
                candidate.close()
            for replica in replicas:
                candidate = replica.node.candidate()
                try:
                    if not candidate.has(reached, deadline):
                        return False
                finally:
                    candidate.close()
            return True

        return self.asked(cluster, look, self._patience.deadline(CALL_SECONDS))

    def arrive(self, cluster: str, arrival: Arrival) -> ShardSeen | Silent:
        self._patience.close()  # another process may have closed it, and died
        self._patience.is_decided = True
        return self._heard(
            self._seen(cluster, lambda node, deadline: copies_of(node).arrive(self._shard, *arrival, deadline))
        )

    def close(self, cluster: str, epoch: int) -> None | Silent:
        return self.asked(cluster, lambda node, deadline: copies_of(node).close(self._shard, epoch, deadline))

    def open(self, cluster: str, epoch: int, opening: Opening | None) -> ShardSeen | Silent:
        def change(node: Node, deadline: Deadline) -> CopySeen | None:
            return copies_of(node).open(self._shard, epoch, opening, f"moved to {cluster}", deadline)

        return self._heard(self._seen(cluster, change))

    def _heard(self, seen: ShardSeen | Silent) -> ShardSeen | Silent:
        if isinstance(seen, ShardSeen):
            self._patience.saw(seen.state)
        return seen

    def _seen(
        self, cluster: str, verb: Callable[[Node, Deadline], CopySeen | None], deadline: Deadline | None = None
    ) -> ShardSeen | Silent:
        found = self.asked(cluster, verb, deadline)
        if found is None:
            raise missing_shard(self._shard)
        return found if found is SILENT else ShardSeen(*found)

    def asked(self, cluster: str, verb: Callable[[Node, Deadline], T], deadline: Deadline | None = None) -> T | Silent:
        end = deadline or Deadline(CALL_SECONDS)
        return self.tried(cluster, lambda: self._clusters[cluster].ask(lambda node: verb(node, end)))

    def tried(self, cluster: str, work: Callable[[], T]) -> T | Silent:
        """Do what asks servers; `cluster`: the one that is told to be silent, if one of them is."""
        try:
            return work()
        except NodeUnavailable as error:
            self.silences[cluster] = error
            extra = {"event": "move.silent", "shard": self._shard, "cluster": cluster, "reason": error.message}
            logger.warning("a cluster does not do what a move asks", extra=extra)
            return SILENT
