"""`Moves`: of a datastore: plans moves of shards, begins them as a job, and drops the copies that they leave."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Connection

from schemaless_core.cell.canonical import Json
from schemaless_core.cell.standing import ShardHead, ShardStatus
from schemaless_core.config import DatastoreConfig
from schemaless_core.control.audit import AuditLog
from schemaless_core.control.database import ControlDatabase
from schemaless_core.control.documents import Documents
from schemaless_core.control.jobs.jobs import Job, Jobs, JobState
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import IndexTable, Node
from schemaless_core.engine.copies import HoldsCopies
from schemaless_core.errors import InvalidRequest, LedElsewhere, MoveRefused, SchemaMissing, Unavailable
from schemaless_core.indexes.catalogue import Catalogue
from schemaless_core.logcopy.ends import copies_of
from schemaless_core.moves.mover import Mover
from schemaless_core.moves.orders import (
    MoveOrder,
    cancelling,
    mover_of,
    order_of_job,
    shards_of_others,
    taken_by_others,
)
from schemaless_core.moves.ports import MoveRecord, MoveState
from schemaless_core.moves.record import PREFIX, document_of, move_of, place_of
from schemaless_core.moves.runner import KIND, MoveRunner, ShardOrder
from schemaless_core.moves.steps import Moved, MoveStop
from schemaless_core.promotion.ports import AuthorityPort
from schemaless_core.promotion.promoter import AsTheyWere
from schemaless_core.servers.clusters import Cluster
from schemaless_core.servers.routing import Router
from schemaless_core.servers.topologies import Topologies
from schemaless_core.servers.topology import Topology

LOOK_SECONDS = 10.0
DROP_SECONDS = 60.0


class PlannedMove(NamedTuple):
    """A shard that would be moved. Cells: of its log; those that the other cluster has from before are not copied."""

    shard: int
    source: str
    cells: int
    there: int


class MovePlan(NamedTuple):
    """What a job would do."""

    order: MoveOrder
    moves: tuple[PlannedMove, ...]
    #: Shards that the cluster owns already.
    there: tuple[int, ...]
    #: What keeps it from being begun.
    refusals: tuple[str, ...]


class OldCopy(NamedTuple):
    """A copy of a shard that its cluster does not own, and when the shard's newest move changed last."""

    shard: int
    cluster: str
    cells: int
    is_under_way: bool
    moved_at: datetime | None


