"""Which shards to move, so that clusters have about as much to do: from the sizes and the rates of their logs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

#: Shards by cluster, and the last added id of each.
Owned = Mapping[str, Mapping[int, int]]


class ShardLoad(NamedTuple):
    """What a shard has, and how fast it grows."""

    shard: int
    cluster: str
    cells: int
    cells_per_second: float


class ProposedMove(NamedTuple):
    """A shard that had better be elsewhere."""

    load: ShardLoad
    to: str


class ClusterLoad(NamedTuple):
    """What a cluster has. `share`: of the work of all clusters, 0 to 1."""

    name: str
    shards: int
    cells: int
    cells_per_second: float
    share: float


class BalancePlan(NamedTuple):
    """What is proposed, and what clusters have before and after it."""

    proposals: tuple[ProposedMove, ...]
    before: tuple[ClusterLoad, ...]
    after: tuple[ClusterLoad, ...]


class BalanceLook(NamedTuple):
    """All clusters that are configured, and all shards."""

    clusters: tuple[str, ...]
    loads: tuple[ShardLoad, ...]

    def plan(self, tolerance: float, moves_max: int) -> BalancePlan:
        """Move from the cluster that has most to the one that has least, until they differ by no more than this.

        `tolerance`: as a part of what a cluster would have if all had the same. Each shard goes once at most.
        """
        weights, at = self._weights(), {load.shard: load.cluster for load in self.loads}
        left, fair = {load.shard: load for load in self.loads}, 1 / max(1, len(self.clusters))
        proposals: list[ProposedMove] = []
        while len(proposals) < moves_max:
            shares = self._shares(at, weights)
            most, least = max(self.clusters, key=shares.__getitem__), min(self.clusters, key=shares.__getitem__)
            gap = shares[most] - shares[least]
            candidates = [shard for shard in left if at[shard] == most and 0 < weights[shard] < gap]
            if gap <= tolerance * fair or not candidates:
                break
            shard = min(candidates, key=lambda each: (abs(weights[each] - gap / 2), each))
            proposals.append(ProposedMove(left.pop(shard), least))
            at[shard] = least
        before = {load.shard: load.cluster for load in self.loads}
        return BalancePlan(tuple(proposals), self._clusters(before, weights), self._clusters(at, weights))

    def _weights(self) -> dict[int, float]:
        """Of each shard: the mean of its shares of all cells and of all rates; one of both where the other is 0."""
        parts = [{load.shard: float(load.cells) for load in self.loads}]
        parts += [{load.shard: load.cells_per_second for load in self.loads}]
        wholes = [(part, whole) for part in parts if (whole := sum(part.values()))]
        return {
            load.shard: sum(part[load.shard] / whole for part, whole in wholes) / max(1, len(wholes))
            for load in self.loads
        }

    def _shares(self, at: Mapping[int, str], weights: Mapping[int, float]) -> dict[str, float]:
        return {name: sum(weights[shard] for shard, where in at.items() if where == name) for name in self.clusters}

    def _clusters(self, at: Mapping[int, str], weights: Mapping[int, float]) -> tuple[ClusterLoad, ...]:
        shares = self._shares(at, weights)
        return tuple(
            self._cluster(name, [load for load in self.loads if at[load.shard] == name], shares[name])
            for name in self.clusters
        )

    def _cluster(self, name: str, loads: Sequence[ShardLoad], share: float) -> ClusterLoad:
        cells, rate = sum(load.cells for load in loads), sum(load.cells_per_second for load in loads)
        return ClusterLoad(name, len(loads), cells, rate, share)


def measure(look: Callable[[], Owned], seconds: float, sleep: Callable[[float], object] = time.sleep) -> BalanceLook:
    """Look twice: how far logs have come meanwhile is their rate. A shard that was moved between has none.

    Without any time between there are no rates.
    """
    first, begun = look(), time.monotonic()
    sleep(seconds)
    second, passed = (look(), time.monotonic() - begun) if seconds else (first, 1.0)
    loads = [
        ShardLoad(shard, name, cells, max(0, cells - first.get(name, {}).get(shard, cells)) / passed)
        for name, shards in second.items()
        for shard, cells in shards.items()
    ]
    return BalanceLook(tuple(second), tuple(sorted(loads)))
