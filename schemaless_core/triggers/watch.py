"""`HeadsWatch`: which shards got cells. One look per server; a server that is down hides its own shards only."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from schemaless_core import metrics
from schemaless_core.cell.standing import ShardHead, ShardStatus
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import Node
from schemaless_core.errors import SchemalessError
from schemaless_core.habits import ReadFrom
from schemaless_core.servers.clusters import Cluster

logger = logging.getLogger(__name__)

#: A shard's time is that of its put's start, its cell is seen at the commit: so far a quick look looks back.
MARGIN_SECONDS = 0.25
#: How often all heads are read. The quick looks between are hints only.
FULL_LOOK_SECONDS = 1.0
LOOK_SECONDS = 0.25
#: How often the times of shards are held against their server's clock, which may have jumped.
AHEAD_EVERY_SECONDS = 30.0
#: A server that did not answer is asked again after this, so that it does not hold up the looks at the others.
PAUSE_SECONDS = 1.0


class _Sight:
    """When a cluster was looked at."""

    def __init__(self) -> None:
        self.full_at = float("-inf")
        self.seen_at = float("-inf")
        self.not_before = float("-inf")
        self.ahead_at = float("-inf")


class HeadsWatch:
    """Looks at the heads of all shards. Used by one thread."""

    def __init__(
        self,
        clusters: Mapping[str, Cluster],
        read_from: ReadFrom = "primary",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clusters = clusters
        self._read_from = read_from
        self._clock = clock
        self._sights = {name: _Sight() for name in clusters}

    def look(self) -> dict[int, ShardHead]:
        """Return the heads of shards that may have moved since the last look; all of them now and then."""
        heads: dict[int, ShardHead] = {}
        for name, cluster in self._clusters.items():
            heads |= self._look_at(cluster, self._sights[name])
        return heads

    def _look_at(self, cluster: Cluster, sight: _Sight) -> dict[int, ShardHead]:
        now = self._clock()
        if now < sight.not_before:
            return {}
        is_full = now - sight.full_at >= FULL_LOOK_SECONDS
        since_seconds = now - sight.seen_at + MARGIN_SECONDS
        deadline = Deadline(LOOK_SECONDS)

        def look(node: Node) -> dict[int, ShardHead]:
            return node.heads(None, deadline) if is_full else node.heads_since(since_seconds, deadline)

        try:
            # A replica that stopped following would have nothing to say for ever: now and then the primary is asked.
            read_from = "primary" if is_full else self._read_from
            found = cluster.read(look, read_from, deadline, is_fenced=False)
        except SchemalessError as error:
            if sight.not_before == float("-inf"):
                extra = {"event": "triggers.server_silent", "cluster": cluster.name, "reason": error.message}
                logger.warning("the log cannot be tailed", extra=extra)
            sight.not_before = self._clock() + PAUSE_SECONDS
            return {}
        sight.not_before = float("-inf")
        sight.seen_at = now
        if is_full:
            sight.full_at = now
            self._measure_ahead(cluster, sight, now)
        return {shard: head for shard, head in found.items() if head.state.status != ShardStatus.MOVED.value}

    def _measure_ahead(self, cluster: Cluster, sight: _Sight, now: float) -> None:
        if now - sight.ahead_at < AHEAD_EVERY_SECONDS:
            return
        sight.ahead_at = now
        deadline = Deadline(LOOK_SECONDS)
        # What a silent server does not say keeps its last number, and the looks at its heads warn of it.
        with suppress(SchemalessError):
            seconds = cluster.read(lambda node: node.ahead_seconds(deadline), "primary", deadline, is_fenced=False)
            metrics.created_ahead(cluster.name, seconds)
