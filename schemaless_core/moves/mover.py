"""`Mover`: moves one shard of a datastore, by the steps and on the servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from schemaless_core.control.database import ControlDatabase
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import IndexTable
from schemaless_core.errors import SchemalessError
from schemaless_core.logcopy.throttle import CopyThrottle
from schemaless_core.moves import steps
from schemaless_core.moves.closed_time import ClosedTime
from schemaless_core.moves.copies import ShardCopies
from schemaless_core.moves.ports import MovePorts, MoveState
from schemaless_core.moves.record import ControlMoveRecord
from schemaless_core.moves.runner import ShardOrder
from schemaless_core.moves.shards import ClusterShards
from schemaless_core.moves.steps import Moved, MoveStopped
from schemaless_core.promotion.ports import AuthorityPort
from schemaless_core.servers.clusters import Cluster
from schemaless_core.steps import Step, run

LAG_LOOK_SECONDS = 2.0


class Mover:
    """A `MoveRun`."""

    def __init__(
        self,
        control: ControlDatabase,
        clusters: Mapping[str, Cluster],
        shards: int,
        order: ShardOrder,
        authority: AuthorityPort,
        tables: Callable[[], Sequence[IndexTable]],
        hold_seconds: float,
        cells_per_second: float | None,
    ) -> None:
        self._order = order
        self._patience = ClosedTime(hold_seconds)
        self._record = ControlMoveRecord(control, clusters, order.shard)
        rows = self._rows = ClusterShards(clusters, order.shard, shards, self._patience)
        throttle = partial(CopyThrottle, partial(lag_seconds, clusters[order.to]), cells_per_second)
        self._copies = ShardCopies(clusters, order.shard, rows, tables, self._patience, throttle)
        self._ports = MovePorts(self._record, rows, self._copies, self._patience, authority)

    @property
    def cells(self) -> int:
        return self._copies.cells

    @property
    def is_closed(self) -> bool:
        return self._patience.is_closed

    @property
    def seconds_closed(self) -> float:
        return self._patience.seconds_closed

    def run(self, hear: Callable[[Step], None]) -> Moved | MoveStopped:
        def heard(step: Step) -> None:
            if step is steps.BEGIN or not self._patience.is_closed:  # none is under way as one begins
                hear(step)

        self._copies.hears_by(partial(heard, steps.READ))
        return run(steps.move(self._ports, self._order.to), heard)

    def give_up(self) -> Moved | MoveStopped:
        """Have the shard stay where it is, if it is not decided that it goes."""
        return run(steps.give_up(self._ports))

    def silence(self, cluster: str) -> str:
        error = self._rows.silences.get(cluster)
        return "" if error is None else error.message

    def is_settled(self) -> bool:
        """One of which nothing can be heard is gone on with."""
        try:
            move = self._record.find().move
        except SchemalessError:
            return False
        return move.state is MoveState.DONE or move.target != self._order.to


def lag_seconds(cluster: Cluster) -> float | None:
    """How far the replica of a cluster is behind that is furthest; None: none says."""
    behind: list[float] = []
    for replica in cluster.replicas:
        candidate = replica.node.candidate()
        try:
            seconds = candidate.seconds_behind(Deadline(LAG_LOOK_SECONDS))
        except SchemalessError:
            continue
        finally:
            candidate.close()
        if seconds is not None:
            behind.append(seconds)
    return max(behind, default=None)
