"""`Replication`: one datastore as the standby of another one: begins that, says how far it is, has it lead."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from schemaless_core.backups.patient import LEASE_SECONDS
from schemaless_core.backups.restoring import claim_of
from schemaless_core.backups.source import BackupSource
from schemaless_core.cell.canonical import Json
from schemaless_core.control.jobs.jobs import Job, Jobs
from schemaless_core.control.jobs.records import JobState, PartLost
from schemaless_core.engine.copies import HoldsCopies
from schemaless_core.errors import InvalidRequest, ReplicationRefused, Unavailable
from schemaless_core.indexes.indexes import Indexes
from schemaless_core.logcopy.ends import ClusterEnd
from schemaless_core.logcopy.throttle import CopyThrottle
from schemaless_core.moves.mover import lag_seconds
from schemaless_core.promotion.ports import AuthorityPort
from schemaless_core.promotion.promoter import AsTheyWere
from schemaless_core.replication import steps
from schemaless_core.replication.bringing import Bringing
from schemaless_core.replication.comparing import ComparedLogs, LogEnds, compare
from schemaless_core.replication.copied import StandbyCopies
from schemaless_core.replication.following import LogFollowing
from schemaless_core.replication.forks import are_apart
from schemaless_core.replication.led import LedPlacesOf, places_of
from schemaless_core.replication.other import OtherSide, heads
from schemaless_core.replication.ports import LeadAnswer, PromotePorts, Standby, StandbySeen, StandbyState
from schemaless_core.replication.promoting import StandbySide
from schemaless_core.replication.record import StandbyRecord
from schemaless_core.replication.replicas import OwnReplicas
from schemaless_core.replication.runner import KIND, FollowRunner
from schemaless_core.replication.sides import DatastoreSide, ShardEnd, ShardLag, ends_of, known, lag_of, places_in
from schemaless_core.replication.steps import Leading, StandbyStopped, promote
from schemaless_core.replication.stops import refusal_of
from schemaless_core.servers.topology import Topology, spread
from schemaless_core.steps import Step, run

#: Writes to the shards of a datastore that gave the lead away, and leads again by force: it has no job that follows.
LED_AGAIN = "led again"

#: Shards that a refusal names.
MISSING_MAX = 10

_UNDER_WAY = (JobState.RUNNING, JobState.PAUSED)


class FollowOrder(NamedTuple):
    """What an operator asks for. `other`: what names the configuration of the one that leads."""

    other: str
    cells_per_second: float | None = None


class FollowPlan(NamedTuple):
    """What following would mean, and what keeps it from being begun."""

    order: FollowOrder
    seen: StandbySeen
    #: Shards by own cluster.
    places: tuple[tuple[int, int, str], ...]
    #: In the logs of the one that leads, and in own copies.
    cells: int
    there: int
    #: This one leads until now, or did: what it alone has is brought to the other one first.
    returns: bool
    #: A job that is gone on with; empty: a new one.
    job: str
    refusals: tuple[str, ...]
    #: What an operator is told, and may be meant.
    remarks: tuple[str, ...] = ()


class Replication:
    """Made for a call or two. `other`: the datastore that leads; `authority`: as for moves."""

    def __init__(
        self,
        own: DatastoreSide,
        other: DatastoreSide,
        indexes: Indexes,
        authority: AuthorityPort | None = None,
    ) -> None:
        self._own = own
        self._other = other
        self._indexes = indexes
        self._authority = authority or AsTheyWere()
        self._led = LedPlacesOf(other.clusters, other.control, other.config.shards)
        self.record = StandbyRecord(own.control, own.config.shards)
        self.jobs = Jobs(own.control)

    # ---- following -----------------------------------------------------------------------------------------------

    def plan(self, order: FollowOrder) -> FollowPlan:
        """Look at both datastores. Nothing is written."""
        for side in (self._own, self._other):
            _refuse_files(side)
        led = self._led.topology()
        topology, seen = known(self._own)
        standby = seen.standby
        leads = topology is not None and not topology.is_elsewhere
        returns = leads or standby.state in (StandbyState.LEFT, StandbyState.RETURNS)
        places = _runs(topology) if leads and topology is not None else standby.places
        places = places or _runs(spread(self._own.config.shards, list(self._own.clusters)))
        own, theirs = ends_of(self._own), ends_of(self._other)
        job = self._job_of(standby)
        refusals = [*self._unfit(led), *self._in_the_way(topology, standby, led), *_apart(own, theirs)]
        if job is not None:
            refusals += _differences(order, job)
        cells, there = (sum(each.head for each in ends.values()) for ends in (theirs, own))
        return FollowPlan(
            order, seen, places, cells, there, returns, job.id if job else "", tuple(refusals), self._remarks()
        )

    def begin(self, plan: FollowPlan) -> Job:
        """Write down that this datastore follows, and have a job for it; or go on with the one that there is."""
        if plan.refusals:
            raise ReplicationRefused(plan.refusals[0], hint="`tripstore replicate start --dry-run` shows all of it.")
        if plan.job:
            return self.jobs.resume(KIND, plan.job)
        self._own.schema.prepare()
        led = self._led.topology()
        spec: dict[str, Json] = {
            "other": plan.order.other,
            "cells_per_second": plan.order.cells_per_second,
            "estimate": max(0, plan.cells - plan.there),
            "unit": "cells",
        }
        job = self.jobs.create(KIND, spec, [0])
        latest = max(at.epoch for at in led.placements)
        state = StandbyState.RETURNS if plan.returns else StandbyState.FOLLOWS
        after = Standby(state, latest, other=plan.order.other, job=job.id, places=plan.places)
        if not self._is_written(plan, after):
            self.jobs.cancel(KIND, job.id)
            raise ReplicationRefused(
                "What this datastore is was changed meanwhile, or a promotion or a move goes on in it.",
                hint="Look at `tripstore replicate status`, then run it again.",
            )
        return job

    def _is_written(self, plan: FollowPlan, after: Standby) -> bool:
        topology, _seen = known(self._own)
        if topology is None:
            return self.record.decide(plan.seen, after)
        if topology.is_elsewhere:
            return self.record.change(plan.seen, after)
        return self.record.lose(plan.seen, after, f"follows {plan.order.other}").lead is LeadAnswer.GIVEN

    def runner(self, job: Job, worker: str) -> FollowRunner:
        """What follows, as a worker of this name."""
        rate = job.spec["cells_per_second"]
        following = self._following(job.id, None if rate is None else float(str(rate)))
        bringing = self._bringing(self._own, self._other)
        return FollowRunner(self.jobs, job.id, worker, self.record, following, bringing)

    def _bringing(self, side: DatastoreSide, led: DatastoreSide) -> Bringing:
        """What puts what one of the two alone has into the other one."""
        places = partial(places_in, side)
        parts = (side.config, side.clusters, side.control, places, led.router, led.purges)
        return Bringing(*parts, self._authority, self._indexes)

    def _following(self, job: str, cells_per_second: float | None = None) -> LogFollowing:
        others = {name: ClusterEnd(cluster) for name, cluster in self._other.clusters.items()}
        throttle = CopyThrottle(self._own_lag, cells_per_second)
        return LogFollowing(self._led, others, self._copies(job), throttle, self.record.may_follow)

    def _own_lag(self) -> float | None:
        found = [lag for cluster in self._own.clusters.values() if (lag := lag_seconds(cluster)) is not None]
        return max(found, default=None)

    def _copies(self, job: str) -> StandbyCopies:
        return StandbyCopies(self._own.clusters, places_of(self.record.find().standby.places), claim_of(job))

    def _copies_to_lead(self, standby: Standby) -> StandbyCopies:
        """One that gave the lead away, or has not brought all yet, leads again with what is its own, and no job."""
        are_own = standby.state in (StandbyState.LEFT, StandbyState.RETURNS) or not standby.job
        claim = claim_of(LED_AGAIN if are_own else standby.job)
        return StandbyCopies(self._own.clusters, places_of(standby.places), claim, are_own=are_own)

    # ---- how far it is -------------------------------------------------------------------------------------------

    def lag(self) -> list[ShardLag]:
        """Of each shard how many cells it has, and lacks. What it has behind a fork is not of the other one's log.

        A shard of which there is no copy lacks all of its log.
        """
        own, placed = ends_of(self._own), places_in(self._own)
        theirs: dict[int, ShardEnd] = {}
        if self.is_other_known:
            with suppress(Unavailable):
                theirs = ends_of(self._other)
        try:
            return [lag_of(shard, own.get(shard), theirs.get(shard)) for shard in sorted({*placed, *theirs})]
        except Unavailable:
            return [lag_of(shard, own.get(shard), None) for shard in sorted(placed)]

    @property
    def is_other_known(self) -> bool:
        """Whether the other one is another datastore: one that gave the lead away may have no configuration of it."""
        return self._own.control is not self._other.control

    def does_other_lead(self) -> bool:
        """Whether the other one takes puts, as its control database says."""
        topology, _seen = known(self._other)
        return topology is not None and not topology.is_elsewhere

    def own_ends(self) -> dict[int, ShardEnd]:
        """Of each own shard where its log is, and where that ends."""
        return ends_of(self._own)

    def compare(self, hear: Callable[[int, int], object] = lambda done, total: None) -> ComparedLogs:
        """Compare the logs of both, up to where the shorter one of each shard ends."""
        own, theirs = ends_of(self._own), ends_of(self._other)
        ends = [
            LogEnds(shard, own[shard].end, own[shard].head, theirs[shard].end, theirs[shard].head)
            for shard in sorted(own.keys() & theirs.keys())
        ]
        placed = {**places_in(self._own), **places_in(self._other)}
        missing = tuple(sorted(placed.keys() - (own.keys() & theirs.keys())))
        return compare(ends, hear)._replace(missing=missing)

    # ---- leading -------------------------------------------------------------------------------------------------

    def promote(self, *, is_forced: bool, hear: Callable[[Step], None] | None = None, configuration: str = "") -> int:
        """Have this datastore lead; return the epoch. What is done stays done when it stops: call it again.

        `configuration`: where that of this datastore is, for the record of the one that leads until now.
        """
        seen = self.record.find()
        job = seen.standby.job
        led, bringing = self._other, self._bringing(self._other, self._own)
        other = OtherSide(led.clusters, led.control, led.config.shards, configuration, bringing)
        copies = self._copies_to_lead(seen.standby)
        if seen.standby.state in steps.LED_OFF:
            self._refuse_missing(copies)
        if seen.standby.state is StandbyState.FOLLOWS and any(map(copies.is_mirror, copies.places)):
            raise ReplicationRefused(
                "Postgres is the authority, and this datastore has copies of its mirror.",
                hint="The relay has passed cells that may not be here: make a mirror by a backfill, or switch first.",
            )
        replicas = OwnReplicas(self._own.clusters, set(copies.places.values()))
        if hear is not None:
            replicas.tell = partial(hear, steps.REPLICATED)
        placed = BackupSource(self._own.clusters, self._own.control).topology
        side = StandbySide(copies, self._following(job), replicas, placed, lambda behind: None)
        ended = run(promote(PromotePorts(self.record, other, side, self._authority), is_forced=is_forced), hear)
        if isinstance(ended, StandbyStopped):
            raise refusal_of(ended.why, other, side, bringing)
        assert isinstance(ended, Leading)
        self._indexes.create_missing()
        if job:
            self._end_job(job)
        return ended.epoch

    def _refuse_missing(self, copies: StandbyCopies) -> None:
        """It may not have made them yet, or lost a server: what leads without them answers for no row of theirs."""
        missing = sorted(copies.places.keys() - self.own_ends().keys())
        if missing:
            some = ", ".join(map(str, missing[:MISSING_MAX]))
            raise ReplicationRefused(
                f"{len(missing):,} shards have no copy here: {some}{' and others' * (len(missing) > MISSING_MAX)}.",
                hint="`tripstore replicate start` makes them while the other one answers. Where that is lost, bring "
                "back the servers that had them first.",
            )

    def _end_job(self, job: str) -> None:
        """A process that follows still ends it by itself."""
        if self.jobs.state(job) is JobState.PAUSED:
            self.jobs.resume(KIND, job)
        part = self.jobs.claim(job, "promote", LEASE_SECONDS)
        if part is not None:
            with suppress(PartLost):  # of two that promote at once, the other one was first
                self.jobs.save(
                    part, "promote", checkpoint=part.checkpoint, counts={}, is_done=True, lease_seconds=LEASE_SECONDS
                )

    # ---- what is there -------------------------------------------------------------------------------------------

    def _job_of(self, standby: Standby) -> Job | None:
        """The job by which this datastore follows already."""
        if standby.state not in (StandbyState.FOLLOWS, StandbyState.RETURNS) or not standby.job:
            return None
        job = self.jobs.find(KIND, standby.job)
        return job if job.state in _UNDER_WAY else None

    def _unfit(self, led: Topology) -> list[str]:
        own, other = self._own.config, self._other.config
        refusals = []
        if (own.control, own.datastore) == (other.control, other.datastore):
            refusals.append("Both configurations name one control database: a standby has its own.")
        if own.shards != led.shards:
            refusals.append(f"The one that leads has {led.shards:,} shards, and this configuration {own.shards:,}.")
        return refusals

    def _remarks(self) -> tuple[str, ...]:
        own, other = self._own.config.datastore, self._other.config.datastore
        if own == other:
            return ()
        return (f"This datastore is {own}, and the other one {other}: positions that readers have kept name {other}.",)

    def _in_the_way(self, topology: Topology | None, standby: Standby, led: Topology) -> list[str]:
        if topology is None:
            there = {name: len(found) for name, each in self._own.clusters.items() if (found := each.ask(heads))}
            return [f"Cluster {name} has {count:,} shards of this datastore already." for name, count in there.items()]
        if standby.state in (StandbyState.CLOSING, StandbyState.OPENING):
            return ["This datastore is about to lead: `tripstore replicate promote` goes on with that."]
        if topology.is_elsewhere:
            return []
        latest = min(at.epoch for at in led.placements)
        if max(at.epoch for at in topology.placements) >= latest:
            return [
                "This datastore leads, and the other one has not taken the lead from it: its shards are at epoch "
                f"{latest}. A standby is a datastore that has no shards yet, or one that led before."
            ]
        return []


def _runs(topology: Topology) -> tuple[tuple[int, int, str], ...]:
    return tuple((at.first, at.last, at.cluster) for at in topology.placements)


def _apart(own: Mapping[int, ShardEnd], theirs: Mapping[int, ShardEnd]) -> list[str]:
    """One log of each own cluster is looked at: of another datastore, or of one that was made anew, it shares nothing.

    One that leads, and is told to follow another one by mistake, would be closed, and its cells put there.
    """
    first: dict[str, int] = {}
    for shard in sorted(own.keys() & theirs.keys()):
        if own[shard].head:
            first.setdefault(own[shard].end.cluster.name, shard)
    return [
        f"Shard {shard} here and there are two logs: no epoch of one was opened where the other one says. That is "
        "another datastore, or it was made anew since."
        for shard in first.values()
        if are_apart(own[shard].history(shard), theirs[shard].history(shard))
    ]


def _differences(order: FollowOrder, job: Job) -> list[str]:
    """A job is gone on with as it was begun."""
    asked: dict[str, Json] = {"other": order.other}
    if order.cells_per_second is not None:
        asked["cells_per_second"] = order.cells_per_second
    return [
        f"{job.id} follows with {name} = {job.spec[name]}, and this asks for {value}: give that one up first "
        f"(`tripstore replicate start --cancel {job.id}`); what was copied stays."
        for name, value in asked.items()
        if job.spec[name] != value
    ]


def _refuse_files(side: DatastoreSide) -> None:
    for name, cluster in side.clusters.items():
        if not isinstance(cluster.nodes[0].node, HoldsCopies):
            raise InvalidRequest(
                f"Cluster {name} of {side.config.datastore} is a file, and standbys are of MySQL and MariaDB.",
                hint="Copy the file while no process has it open.",
            )
