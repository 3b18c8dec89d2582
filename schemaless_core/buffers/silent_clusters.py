"""`SilentClusters`: those that did not answer the replayer. It waits for none of them while others are served.

A breaker opens for a server that is gone. One that answers each ping and takes no write, such as one with a full disk
or a lock, keeps its breaker closed: every round would wait for it, and the cells of all other clusters with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

#: So long it is left alone; then it is offered one cell, which has this long to be taken.
ALONE_SECONDS = 4.0
PROBE_SECONDS = 0.5


class Present(NamedTuple):
    """Shards that may be written to, by how far their clusters are trusted."""

    answering: list[int]
    #: One of each cluster that was silent, and whose turn it is.
    probes: list[int]


class SilentClusters:
    """What one replayer knows of them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._silent_since: dict[str, float] = {}

    def sort(self, shards: Iterable[tuple[int, str]]) -> Present:
        """Sort shards, each with its cluster; those of a cluster that is left alone are in neither list."""
        present, probed = Present([], []), set[str]()
        for shard, cluster in shards:
            since = self._silent_since.get(cluster)
            if since is None:
                present.answering.append(shard)
            elif cluster not in probed and self._clock() - since >= ALONE_SECONDS:
                probed.add(cluster)
                present.probes.append(shard)
        return present

    def heard(self, cluster: str, *, is_silent: bool) -> None:
        """A cluster answered, or it did not."""
        if is_silent:
            self._silent_since[cluster] = self._clock()
        else:
            self._silent_since.pop(cluster, None)
