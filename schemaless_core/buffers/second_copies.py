"""Second copies: cells that wait in a buffer until each replica of their own cluster has them, whichever may lead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from schemaless_core.cell.stored import NewCell
from schemaless_core.deadline import Deadline
from schemaless_core.errors import SchemalessError
from schemaless_core.servers.guarded import GuardedNode
from schemaless_core.servers.routing import Router

Key = tuple[bytes, bytes, int]


def replicated(router: Router, wanted: Mapping[int, Sequence[NewCell]], deadline: Deadline) -> set[Key]:
    """The keys of those cells, by shard, that all replicas of their cluster have like this.

    Of a cluster without replicas all: no other server could lead it.
    """
    by_cluster: dict[str, dict[int, Sequence[NewCell]]] = {}
    for shard, cells in wanted.items():
        by_cluster.setdefault(router.cluster_of(shard, deadline), {})[shard] = cells
    there: set[Key] = set()
    for cluster, parts in by_cluster.items():
        bodies = {cell[:3]: cell.body for cells in parts.values() for cell in cells}
        for replica in router.replicas_of(cluster):
            found = _found(replica, parts, deadline)
            bodies = {key: body for key, body in bodies.items() if found.get(key) == body}
        there |= bodies.keys()
    return there


def _found(replica: GuardedNode, parts: Mapping[int, Sequence[NewCell]], deadline: Deadline) -> dict[Key, bytes]:
    """What a replica has under these keys; one that does not answer, or lacks a shard yet, nothing."""
    keys = {shard: [cell[:3] for cell in cells] for shard, cells in parts.items()}
    try:
        answers = replica.ask(lambda node: node.find_many(keys, deadline))
    except SchemalessError:
        return {}
    return {cell[1:4]: cell.body for sighting in answers.values() for cell in sighting.cells}
