"""JSON documents of moves: a plan, a job, and the copies that are left."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

import msgspec

from schemaless_core.control.jobs.records import StoredFinding
from schemaless_core.moves.balance import BalancePlan
from schemaless_core.moves.moves import MovePlan, OldCopy
from schemaless_core.moves.splits import SplitPlan
from tripstore.cli.exits import Exit
from tripstore.cli.jobs.documents import ProgressDocument


class PlannedMoveView(msgspec.Struct, frozen=True):
    """A shard that would be moved. `there`: cells that the other cluster has from before."""

    shard: int
    source: str
    target: str
    cells: int
    there: int


class MovePlanDocument(msgspec.Struct, frozen=True):
    """The JSON document of `move --dry-run`."""

    moves: list[PlannedMoveView]
    #: Shards that are at the cluster already.
    there: list[int]
    refusals: list[str]


class SplitPlanDocument(msgspec.Struct, frozen=True):
    """The JSON document of `split --dry-run`. `job`: that of the stored plan, null for a new one."""

    cluster: str
    into: str
    job: str | None
    moves: list[PlannedMoveView]
    #: Shards of the half that are at the other cluster already.
    there: list[int]
    #: Shards that stay.
    stay: list[int]
    refusals: list[str]


class ClusterLoadView(msgspec.Struct, frozen=True):
    """What a cluster has. `share`: of the work of all clusters, 0 to 1."""

    cluster: str
    shards: int
    cells: int
    cells_per_second: float
    share: float


class ProposedMoveView(msgspec.Struct, frozen=True):
    """A shard that had better be elsewhere."""

    shard: int
    source: str
    target: str
    cells: int
    cells_per_second: float


class BalanceDocument(msgspec.Struct, frozen=True):
    """The JSON document of `balance --plan`."""

    moves: list[ProposedMoveView]
    before: list[ClusterLoadView]
    after: list[ClusterLoadView]
    #: What does it, one for each cluster that shards go to.
    commands: list[str]


class StayedView(msgspec.Struct, frozen=True):
    """A shard that stayed where it was."""

    shard: int
    cluster: str
    reason: str


class MoveDocument(msgspec.Struct, frozen=True):
    """The JSON document of a job that moves shards."""

    progress: ProgressDocument
    moved: int
    cells: int
    #: On average, for how long a shard took no writes.
    closed_ms: float | None
    stayed: list[StayedView]

    @property
    def exit(self) -> Exit:
        if self.stayed:
            return Exit.FAILED
        return Exit.FINE if self.progress.job.state == "done" else Exit.INTERRUPTED


class CopyView(msgspec.Struct, frozen=True):
    """A copy on a cluster that does not own the shard."""

    shard: int
    cluster: str
    cells: int
    is_under_way: bool
    moved_at: datetime | None


class CopiesDocument(msgspec.Struct, frozen=True):
    """The JSON document of `copies`: those that are there, and what was dropped of them by this call."""

    copies: list[CopyView]
    dropped: list[CopyView] = []


def plan_document(plans: Sequence[MovePlan]) -> MovePlanDocument:
    return MovePlanDocument(
        [
            PlannedMoveView(each.shard, each.source, plan.order.to, each.cells, each.there)
            for plan in plans
            for each in plan.moves
        ],
        sorted(shard for plan in plans for shard in plan.there),
        [refusal for plan in plans for refusal in plan.refusals],
    )


def split_plan_document(plan: SplitPlan) -> SplitPlanDocument:
    moves = plan_document([plan.moves])
    job = None if plan.stored is None else plan.stored.job
    halves = (moves.moves, moves.there, list(plan.stay), moves.refusals)
    return SplitPlanDocument(plan.order.cluster, plan.order.into, job, *halves)


def balance_document(plan: BalancePlan) -> BalanceDocument:
    going = defaultdict[str, list[int]](list)
    for each in plan.proposals:
        going[each.to].append(each.load.shard)
    return BalanceDocument(
        [ProposedMoveView(each.load.shard, each.load.cluster, each.to, *each.load[2:]) for each in plan.proposals],
        [ClusterLoadView(*each) for each in plan.before],
        [ClusterLoadView(*each) for each in plan.after],
        [f"tripstore shards move {' '.join(map(str, sorted(shards)))} --to {to}" for to, shards in going.items()],
    )


def move_document(progress: ProgressDocument, findings: Sequence[StoredFinding]) -> MoveDocument:
    counts = progress.counts
    moved = counts.get("moved", 0)
    closed = counts.get("milliseconds_closed", 0) / moved if moved else None
    stayed = [
        StayedView(int(str(each.body["shard"])), str(each.body["cluster"]), str(each.body["reason"]))
        for each in findings
    ]
    return MoveDocument(progress, moved, counts.get("cells", 0), closed, stayed)


def copies_document(found: Sequence[OldCopy], dropped: Sequence[OldCopy] = ()) -> CopiesDocument:
    return CopiesDocument([CopyView(*each) for each in found], [CopyView(*each) for each in dropped])
