"""`OtherSide`: the datastore that leads until now, as the one that takes the lead from it changes it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

from schemaless_core.cell.standing import ShardHead, ShardStatus
from schemaless_core.control.database import ControlDatabase
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import Node
from schemaless_core.errors import ControlUnavailable, NodeUnavailable, SchemaMissing, Unavailable
from schemaless_core.logcopy.ends import copies_of
from schemaless_core.promotion.ports import SILENT, Silent, Unheard
from schemaless_core.replication.ports import BringPort, LeadAnswer
from schemaless_core.replication.record import Given, StandbyRecord, Taker
from schemaless_core.servers.clusters import Cluster
from schemaless_core.servers.leaders import Leaders

T = TypeVar("T")

logger = logging.getLogger(__name__)

CALL_SECONDS = 10.0
_MOVED = ShardStatus.MOVED.value


class OtherSide:
    """An `OtherPort`."""

    def __init__(
        self,
        clusters: Mapping[str, Cluster],
        control: ControlDatabase,
        shards: int,
        configuration: str,
        bringing: BringPort,
    ) -> None:
        """`configuration`: where that of this standby is. `bringing`: what puts there what this one alone has."""
        self._clusters = clusters
        self._leaders = Leaders(control)
        self._record = StandbyRecord(control, shards)
        self._configuration = configuration
        self._bringing = bringing
        #: Why it did not do what it was asked, the last time.
        self.silence: Unavailable | None = None
        self.refusal = ""

    def leads(self, epoch: int, job: str) -> LeadAnswer | Silent:
        return self._answered(lambda: self._record.lead_for(Taker(job), epoch))

    def give(self, epoch: int, job: str) -> LeadAnswer | Silent:
        why = f"{job} leads from epoch {epoch} on"
        return self._answered(lambda: self._record.give(epoch, Taker(job, self._configuration), why))

    def _answered(self, ask: Callable[[], Given]) -> LeadAnswer | Silent:
        given = self._tried(ask)
        if isinstance(given, Unheard):
            return given
        self.refusal = given.why_not
        return given.lead

    def close(self, epoch: int) -> None | Silent:
        return self._tried(lambda: close(self._clusters, self._leaders, epoch))

    def bring(self) -> bool | Silent:
        return self._bringing.bring()

    def _tried(self, work: Callable[[], T]) -> T | Silent:
        try:
            return work()
        except (NodeUnavailable, ControlUnavailable) as error:
            self.silence = error
            extra = {"event": "replicate.silent", "reason": error.message}
            logger.warning("the datastore that leads does not do what it is asked", extra=extra)
            return SILENT


def close(clusters: Mapping[str, Cluster], leaders: Leaders, epoch: int) -> None:
    """Have each shard of an earlier epoch be a copy, on the servers that lead its clusters."""
    for name, (leader, is_leased) in leaders.find_all().items():
        if name in clusters:
            clusters[name].hear(leader, is_leased=is_leased)
    for cluster in clusters.values():
        for shard, head in cluster.ask(heads).items():
            if head.state.status != _MOVED and head.state.epoch < epoch:
                cluster.ask(partial(_close, shard, epoch - 1))


def heads(node: Node) -> Mapping[int, ShardHead]:
    """All shards that a server has, copies too."""
    try:
        return node.heads(None, Deadline(CALL_SECONDS))
    except SchemaMissing:
        return {}


def _close(shard: int, epoch: int, node: Node) -> None:
    copies_of(node).close(shard, epoch, Deadline(CALL_SECONDS))
