"""`ShardPrimaries`: calls to the primary of a shard in the role that the shard itself calls for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from schemaless_core.cell.standing import Gate, Kind, ShardStatus, Standing
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import Node
from schemaless_core.servers.routing import Router

T = TypeVar("T")


class ShardPrimaries:
    """For those that change what stands in shards, whichever backend is the authority."""

    def __init__(self, router: Router, call_seconds: float) -> None:
        self._router = router
        self._call_seconds = call_seconds

    def ask(self, shard: int, verb: Callable[[Node, Deadline], T]) -> T:
        """Ask, whatever state the shard is in."""
        deadline = Deadline(self._call_seconds)
        cluster = self._router.cluster_of(shard, deadline)
        return self._router.ask_cluster(cluster, lambda node: verb(node, deadline))

    def standing(self, shard: int) -> Standing:
        """An owner where the shard is open to owners, a copier where it is a mirror; at its own authority epoch."""
        state = self.ask(shard, lambda node, end: node.heads([shard], end)[shard].state)
        kind = Kind.COPIER if state.status == ShardStatus.COPY.value else Kind.OWNER
        return Standing(kind, state.authority_epoch)

    def write(self, shard: int, verb: Callable[[Node, Gate, Deadline], T]) -> T:
        """Write by that standing."""
        deadline, standing = Deadline(self._call_seconds), self.standing(shard)
        answer, _epoch = self._router.write(shard, lambda node, gate: verb(node, gate, deadline), standing, deadline)
        return answer
