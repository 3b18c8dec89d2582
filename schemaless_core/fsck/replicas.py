"""`ReplicaWalk`: the logs of a replica, held byte by byte against those of its primary.

The replica is asked first: what it has, its primary has. A cell that repair has just changed may differ for as long as
the replica is behind, so what differs is looked at again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from itertools import zip_longest
from typing import NamedTuple

from schemaless_core.cell.canonical import Json
from schemaless_core.cell.stored import StoredCell
from schemaless_core.control.jobs.records import Finding
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import LogSlice
from schemaless_core.errors import NodeUnavailable, SchemalessError
from schemaless_core.fsck.faults import Fault, found_at, not_compared
from schemaless_core.fsck.walk import PAGE_SECONDS, WalkStep
from schemaless_core.servers.clusters import Cluster
from schemaless_core.servers.guarded import GuardedNode

CELLS_PER_PAGE = 1_000
#: Times that a page is read which differs, and the pause before each but the first.
LOOKS = 6
PAUSE_SECONDS = 0.5


class _Part(NamedTuple):
    """Shards of a cluster on one of its replicas."""

    cluster: str
    server: str
    shards: list[int]


class _Pages(NamedTuple):
    """The same stretch of a log on both servers."""

    of_replica: list[StoredCell]
    of_primary: list[StoredCell]


class ReplicaWalk:
    """Bounds of a part: cluster, replica, and shards of the cluster."""

    def __init__(self, clusters: Mapping[str, Cluster], sleep: Callable[[float], object] = time.sleep) -> None:
        self._clusters = clusters
        self._sleep = sleep

    def step(self, bounds: Json, at: Json) -> WalkStep:
        part, (number, after) = _part(bounds), _place(at)
        shard = part.shards[number]
        pages = self._read(part, shard, after)
        for _again in range(1, LOOKS):
            if pages.of_replica == pages.of_primary:
                break
            self._sleep(PAUSE_SECONDS)
            pages = self._read(part, shard, after)
        findings = [] if pages.of_replica == pages.of_primary else [self._judged(part, shard, pages)]
        if not pages.of_replica:
            return _next_shard(part, number, findings)
        return WalkStep(findings, len(pages.of_replica), [number, pages.of_replica[-1].added_id], False)

    def skip(self, bounds: Json, at: Json, error: SchemalessError) -> WalkStep:
        part, (number, after) = _part(bounds), _place(at)
        shard = part.shards[number]
        reason = f"Shard {shard} behind {after} on replica {part.server}: {error.message}"
        return _next_shard(part, number, [not_compared(reason, shard=shard, server=part.server)])

    def _read(self, part: _Part, shard: int, after: int) -> _Pages:
        cluster, deadline = self._cluster(part), Deadline(PAGE_SECONDS)
        replica = _named(cluster, part.server)

        def page(server: GuardedNode) -> LogSlice:
            return server.ask(lambda node: node.log({shard: after}, CELLS_PER_PAGE, deadline)[shard])

        theirs = page(replica).cells
        end = theirs[-1].added_id if theirs else replica.ask(lambda node: node.heads([shard], deadline)[shard].head)
        if end <= after:
            return _Pages([], [])
        ours = page(cluster.primary).cells
        if ours and ours[-1].added_id < end and len(theirs) > len(ours):  # its page is cut where bodies are large
            end = ours[-1].added_id
        return _Pages(*([cell for cell in cells if cell.added_id <= end] for cells in (theirs, ours)))

    def _judged(self, part: _Part, shard: int, pages: _Pages) -> Finding:
        pairs = zip_longest(pages.of_replica, pages.of_primary)
        theirs, ours = next((theirs, ours) for theirs, ours in pairs if theirs != ours)
        cell = min((each for each in (theirs, ours) if each is not None), key=lambda each: each.added_id)
        if self._is_behind(part, shard, cell.row_key):
            reason = f"Shard {shard} at {cell.added_id} on replica {part.server}: a repair has not come there yet"
            return not_compared(reason, shard=shard, server=part.server)
        count = len(set(pages.of_replica) ^ set(pages.of_primary))
        reason = (
            f"replica {part.server} and its primary differ from here on: {count:,} cells of {len(pages.of_primary):,}"
        )
        return found_at(Fault.REPLICA, shard, cell, reason, server=part.server, cluster=part.cluster)

    def _cluster(self, part: _Part) -> Cluster:
        if part.cluster not in self._clusters:
            raise NodeUnavailable(part.server, "its cluster is not in the configuration any more", hint="Look again.")
        return self._clusters[part.cluster]

    def _is_behind(self, part: _Part, shard: int, row_key: bytes) -> bool:
        """Whether the replica lacks what repair did to a row."""
        cluster, deadline = self._cluster(part), Deadline(PAGE_SECONDS)
        replica, primary = (
            server.ask(lambda node: len(node.mending.of_row(shard, row_key, deadline)))
            for server in (_named(cluster, part.server), cluster.primary)
        )
        return replica < primary


def _named(cluster: Cluster, server: str) -> GuardedNode:
    for each in cluster.replicas:
        if each.node.name == server:
            return each
    raise NodeUnavailable(server, "it is no replica of its cluster any more", hint="Run `tripstore shards status`.")


def _next_shard(part: _Part, number: int, findings: list[Finding]) -> WalkStep:
    is_end = number + 1 == len(part.shards)
    return WalkStep(findings, 0, None if is_end else [number + 1, 0], is_end)


def _part(bounds: Json) -> _Part:
    match bounds:
        case [str(cluster), str(server), [*shards]]:
            return _Part(cluster, server, [int(str(shard)) for shard in shards])
    raise AssertionError("a part of a replica names its cluster, itself and shards")


def _place(at: Json) -> tuple[int, int]:
    match at:
        case [int(number), int(after)]:
            return number, after
    return 0, 0
