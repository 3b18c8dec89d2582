"""`BesideLook`: what stands beside the cells. Offsets, what waits in buffers, ledgers, and replicas' counters."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial

from schemaless_core.buffers.facts import OLD_SECONDS
from schemaless_core.cell.canonical import Json
from schemaless_core.cell.standing import ShardHead
from schemaless_core.control.jobs.records import Finding
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import Node
from schemaless_core.engine.buffers import BufferSize
from schemaless_core.engine.groups import Beyond
from schemaless_core.errors import SchemalessError, SchemaMissing
from schemaless_core.fsck.faults import NOT_COMPARED, Fault, found, not_compared
from schemaless_core.fsck.walk import PAGE_SECONDS
from schemaless_core.servers.clusters import Cluster
from schemaless_core.servers.routing import Router
from schemaless_core.triggers.triggers import GroupStatus

#: Looks for what did not answer; between two, and between two at an offset that is above a head.
LOOKS = 4
PAUSE_SECONDS = 0.5
#: How long the servers of a cluster have to say which one leads: a process may have heard of no promotion.
FIND_SECONDS = 1.0


class BesideLook:
    """All of it, in one step: nothing of it is large."""

    def __init__(
        self,
        router: Router,
        clusters: Mapping[str, Cluster],
        groups: Callable[[], list[GroupStatus]],
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._router = router
        self._clusters = clusters
        self._groups = groups
        self._sleep = sleep

    def __call__(self, bounds: Json) -> list[Finding]:
        """What is wrong; what could not be looked at is asked for several times."""
        findings = self._look()
        for _again in range(1, LOOKS):
            if not any(each.kind == NOT_COMPARED for each in findings):
                break
            self._sleep(PAUSE_SECONDS)
            findings = self._look()
        return findings

    def _look(self) -> list[Finding]:
        findings = [*self._offsets(), *self._buffers(), *_parked(self._groups())]
        for cluster in self._clusters.values():
            cluster.find_primary(FIND_SECONDS)
            for replica in cluster.replicas:
                findings += _ahead(cluster, replica.node)
        return findings

    def _offsets(self) -> Iterator[Finding]:
        first, silent = self._beyond()
        if first:
            self._sleep(PAUSE_SECONDS)
        now, silent_now = self._beyond()
        silent |= silent_now
        for cluster, reason in silent.items():
            yield not_compared(f"The offsets on cluster {cluster}: {reason}", cluster=cluster)
        for place in now:
            if (place.group, place.shard) in {(each.group, each.shard) for each in first}:
                reason = (
                    f"group {place.group} stands at {place.added_id} in shard {place.shard}, whose head is {place.head}"
                )
                yield found(Fault.OFFSET, reason, group=place.group, shard=place.shard, added_id=place.added_id)

    def _beyond(self) -> tuple[list[Beyond], dict[str, str]]:
        answers = self._router.ask_all(partial(_find_beyond, Deadline(PAGE_SECONDS)))
        silent = {name: each.message for name, each in answers.items() if isinstance(each, SchemalessError)}
        return [each for part in answers.values() if not isinstance(part, SchemalessError) for each in part], silent

    def _buffers(self) -> Iterator[Finding]:
        answers = self._router.ask_all(partial(_size, Deadline(PAGE_SECONDS)))
        for cluster, size in answers.items():
            if isinstance(size, SchemaMissing):
                continue  # of an earlier version: nothing was ever kept there
            if isinstance(size, SchemalessError):
                yield not_compared(f"The buffer of cluster {cluster}: {size.message}", cluster=cluster)
                continue
            age = 0.0 if size.oldest_at is None else (datetime.now(UTC) - size.oldest_at).total_seconds()
            if age > OLD_SECONDS:
                reason = f"{size.cells:,} cells wait in the buffer of cluster {cluster}, the oldest for {age:,.0f} s"
                yield found(Fault.WAITING, reason, cluster=cluster, cells=size.cells)
            if size.conflicts:
                reason = f"{size.conflicts:,} cells that waited on cluster {cluster} conflict with what is stored"
                yield found(Fault.CONFLICT, reason, cluster=cluster, cells=size.conflicts)


def _parked(groups: list[GroupStatus]) -> Iterator[Finding]:
    for group in groups:
        name = group.record.name
        if group.parked:
            reason = f"{group.parked:,} cells of group {name} could not be delivered"
            yield found(Fault.PARKED, reason, group=name, cells=group.parked)
        if group.unknown:
            reason = f"{group.unknown:,} shards of group {name}: their servers do not answer"
            yield not_compared(reason, group=name)


def _ahead(cluster: Cluster, replica: Node) -> list[Finding]:
    """A replica that is asked first has no cell that its primary lacks."""
    try:
        has = replica.heads(None, Deadline(PAGE_SECONDS))
        heads: dict[int, ShardHead] = cluster.primary.ask(lambda node: node.heads(None, Deadline(PAGE_SECONDS)))
    except SchemalessError as error:
        return [not_compared(f"Replica {replica.name}: {error.message}", cluster=cluster.name)]
    ahead = [
        shard
        for shard, head in has.items()
        if (shard not in heads) or (head.state.epoch, head.head) > (heads[shard].state.epoch, heads[shard].head)
    ]
    if not ahead:
        return []
    reason = f"replica {replica.name} is ahead of its primary in {len(ahead):,} shards, shard {ahead[0]} the first"
    return [found(Fault.REPLICA, reason, cluster=cluster.name, server=replica.name, shard=ahead[0])]


def _find_beyond(deadline: Deadline, node: Node) -> list[Beyond]:
    return node.groups.find_beyond(deadline)


def _size(deadline: Deadline, node: Node) -> BufferSize:
    return node.buffers.size(deadline)
