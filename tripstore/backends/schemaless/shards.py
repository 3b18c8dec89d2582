"""The shards of a cluster as the hand-over sees them: opened, closed, and what the reverse mirror has yet to do."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TypeVar

from schemaless_core import Datastore, SchemalessError
from schemaless_core.cell.standing import ShardStatus
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import Node
from schemaless_core.engine.groups import Offset, OffsetSeen
from schemaless_core.errors import SchemaMissing

T = TypeVar("T")

logger = logging.getLogger(__name__)

#: The built-in group that writes cells into the legacy tables.
REVERSE_GROUP = "mirror:reverse"

COUNT_SECONDS = 2.0

#: Up to which (epoch, added id) of each shard's log Postgres says that it has every cell, parked ones aside.
Applied = Callable[[], Mapping[int, tuple[int, int]]]


class Shards:
    """The shards of a datastore, cluster by cluster.

    `applied`: None of a process that knows no Postgres. It goes by the offsets alone.
    """

    def __init__(self, datastore: Datastore, applied: Applied | None = None) -> None:
        self._datastore = datastore
        self._applied = applied

    def open(self, cluster: str, epoch: int, said: bytes | None = None) -> bool:
        """Open them to owners of this authority epoch; False: the server did not answer, or cannot do it.

        `said`: what the server is to tell a process that finds it open at this epoch and can reach no other source.
        """
        try:
            self._datastore.authority.open(cluster, epoch, said)
        except SchemalessError as error:
            _log_unsettled("shards.not_opened", cluster, error)
            return False
        return True

    def close(self, cluster: str, epoch: int) -> bool:
        """Close them to owners; whether the server said that all of them are closed at exactly this epoch."""
        try:
            return self._datastore.authority.close(cluster, epoch)
        except SchemalessError as error:
            _log_unsettled("shards.not_closed", cluster, error)
            return False

    def opened(self, cluster: str) -> int:
        """The highest authority epoch at which a shard of a cluster was ever open to owners; 0: at none."""
        return self._ask(cluster, lambda node, deadline: node.opened_at(deadline))

    def reached(self, cluster: str) -> int:
        """The highest authority epoch at which a shard of a cluster is, open or closed; 0: it holds none."""
        return self._ask(cluster, _reached)

    def open_now(self) -> int:
        """The highest at which one is open now; asked often, and of the servers that answer."""
        found = [0]
        for cluster in self._datastore.clusters:
            with suppress(SchemalessError):
                found.append(self._ask(cluster, lambda node, deadline: node.opened_at(deadline, ever=False)))
        return max(found)

    def unmirrored(self, cluster: str) -> int:
        """Count the cells of a cluster's shards that the reverse mirror has not passed, or has set aside.

        A shard without an offset counts as a whole. A server that does not answer raises: the count is unknown then.
        """
        return self.behind(cluster) + self._ask(
            cluster, lambda node, deadline: node.groups.count_parked(REVERSE_GROUP, deadline)
        )

    def buffered(self, cluster: str) -> int:
        """Count the cells that wait in its buffer. A server that does not answer raises: the count is unknown then."""
        try:
            size = self._ask_primary(cluster, lambda node, deadline: node.buffers.size(deadline))
        except SchemaMissing:
            return 0  # made before there were buffers: no process could have a cell kept there
        return size.cells

    def behind(self, cluster: str) -> int:
        """Count those that it has not passed. Postgres is asked when the offsets say that there are none."""
        by_offsets = self._ask(cluster, lambda node, deadline: _count(node, None, deadline))
        if by_offsets or self._applied is None:
            return by_offsets
        applied = self._applied()
        return self._ask(cluster, lambda node, deadline: _count(node, applied, deadline))

    def _ask_primary(self, cluster: str, verb: Callable[[Node, Deadline], T]) -> T:
        deadline = Deadline(COUNT_SECONDS)
        return self._datastore.clusters[cluster].ask(lambda node: verb(node, deadline))

    def _ask(self, cluster: str, count: Callable[[Node, Deadline], int]) -> int:
        try:
            return self._ask_primary(cluster, count)
        except SchemaMissing:
            if self._datastore.authority.holds_shards(cluster):
                raise
            return 0


def _reached(node: Node, deadline: Deadline) -> int:
    return max((head.state.authority_epoch for head in node.heads(None, deadline).values()), default=0)


def _count(node: Node, applied: Mapping[int, tuple[int, int]] | None, deadline: Deadline) -> int:
    """The cells after the offsets; after what Postgres says, where that is known and less."""
    heads = node.heads(None, deadline)
    shards = [shard for shard, head in heads.items() if head.state.status != ShardStatus.MOVED.value]
    seen: Mapping[int, OffsetSeen] = node.groups.find(REVERSE_GROUP, shards, deadline)
    if applied is not None:
        parked = {key.shard for key in node.groups.parked_keys(REVERSE_GROUP, shards, deadline)} if shards else set()
        seen = {shard: each if shard in parked else _said(each, applied.get(shard)) for shard, each in seen.items()}
    return sum(_behind(node, shard, each, deadline) for shard, each in seen.items())


def _said(seen: OffsetSeen, place: tuple[int, int] | None) -> OffsetSeen:
    """An offset, but no further than Postgres says."""
    if place is None or seen.offset is None:
        return seen._replace(offset=None)
    return seen._replace(offset=min(seen.offset, Offset(*place, seen.offset.fence)))


def _behind(node: Node, shard: int, seen: OffsetSeen, deadline: Deadline) -> int:
    """The cells after an offset; one from before a promotion says nothing of what lies above its fork."""
    if seen.offset is None:
        return seen.head
    added_id = seen.offset.added_id
    if seen.offset.epoch != seen.state.epoch:
        for opening in node.epochs(shard, deadline):
            if seen.offset.epoch < opening.epoch <= seen.state.epoch:
                added_id = min(added_id, opening.first_added_id - 1)
    return max(0, seen.head - added_id)


def _log_unsettled(event: str, cluster: str, error: SchemalessError) -> None:
    logger.warning(
        "the shards of a cluster stay as they are",
        extra={"event": event, "cluster": cluster, "reason": error.message},
    )
