"""`Moves`: of a datastore: plans moves of shards, begins them as a job, and drops the copies that they leave."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from schemaless_core.cell.canonical import Json
from schemaless_core.cell.standing import ShardHead, ShardStatus
from schemaless_core.config import DatastoreConfig
from schemaless_core.control.database import ControlDatabase
from schemaless_core.control.documents import Documents
from schemaless_core.control.jobs.jobs import Job, Jobs
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import IndexTable, Node
from schemaless_core.engine.copies import HoldsCopies
from schemaless_core.errors import InvalidRequest, MoveRefused, SchemaMissing, Unavailable
from schemaless_core.indexes.catalogue import Catalogue
from schemaless_core.moves.mover import Mover
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
#: For how long a shard may take no writes; a put waits so long, or is buffered.
HOLD_SECONDS = 0.8


class MoveOrder(NamedTuple):
    """What an operator asks for."""

    shards: tuple[int, ...]
    to: str
    hold_seconds: float = HOLD_SECONDS
    cells_per_second: float | None = None


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

    def plan(self, order: MoveOrder) -> MovePlan:
        """Look at the servers. Nothing is changed."""
        topology = self._topology()
        if order.to not in self._clusters:
            known = ", ".join(self._clusters)
            raise InvalidRequest(f"There is no cluster {order.to}.", hint=f"The configuration names: {known}.")
        there = tuple(shard for shard in order.shards if place_of(topology, shard).cluster == order.to)
        going = {shard: place_of(topology, shard).cluster for shard in order.shards if shard not in there}
        refusals = [*self._other_moves(order), *self._unfit({order.to, *going.values()})]
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

    def begin(self, plan: MovePlan) -> Job:
        """Write it down as a job, which any worker may serve. Nothing is copied yet."""
        if plan.refusals:
            raise MoveRefused(plan.refusals[0], hint="`tripstore shards move --dry-run` shows all of it.")
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
        return self.jobs.create(KIND, spec, parts, is_detached=True)

    def runner(self, job: Job, worker: str) -> MoveRunner:
        """What serves a job, as a worker of this name."""
        order = order_of_job(job)
        return MoveRunner(self.jobs, job.id, worker, lambda each: self.mover(each, order))

    def mover(self, each: ShardOrder, order: MoveOrder) -> Mover:
        """What moves one shard."""
        shards, limits = self._config.shards, (order.hold_seconds, order.cells_per_second)
        return Mover(self._control, self._clusters, shards, each, self._authority, self._tables, *limits)

    def back(self, job: Job) -> list[MoveOrder]:
        """What undoes a job: its shards go to where they came from, which copies what came since."""
        match job.spec:
            case {"from": dict(sources)}:
                order = order_of_job(job)
                clusters = sorted({str(cluster) for cluster in sources.values()})
                return [
                    order._replace(shards=tuple(int(n) for n, at in sources.items() if at == cluster), to=cluster)
                    for cluster in clusters
                ]
        raise InvalidRequest(f"{job.id} is of another version of tripstore.", hint="Move its shards by number.")

    def give_up(self, job: Job) -> int:
        """Have the shards of a job stay that have not gone yet, and go on with those that are decided upon.

        Return how many of them were under way. `Unavailable`: one takes no writes yet, since a server is silent.
        """
        order, left = order_of_job(job), 0
        closed: list[int] = []
        for shard in order.shards:
            found = Documents(self._control).find(document_of(shard))
            move = MoveRecord() if found is None else move_of(found.body)
            if move.target != order.to or move.state is MoveState.DONE:
                continue
            ended = self.mover(ShardOrder(shard, order.to), order).give_up()
            closed += [] if isinstance(ended, Moved) or ended.why is MoveStop.STAYED else [shard]
            left += 1
        if closed:
            listed = ", ".join(map(str, closed))
            hint = f"Begin their move to cluster {order.to} again when all servers answer: it goes on from there."
            raise Unavailable(f"Shards {listed} are between two clusters, and may take no writes.", hint=hint)
        return left

    def old_copies(self) -> list[OldCopy]:
        """Copies of shards on clusters that do not own them."""
        topology = self._topology()
        records = {each.name: each.body for each in Documents(self._control).all(PREFIX)}
        return [
            OldCopy(shard, cluster, head.head, *_news(records.get(document_of(shard))))
            for cluster, heads in sorted(self._heads(set(self._clusters)).items())
            for shard, head in sorted(heads.items())
            if place_of(topology, shard).cluster != cluster and head.state.status == ShardStatus.MOVED.value
        ]

    def _tables(self) -> Sequence[IndexTable]:
        self._catalogue.refresh()
        return [version.table for version in self._catalogue.kept()]

    def _other_moves(self, order: MoveOrder) -> list[str]:
        wanted = {document_of(shard): shard for shard in order.shards}
        found: list[str] = []
        for each in Documents(self._control).all(PREFIX):
            move = move_of(each.body)
            if each.name in wanted and move.state is not MoveState.DONE and move.target != order.to:
                found.append(f"Shard {wanted[each.name]} is being moved to cluster {move.target}: end that first.")
        return found

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
        return topology


_MOVABLE = (ShardStatus.RW.value, ShardStatus.COPY.value, ShardStatus.GOING.value, ShardStatus.UNLEASED.value)


def _head(heads: Mapping[str, Mapping[int, ShardHead]], cluster: str, shard: int) -> int:
    found = heads.get(cluster, {}).get(shard)
    return 0 if found is None else found.head


def _news(record: Mapping[str, Json] | None) -> tuple[bool, datetime | None]:
    """Whether a move is under way, and when the record changed last."""
    if record is None:
        return False, None
    at = record.get("at")
    return move_of(record).state is not MoveState.DONE, datetime.fromisoformat(at) if isinstance(at, str) else None


def order_of_job(job: Job) -> MoveOrder:
    """What a job was begun with."""
    match job.spec:
        case {"shards": list(shards), "to": str(to), "hold_seconds": float() | int() as hold, "cells_per_second": rate}:
            return MoveOrder(
                tuple(int(str(shard)) for shard in shards), to, float(hold), None if rate is None else float(str(rate))
            )
    raise InvalidRequest(f"{job.id} is of another version of tripstore.", hint="Move its shards by number.")
