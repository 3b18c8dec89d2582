"""JSON documents of standbys: what a start would do, how far a standby is, what a comparison found."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from schemaless_core.replication.comparing import ComparedLogs
from schemaless_core.replication.ports import Standby
from schemaless_core.replication.replication import FollowPlan
from schemaless_core.replication.sides import ShardLag
from tripstore.cli.exits import Exit
from tripstore.cli.jobs.documents import ProgressDocument


class FollowPlanDocument(msgspec.Struct, frozen=True):
    """The JSON document of `start --dry-run`."""

    other: str
    #: Cells that the one that leads has, and that are here.
    cells: int
    there: int
    #: This one led: what it alone has is brought to the other one first.
    returns: bool
    job: str
    refusals: list[str]
    remarks: list[str]


class FollowDocument(msgspec.Struct, frozen=True):
    """The JSON document of `start`, and of its verbs on a job."""

    progress: ProgressDocument
    #: Cells that were brought to the one that leads, and that met another body there.
    brought: int
    conflicts: int

    @property
    def exit(self) -> Exit:
        return Exit.FINE if self.progress.is_done else Exit.INTERRUPTED


class ShardLagDocument(msgspec.Struct, frozen=True):
    """One shard. `behind`: null while the one that leads does not answer."""

    shard: int
    cells: int
    behind: int | None


class StandbyDocument(msgspec.Struct, frozen=True):
    """The JSON document of `status`."""

    #: none, follows, closing, opening, leads, left or returns.
    state: str
    other: str
    #: Of one that left: the job of the standby that was given the lead.
    taker: str
    epoch: int
    is_forced: bool
    #: Whether the other one answers, and takes puts.
    is_other_heard: bool
    does_other_lead: bool | None
    cells: int
    behind: int | None
    #: All that was stored until then is here; null: this one does not follow, or has not yet.
    whole_until: datetime | None
    seconds_behind: float | None
    #: Cells that waited in the other one's buffers when it was heard last, and when the oldest of them was kept: no
    #: standby has them. Null: never heard.
    buffered: int | None
    buffered_since: datetime | None
    job: ProgressDocument | None
    shards: list[ShardLagDocument]


class LeadTakenDocument(msgspec.Struct, frozen=True):
    """The JSON document of `promote`."""

    epoch: int
    is_forced: bool
    cells: int


class RangeDocument(msgspec.Struct, frozen=True):
    """Added ids at which the logs differ."""

    shard: int
    first: int
    last: int
    cells: int
    cells_there: int


class CompareDocument(msgspec.Struct, frozen=True):
    """The JSON document of `compare`."""

    shards: int
    compared: int
    behind: int
    ahead: int
    differs: list[RangeDocument]
    #: Shards that one of the two does not have: not compared.
    missing: list[int]

    @property
    def exit(self) -> Exit:
        if self.differs:
            return Exit.FAILED
        return Exit.NOT_VERIFIED if self.missing else Exit.FINE


def plan_document(plan: FollowPlan) -> FollowPlanDocument:
    said = list(plan.refusals), list(plan.remarks)
    return FollowPlanDocument(plan.order.other, plan.cells, plan.there, plan.returns, plan.job, *said)


def follow_document(progress: ProgressDocument) -> FollowDocument:
    return FollowDocument(progress, progress.counts.get("brought", 0), progress.counts.get("conflicts", 0))


def standby_document(
    standby: Standby,
    lags: Sequence[ShardLag],
    job: ProgressDocument | None,
    whole_until: datetime | None,
    buffered: tuple[int | None, datetime | None],
    now: datetime,
    does_other_lead: bool | None,
) -> StandbyDocument:
    behind = [lag.behind for lag in lags if lag.behind is not None]
    return StandbyDocument(
        standby.state.value,
        standby.other,
        standby.taker,
        standby.epoch,
        standby.is_forced,
        does_other_lead is not None,
        does_other_lead,
        sum(lag.cells for lag in lags),
        sum(behind) if len(behind) == len(lags) and lags else None,
        whole_until,
        None if whole_until is None else max(0.0, (now - whole_until).total_seconds()),
        *buffered,
        job,
        [ShardLagDocument(*lag) for lag in lags],
    )


def compare_document(seen: ComparedLogs) -> CompareDocument:
    return CompareDocument(
        seen.shards,
        seen.compared,
        seen.behind,
        seen.ahead,
        [RangeDocument(*each) for each in seen.differs],
        list(seen.missing),
    )