class Moves:
    """Made for a call or two. `authority`: who says which backend is the authority; None: no layer above has a say."""

    def __init__(
        self,
        config: DatastoreConfig,
        clusters: Mapping[str, Cluster],
        router: Router,
        control: ControlDatabase,
        catalogue: Catalogue,
        authority: AuthorityPort | None = None,
    ) -> None:
        self._config = config
        self._clusters = clusters
        self._router = router
        self._control = control
        self._catalogue = catalogue
        self._authority = authority or AsTheyWere()
        self.jobs = Jobs(control)

    def plan(self, order: MoveOrder, *, own: str = "") -> MovePlan:
        """Look at the servers. Nothing is changed. `own`: a job that is gone on with; any other is in the way."""
        topology = self._topology()
        self._check_known(order.to)
        there = tuple(shard for shard in order.shards if place_of(topology, shard).cluster == order.to)
        going = {shard: place_of(topology, shard).cluster for shard in order.shards if shard not in there}
        jobs = self.jobs.all(KIND)
        refusals = [*taken_by_others(jobs, order.shards, own), *self._other_moves(jobs, order, there)]
        refusals += self._unfit({order.to, *going.values()})
        heads = {} if refusals else self._heads({order.to, *going.values()})
        moves = tuple(
            PlannedMove(shard, source, _head(heads, source, shard), _head(heads, order.to, shard))
            for shard, source in sorted(going.items())
        )
        refusals += [
            f"Shard {each.shard} is {heads[each.source][each.shard].state.status} on cluster {each.source}: run fsck."
            for each in moves
            if heads and heads[each.source][each.shard].state.status not in _MOVABLE
        ]
        return MovePlan(order, moves, there, tuple(refusals))

    def begin(self, plan: MovePlan, with_it: Callable[[Connection, str], object] | None = None) -> Job:
        """Write it down as a job, which any worker may serve. Nothing is copied yet. `with_it`: as jobs have it."""
        if plan.refusals:
            raise MoveRefused(plan.refusals[0], hint="`--dry-run` shows all of it.")
        spec: dict[str, Json] = {
            "shards": [move.shard for move in plan.moves],
            "from": {str(move.shard): move.source for move in plan.moves},
            "to": plan.order.to,
            "hold_seconds": plan.order.hold_seconds,
            "cells_per_second": plan.order.cells_per_second,
            "estimate": sum(max(0, move.cells - move.there) for move in plan.moves),
            "unit": "cells",
        }
        parts: list[Json] = [[move.shard, plan.order.to] for move in plan.moves]

        def work(connection: Connection, job: str) -> None:
            if with_it is not None:
                with_it(connection, job)
            self._look_again(connection, plan, job)

        return self.jobs.create(KIND, spec, parts, is_detached=True, with_it=work)

    def _look_again(self, connection: Connection, plan: MovePlan, own: str) -> None:
        """Raise `MoveRefused` if another order has come between the plan and its job. Jobs begin one by one."""
        topology = Topologies(self._control).hold(connection)
        taken = taken_by_others(self.jobs.all_within(connection, KIND), plan.order.shards, own)
        gone = [move.shard for move in plan.moves if topology and place_of(topology, move.shard).cluster != move.source]
        if gone:
            taken.append(f"Shards {', '.join(map(str, gone))} have been moved since they were looked at.")
        if taken:
            raise MoveRefused(taken[0], hint="`--dry-run` looks anew.")

    def runner(self, job: Job, worker: str) -> MoveRunner:
        """What serves a job, as a worker of this name."""
        order = order_of_job(job)
        self._check_known(order.to)  # any worker may serve a job, one with an older configuration, too
        return MoveRunner(self.jobs, job.id, worker, lambda each: self.mover(each, order))

    def mover(self, each: ShardOrder, order: MoveOrder) -> Mover:
        """What moves one shard."""
        shards, limits = self._config.shards, (order.hold_seconds, order.cells_per_second)
        return Mover(self._control, self._clusters, shards, each, self._authority, self._tables, *limits)

    def back(self, job: Job) -> list[MoveOrder]:
        """What undoes a job: its shards that have gone go to where they came from, which copies what came since."""
        match job.spec:
            case {"from": dict(sources)}:
                order, topology = order_of_job(job), self._topology()
                gone = {int(n): str(at) for n, at in sources.items() if place_of(topology, int(n)).cluster == order.to}
                return [
                    order._replace(shards=tuple(n for n, at in gone.items() if at == cluster), to=cluster)
                    for cluster in sorted(set(gone.values()))
                ]
        raise InvalidRequest(f"{job.id} is of another version of tripstore.", hint="Move its shards by number.")

    def closed(self, job: Job) -> tuple[int, ...]:
        """Shards of a job that take no writes now, while they go. A mover that lives opens them in a moment."""
        order, topology = order_of_job(job), self._topology()
        places = {shard: place_of(topology, shard).cluster for shard in order.shards}
        heads = self._heads(set(places.values()))
        closed = (ShardStatus.GOING.value, ShardStatus.COMES.value, ShardStatus.MOVED.value)
        return tuple(
            shard
            for shard, cluster in places.items()
            if (head := heads[cluster].get(shard)) is not None and head.state.status in closed
        )

    def give_up(self, job: Job) -> int:
        """Have the shards of a job stay that have not gone yet, and go on with those that are decided upon.

        Return how many of them were under way. `Unavailable`: one takes no writes yet, since a server is silent; to
        repeat the call ends that. A shard that another job has by now is left to that.
        """
        order, left = order_of_job(job), 0
        closed: list[int] = []
        others = shards_of_others(self.jobs.all(KIND), job.id).values()
        for shard in sorted(set(order.shards).difference(*others)):
            found = Documents(self._control).find(document_of(shard))
            move = MoveRecord() if found is None else move_of(found.body)
            if move.target != order.to or move.state is MoveState.DONE:
                continue
            ended = self.mover(ShardOrder(shard, order.to), order).give_up()
            closed += [] if isinstance(ended, Moved) or ended.why is MoveStop.STAYED else [shard]
            left += 1
        if closed:
            listed = ", ".join(map(str, closed))
            hint = f"When all servers answer, {cancelling(job)} again."
            raise Unavailable(f"Shards {listed} are between two clusters, and may take no writes.", hint=hint)
        return left

    def owned(self) -> dict[str, dict[int, int]]:
        """By cluster, of all that are configured: the shards that it owns, and the last added id of each."""
        topology = self._topology()
        heads = self._heads(set(self._clusters))
        return {
            name: {shard: _head(heads, name, shard) for shard in topology.shards_of(name)} for name in self._clusters
        }

    def old_copies(self) -> list[OldCopy]:
        """Copies of shards on clusters that do not own them."""
        topology = self._topology()
        records = {each.name: each.body for each in Documents(self._control).all(PREFIX)}
        return [
            OldCopy(shard, cluster, head.head, *_news(records.get(document_of(shard))))
            for cluster, heads in sorted(self._heads(set(self._clusters)).items())
            for shard, head in sorted(heads.items())
            if place_of(topology, shard).cluster != cluster and _is_copy(head)
        ]

    def drop(self, copy: OldCopy) -> bool:
        """Drop a copy; the way back copies all of the log then. False: it is none any more. `MoveRefused`: it may be
        needed, since its shard is being moved."""
        found = Documents(self._control).find(document_of(copy.shard))
        job = next((job for job, its in shards_of_others(self.jobs.all(KIND), "").items() if copy.shard in its), None)
        if job is not None or (found is not None and move_of(found.body).state is not MoveState.DONE):
            hint = "Go on with that move, or cancel it." if job is None else f"It is part of {job}."
            raise MoveRefused(f"Shard {copy.shard} is being moved.", hint=hint)
        claim, deadline = secrets.randbits(62), Deadline(DROP_SECONDS)
        is_dropped = self._clusters[copy.cluster].ask(lambda node: copies_of(node).drop(copy.shard, claim, deadline))
        if is_dropped:
            AuditLog(self._control).add("shards.copy_dropped", {"shard": copy.shard, "cluster": copy.cluster})
        return is_dropped

    def _tables(self) -> Sequence[IndexTable]:
        self._catalogue.refresh()
        return [version.table for version in self._catalogue.kept()]

    def _other_moves(self, jobs: Sequence[Job], order: MoveOrder, there: Collection[int]) -> list[str]:
        """What a job has left that was cancelled; `there`: of these even one to the same cluster, which has to end."""
        wanted = {document_of(shard): shard for shard in order.shards}
        found: list[str] = []
        for each in Documents(self._control).all(PREFIX):
            shard, move = wanted.get(each.name), move_of(each.body)
            if shard is None or move.state is MoveState.DONE:
                continue
            job = mover_of(jobs, shard, move.target)
            is_left = job is not None and job.state is JobState.CANCELLED
            if move.target != order.to or (is_left and shard in there):
                end = f"move it to {move.target} first" if job is None else cancelling(job)
                found.append(f"Shard {shard} is being moved to cluster {move.target}: {end}.")
        return found

    def _check_known(self, cluster: str) -> None:
        if cluster not in self._clusters:
            known = ", ".join(self._clusters)
            raise InvalidRequest(f"There is no cluster {cluster}.", hint=f"The configuration names: {known}.")

    def _unfit(self, clusters: Collection[str]) -> list[str]:
        found = [
            f"Cluster {name} is a file: shards go between clusters of MySQL or MariaDB."
            for name in sorted(clusters)
            if not isinstance(self._clusters[name].nodes[0].node, HoldsCopies)
        ]
        return found or [
            f"Cluster {name} is being promoted: `tripstore shards promote {name}` ends that."
            for name in sorted(self._promoted() & set(clusters))
        ]

    def _promoted(self) -> set[str]:
        from schemaless_core.servers.leaders import PREFIX as PROMOTIONS  # two things with one name

        return {
            each.name.removeprefix(PROMOTIONS)
            for each in Documents(self._control).all(PROMOTIONS)
            if each.body.get("is_done") is False
        }

    def _heads(self, clusters: Collection[str]) -> dict[str, dict[int, ShardHead]]:
        def look(node: Node) -> dict[int, ShardHead]:
            try:
                return node.heads(None, Deadline(LOOK_SECONDS))
            except SchemaMissing:
                return {}  # a cluster that has no shard yet

        return {name: self._clusters[name].ask(look) for name in clusters}

    def _topology(self) -> Topology:
        topology = Topologies(self._control).find_newest()
        if topology is None:
            raise SchemaMissing("There are no shards yet.", hint="Run `tripstore schema apply`.")
        if topology.is_elsewhere:
            raise LedElsewhere
        return topology


_MOVABLE = (ShardStatus.RW.value, ShardStatus.COPY.value, ShardStatus.GOING.value, ShardStatus.UNLEASED.value)


def _head(heads: Mapping[str, Mapping[int, ShardHead]], cluster: str, shard: int) -> int:
    found = heads.get(cluster, {}).get(shard)
    return 0 if found is None else found.head


def _is_copy(head: ShardHead) -> bool:
    """One that was dropped is of no epoch, and empty."""
    return head.state.status == ShardStatus.MOVED.value and (head.state.epoch, head.head) != (0, 0)


def _news(record: Mapping[str, Json] | None) -> tuple[bool, datetime | None]:
    """Whether a move is under way, and when the record changed last."""
    if record is None:
        return False, None
    at = record.get("at")
    return move_of(record).state is not MoveState.DONE, datetime.fromisoformat(at) if isinstance(at, str) else None
