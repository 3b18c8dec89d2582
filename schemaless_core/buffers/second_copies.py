"""Second copies: cells that wait in a buffer until each replica of their own cluster has them, whichever may lead."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

from schemaless_core.buffers.ports import Waiting
from schemaless_core.cell.stored import NewCell
from schemaless_core.deadline import Deadline
from schemaless_core.engine.primacy import Lead
from schemaless_core.errors import SchemalessError
from schemaless_core.servers.guarded import GuardedNode
from schemaless_core.servers.routing import Router

Key = tuple[bytes, bytes, int]

#: How long the cells of a shard are left alone of which all lack a replica; it doubles up to the longest.
REST_SECONDS, REST_SECONDS_MAX = 0.5, 10.0


def leaders_of(router: Router, shards: Collection[int], deadline: Deadline) -> dict[str, Lead]:
    """Who leads the clusters of these shards, as this process knows now."""
    return {name: router.leader_of(name) for name in {router.cluster_of(shard, deadline) for shard in shards}}


def replicated(
    router: Router, wanted: Mapping[int, Sequence[NewCell]], led: Mapping[str, Lead], deadline: Deadline
) -> set[Key]:
    """The keys of those cells, by shard, that all replicas of their cluster have like this.

    `led`: who led when the cells were found at the primary. If another server leads by now, it was a replica then, and
    nothing is said of its cells. Of a cluster without replicas all: no other server could lead it.
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
        if router.leader_of(cluster) == led.get(cluster):
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


class Lacking:
    """Second copies of one buffer that a replica lacks, by shard: what waits behind them is not kept waiting."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        #: Up to this number all cells of the shard are such copies.
        self.passed: dict[int, int] = {}
        self._rests: dict[int, tuple[float, float]] = {}
        self._taken: Counter[int] = Counter()
        self._ends: frozenset[int] = frozenset()
        self._kept_out: dict[int, int] = {}

    def awake(self, shards: Collection[int]) -> list[int]:
        """Those that are not left alone for now."""
        now = self._clock()
        return [shard for shard in shards if self._rests.get(shard, (0.0, 0.0))[0] <= now]

    def read(self, shards: Collection[int], taken: Sequence[int], each: int, *, is_cut: bool) -> None:
        """A portion was read, of these shards, at most so many of each. What was read to its end is read from the first
        cell next time: replicas may have it by then."""
        self._taken, self._kept_out = Counter(taken), {}
        self._ends = frozenset(shard for shard in shards if self._taken[shard] < each and not is_cut)
        for shard in self._ends:
            self.passed.pop(shard, None)

    def keep_out(self, shard: int, number: int) -> None:
        """The shard did not take this one yet: nothing behind it is passed."""
        self._kept_out[shard] = min(self._kept_out.get(shard, number), number)

    def note(self, cells: Mapping[int, Sequence[Waiting]], there: Collection[Key]) -> None:
        """What replicas said of the second copies of a portion, by shard."""
        for shard, some in cells.items():
            lacking = [each.number for each in some if each.cell[:3] not in there]
            if shard in self._ends:
                self._rest(shard, is_all=len(lacking) == self._taken[shard])
                continue
            first = self._kept_out.get(shard)
            passed = [number for number in lacking if first is None or number < first]
            if passed:
                self.passed[shard] = max(self.passed.get(shard, 0), *passed)

    def _rest(self, shard: int, *, is_all: bool) -> None:
        if not is_all:
            self._rests.pop(shard, None)
            return
        seconds = min(2 * self._rests.get(shard, (0.0, REST_SECONDS / 2))[1], REST_SECONDS_MAX)
        self._rests[shard] = (self._clock() + seconds, seconds)
