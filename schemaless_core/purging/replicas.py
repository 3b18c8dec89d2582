"""`PurgeReplicas`: whether each server that may lead next has what a purge did.

A replica is told of a purge as of any other change: a while later. If it leads before that, the rows are back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from schemaless_core.control.database import ControlDatabase
from schemaless_core.deadline import Deadline
from schemaless_core.engine.primacy import Reached
from schemaless_core.errors import InvalidServer, SchemalessError
from schemaless_core.servers.clusters import Cluster
from schemaless_core.servers.guarded import GuardedNode
from schemaless_core.servers.leaders import Leaders

CALL_SECONDS = 5.0
PAUSE_SECONDS = 0.2


class LackingReplica(NamedTuple):
    """A server that has not all of it, or does not say."""

    server: str
    reason: str


class PurgeReplicas:
    """Of all clusters: entries of indexes, and what waits in buffers, are elsewhere than the row."""

    def __init__(
        self, clusters: Mapping[str, Cluster], control: ControlDatabase, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clusters = clusters
        self._leaders = Leaders(control)
        self._clock = clock

    def promotions(self) -> int:
        """A number that grows with each promotion. It is decided before any server hears of it."""
        return sum(lead.number for lead, _is_leased in self._leaders.find_all().values())

    def lacking(
        self, seconds: float, rest: Callable[[float], bool], unhoped: Collection[str] = ()
    ) -> list[LackingReplica] | None:
        """Wait until each replica has what its primary has now; which of them have not after so long.

        None: `rest` said that it is to end. `unhoped`: servers that are asked once, and not waited for.
        """
        missing = {node: reached for cluster in self._clusters.values() for node, reached in _wanted(cluster).items()}
        begun_at = self._clock()
        while True:
            found = {node: each for node, reached in missing.items() if (each := _look(node, reached)) is not None}
            missing = {node: missing[node] for node in found}
            if self._clock() - begun_at >= seconds or all(each.server in unhoped for each in found.values()):
                return list(found.values())
            if rest(PAUSE_SECONDS):
                return None


def _wanted(cluster: Cluster) -> dict[GuardedNode, Reached | str]:
    """What each replica is to have; or why its primary does not say it: then no server can be promoted, either."""
    if not cluster.replicas:
        return {}
    candidate = cluster.primary.node.candidate()
    try:
        reached: Reached | str = candidate.reached(Deadline(CALL_SECONDS))
    except InvalidServer as error:
        reached = error.message
    finally:
        candidate.close()
    return dict.fromkeys(cluster.replicas, reached)


def _look(replica: GuardedNode, reached: Reached | str) -> LackingReplica | None:
    name = replica.node.name
    if isinstance(reached, str):
        return LackingReplica(name, reached)
    try:
        candidate = replica.node.candidate()
        try:
            has = candidate.has(reached, Deadline(CALL_SECONDS))
        finally:
            candidate.close()
    except SchemalessError as error:
        return LackingReplica(name, error.message)
    return None if has else LackingReplica(name, "it has not all changes of its primary")
