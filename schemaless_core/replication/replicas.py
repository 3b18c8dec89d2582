"""`OwnReplicas`: whether the replicas of a standby have what its copies have, and for how long that is waited for."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import closing

from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import Node
from schemaless_core.engine.primacy import Reached
from schemaless_core.errors import NodeUnavailable
from schemaless_core.servers.clusters import Cluster

logger = logging.getLogger(__name__)

#: While the other datastore is closed, no shard takes puts meanwhile.
WAIT_SECONDS = 60.0
CALL_SECONDS = 5.0


class LateReplicas(NodeUnavailable):
    """They were waited for, and still lack something."""

    def __init__(self, cluster: str, seconds: float) -> None:
        super().__init__(
            f"Cluster {cluster}",
            f"a replica lacks what was copied {seconds:.0f} s ago",
            hint="See why it is late (SHOW REPLICA STATUS), or take it from the configuration; then promote again.",
        )


class OwnReplicas:
    """Of one promotion."""

    def __init__(
        self,
        clusters: Mapping[str, Cluster],
        names: Collection[str],
        *,
        wait_seconds: float = WAIT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clusters = clusters
        self._names = sorted(names)
        self._wait_seconds = wait_seconds
        self._clock = clock
        self._waits_since: float | None = None
        #: By cluster: what its primary had when it was asked first. Later writes are not waited for.
        self._wanted: dict[str, Reached] = {}
        #: Is told while they are waited for.
        self.tell: Callable[[], object] = lambda: None

    def wants_anew(self) -> None:
        """More was copied."""
        self._wanted.clear()

    def have(self) -> bool:
        """Whether they have all that their primaries had when this was asked first; False: ask again.

        `LateReplicas`: they were waited for as long as they may be.
        """
        late = next((name for name in self._names if not self._has(name)), None)
        if late is None:
            self._waits_since = None
            return True
        self.waits(late)
        return False

    def waits(self, cluster: str = "of this datastore") -> None:
        """Count the time, and say it. Replicas that are far behind are waited for before more is copied, too."""
        now = self._clock()
        if self._waits_since is None:
            self._waits_since = now
            extra = {"event": "replicate.waits_for_replicas", "cluster": cluster, "seconds": self._wait_seconds}
            logger.warning("a replica of the standby is late: the promotion waits for it", extra=extra)
        self.tell()
        if now - self._waits_since > self._wait_seconds:
            self._waits_since = None  # the next try has as long again
            raise LateReplicas(cluster, self._wait_seconds)

    def _has(self, name: str) -> bool:
        replicas = self._clusters[name].replicas
        if not replicas:
            return True
        if name not in self._wanted:
            self._wanted[name] = self._clusters[name].ask(_reached)
        wanted = self._wanted[name]
        return all(_has(replica.node, wanted) for replica in replicas)


def _reached(node: Node) -> Reached:
    with closing(node.candidate()) as candidate:
        return candidate.reached(Deadline(CALL_SECONDS))


def _has(node: Node, wanted: Reached) -> bool:
    with closing(node.candidate()) as candidate:
        return candidate.has(wanted, Deadline(CALL_SECONDS))
