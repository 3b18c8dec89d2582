"""`Splits`: a cluster's shards in two halves, one of which goes to another cluster.

Which shards go is planned once, and stored with the job that moves them: whatever is repeated, no more than that half
goes. A split that has ended stays stored, so that a call which is repeated finds it; one into another cluster, or one
after this was closed, plans anew.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import sqlalchemy as sa

from schemaless_core.cell.canonical import Json
from schemaless_core.control.database import ControlDatabase
from schemaless_core.control.documents import Documents, put_within
from schemaless_core.control.jobs.jobs import Job, JobState
from schemaless_core.errors import DocumentConflict, InvalidRequest, MoveRefused
from schemaless_core.moves.moves import MovePlan, Moves
from schemaless_core.moves.orders import HOLD_SECONDS, MoveOrder, order_of_job
from schemaless_core.moves.runner import KIND, NOT_MOVED

#: The documents of splits, one for each cluster that was ever split.
PREFIX = "split/"


class SplitOrder(NamedTuple):
    """What an operator asks for."""

    cluster: str
    into: str
    hold_seconds: float = HOLD_SECONDS
    cells_per_second: float | None = None


class StoredSplit(NamedTuple):
    """The newest split of a cluster."""

    cluster: str
    into: str
    shards: tuple[int, ...]
    #: The job that moves them; a later one when some stayed at first.
    job: str
    #: It was taken back or given up, or another one was asked for: the next one plans anew.
    is_over: bool
    version: int


class SplitPlan(NamedTuple):
    """What is to be done for a split."""

    order: SplitOrder
    #: Shards that stay.
    stay: tuple[int, ...]
    #: The half that goes; of a stored one not all of it may be left to be moved.
    half: tuple[int, ...]
    #: Of that half: what is on the cluster, and is not moved by this. It came back, or its job was pruned.
    kept: tuple[int, ...]
    moves: MovePlan
    #: Stored before: this goes on with it. None: it is a new one.
    stored: StoredSplit | None
    #: Of the record, as it was read.
    version: int


class Splits:
    """Of a datastore."""

    def __init__(self, control: ControlDatabase, moves: Moves) -> None:
        self._documents = Documents(control)
        self.moves = moves

    def find(self, cluster: str) -> StoredSplit | None:
        """Return the newest split of a cluster, None if there never was one."""
        found = self._documents.find(PREFIX + cluster)
        return None if found is None else _split_of(cluster, found.version, found.body)

    def get(self, cluster: str) -> StoredSplit:
        """Return it, or raise `InvalidRequest`."""
        found = self.find(cluster)
        if found is None:
            hint = f"`tripstore shards split {cluster} --into CLUSTER` begins one."
            raise InvalidRequest(f"Cluster {cluster} was never split.", hint=hint)
        return found

    def plan(self, order: SplitOrder) -> SplitPlan:
        """Say which shards go: those of the stored plan that have not gone. Nothing is changed."""
        newest, owned = self.find(order.cluster), self.moves.owned()
        for cluster in (order.cluster, order.into):
            if cluster not in owned:
                hint = f"The configuration names: {', '.join(owned)}."
                raise InvalidRequest(f"There is no cluster {cluster}.", hint=hint)
        if order.into == order.cluster:
            raise InvalidRequest(f"Cluster {order.into} is the one that is to be split.", hint="Name another one.")
        stored, here = self._stored(newest, order), owned[order.cluster]
        half = half_of(here) if stored is None else stored.shards
        if not half:
            hint = "`tripstore status` shows which cluster has which shards."
            raise InvalidRequest(f"Cluster {order.cluster} has fewer than two shards.", hint=hint)
        left = half if stored is None else self._left(stored, here)
        stay = tuple(sorted(set(here) - set(half)))
        own = "" if stored is None else stored.job
        moves = self.moves.plan(MoveOrder(left, order.into, order.hold_seconds, order.cells_per_second), own=own)
        kept = tuple(shard for shard in half if shard in here and shard not in left)
        return SplitPlan(order, stay, half, kept, moves, stored, 0 if newest is None else newest.version)

    def _stored(self, newest: StoredSplit | None, order: SplitOrder) -> StoredSplit | None:
        """The split that is gone on with; None: a new one."""
        if newest is None or newest.is_over or newest.into == order.into:
            return None if newest is None or newest.is_over else newest
        if self.unended(newest) is not None:
            hint = f"`tripstore shards split {order.cluster} --cancel` ends that one."
            raise MoveRefused(f"Cluster {order.cluster} is being split into {newest.into}.", hint=hint)
        return None

    def _left(self, stored: StoredSplit, here: Collection[int]) -> tuple[int, ...]:
        """What a stored split has still to move: of an ended one what stayed or never began, and not what came back."""
        job = self._job(stored)
        if job is None:
            return ()  # it was pruned, and what it moved is not known any more
        ours = set(here)
        if job.state in (JobState.CANCELLED, JobState.DONE):
            ours &= self._unmoved(job)
        return tuple(shard for shard in stored.shards if shard in ours)

    def _unmoved(self, job: Job) -> set[int]:
        """Shards that an ended job has not moved."""
        shards = order_of_job(job).shards
        found = self.moves.jobs.findings(job.id, kinds=[NOT_MOVED], limit=max(1, len(shards)))
        stayed = {each.body.get("shard") for each in found}
        saved = self.moves.jobs.checkpoints(job.id)  # of a move's part at its end alone
        return {shard for n, shard in enumerate(shards) if shard in stayed or saved.get(n) is None}

    def begin(self, plan: SplitPlan) -> Job:
        """Store the plan and its job, by one transaction; or return the stored job, if it has not ended.

        `DocumentConflict`: another process has stored a plan meanwhile; plan again.
        """
        if plan.stored is not None and (job := self.unended(plan.stored)) is not None:
            return job
        name, version, into, half = PREFIX + plan.order.cluster, plan.version, plan.order.into, plan.half

        def store(connection: sa.Connection, job: str) -> None:
            try:
                is_stored = put_within(connection, name, _body(into, half, job), version)
            except sa.exc.IntegrityError:
                is_stored = False
            if not is_stored:
                raise DocumentConflict(name, version)

        return self.moves.begin(plan.moves, store)

    def back(self, split: StoredSplit, hold_seconds: float = HOLD_SECONDS, rate: float | None = None) -> MovePlan:
        """Plan to take a split back: its shards go to where they came from, which copies what came since.

        Those that are at the other cluster by now: what a later move took elsewhere stays there.
        """
        if self.unended(split) is not None:
            hint = f"`tripstore shards split {split.cluster} --cancel` ends it."
            raise MoveRefused(f"The split of cluster {split.cluster} is under way.", hint=hint)
        there = self.moves.owned().get(split.into, {})
        gone = tuple(shard for shard in split.shards if shard in there)
        return self.moves.plan(MoveOrder(gone, split.cluster, hold_seconds, rate))

    def give_up(self, split: StoredSplit) -> int:
        """End what the job of a split has left between two clusters, as one does that was cancelled; say how much."""
        job = self._job(split)
        return 0 if job is None else self.moves.give_up(job)

    def end(self, split: StoredSplit) -> None:
        """The next split of the cluster plans anew; this one is not gone on with."""
        body = _body(split.into, split.shards, split.job, is_over=True)
        self._documents.put(
            PREFIX + split.cluster,
            body,
            expected_version=split.version,
            action="shards.split_over",
            detail={"cluster": split.cluster, "job": split.job},
        )

    def unended(self, split: StoredSplit) -> Job | None:
        """Return its job, None when it is done, given up or pruned."""
        job = self._job(split)
        return job if job is not None and job.state in (JobState.RUNNING, JobState.PAUSED) else None

    def _job(self, split: StoredSplit) -> Job | None:
        try:
            return self.moves.jobs.find(KIND, split.job)
        except InvalidRequest:
            return None  # it was pruned, long after its end


def half_of(sizes: Mapping[int, int]) -> tuple[int, ...]:
    """Every second shard in the order of their sizes, to and fro: halves of as many shards, and about as large."""
    by_size = sorted(sizes, key=lambda shard: (-sizes[shard], shard))
    goes = [shard for n, shard in enumerate(by_size) if n % 4 in (1, 2)]
    return tuple(sorted(goes[: len(sizes) // 2]))


def _body(into: str, shards: tuple[int, ...], job: str, *, is_over: bool = False) -> dict[str, Json]:
    return {"into": into, "shards": list(shards), "job": job, "is_over": is_over}


def _split_of(cluster: str, version: int, body: Mapping[str, Json]) -> StoredSplit:
    match body:
        case {"into": str(into), "shards": list(shards), "job": str(job), "is_over": bool(is_over)}:
            return StoredSplit(cluster, into, tuple(int(str(each)) for each in shards), job, is_over, version)
    raise MoveRefused(f"The record of cluster {cluster}'s split cannot be read.", hint="Restore the control database.")
