"""`Fsck`: what of a datastore is to be looked at, as a job that any number of processes do together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from schemaless_core.cell.canonical import Json
from schemaless_core.cell.standing import Standing
from schemaless_core.config import DatastoreConfig
from schemaless_core.control.database import ControlDatabase
from schemaless_core.control.jobs.jobs import Job, Jobs
from schemaless_core.deadline import Deadline
from schemaless_core.errors import InvalidRequest, LedElsewhere, SchemalessError, SchemaMissing
from schemaless_core.fsck.beside import BesideLook
from schemaless_core.fsck.entries import EntriesLook
from schemaless_core.fsck.mending import FsckMending
from schemaless_core.fsck.owners import OwnersLook
from schemaless_core.fsck.replicas import ReplicaWalk
from schemaless_core.fsck.runner import KIND, FsckRunner
from schemaless_core.fsck.shard_logs import LogWalk
from schemaless_core.fsck.tails import TailsLook
from schemaless_core.fsck.walk import PAGE_SECONDS, OneLook, PartWalk
from schemaless_core.indexes.indexes import Indexes, IndexParts
from schemaless_core.mends import Mends
from schemaless_core.promotion.promotions import Promotions
from schemaless_core.servers.clusters import Cluster
from schemaless_core.servers.routing import Router
from schemaless_core.servers.topologies import Topologies
from schemaless_core.servers.topology import Topology
from schemaless_core.triggers.triggers import Triggers

#: More are of no use: the shards of one part are walked one after the other.
PARTS_MAX = 256


@dataclass(frozen=True, slots=True)
class FsckOrder:
    """What is asked for."""

    #: The first and the last; None: all, and what stands beside them.
    shards: tuple[int, int] | None = None
    #: Bodies of these columns alone, and indexes that read one of them.
    columns: tuple[str, ...] | None = None
    #: Replicas and indexes, byte by byte.
    is_deep: bool = False
    #: Of each process; None: as fast as the servers answer.
    cells_per_second: float | None = None
    processes: int = 1

    @property
    def is_partial(self) -> bool:
        return self.shards is not None or self.columns is not None


class FsckPlan(NamedTuple):
    """An order, the parts it comes to, and about how many cells that is."""

    order: FsckOrder
    parts: list[Json]
    estimate: int


class FsckParts(NamedTuple):
    """What fsck looks at, and by what."""

    config: DatastoreConfig
    clusters: Mapping[str, Cluster]
    router: Router
    control: ControlDatabase
    index_parts: IndexParts
    triggers: Triggers
    indexes: Indexes
    promotions: Promotions


class Fsck:
    """Of one datastore. Made for a call or two."""

    def __init__(self, parts: FsckParts) -> None:
        self._its = parts
        self.jobs = Jobs(parts.control)

    def plan(self, order: FsckOrder) -> FsckPlan:
        """What would be looked at. Nothing is."""
        topology = self._topology()
        first, last = order.shards or (0, topology.shards - 1)
        if not 0 <= first <= last < topology.shards:
            raise InvalidRequest(
                f"There are no shards {first} to {last}.", hint=f"This datastore has 0 to {topology.shards - 1}."
            )
        parts: list[Json] = [] if order.shards else [{"owners": None}, {"beside": None}, *self._tails()]
        parts += [{"log": list(each)} for each in _portions(first, last)]
        if order.is_deep:
            parts += self._entries(order) if order.shards is None else []
            parts += self._replicas(topology, first, last)
        return FsckPlan(order, parts, self._estimate(first, last, is_deep=order.is_deep))

    def begin(self, plan: FsckPlan, *, is_detached: bool = False) -> Job:
        """Write it down as a job. Nothing is looked at yet."""
        order = plan.order
        spec: dict[str, Json] = {
            "shards": None if order.shards is None else list(order.shards),
            "columns": None if order.columns is None else list(order.columns),
            "is_deep": order.is_deep,
            "cells_per_second": order.cells_per_second,
            "processes": order.processes,
        }
        spec |= {"estimate": plan.estimate, "unit": "cells", "is_partial": order.is_partial}
        return self.jobs.create(KIND, spec, plan.parts, is_detached=is_detached)

    def runner(self, job: Job, worker: str) -> FsckRunner:
        """What serves a job, as a worker of this name."""
        order = order_of(job)
        return FsckRunner(self.jobs, job.id, self._walks(order), worker, order.cells_per_second)

    def mending(self, *, is_beside_postgres: bool, may_give_up: bool) -> FsckMending:
        """Makes right what fsck found and what has no command of its own."""
        its = self._its

        def mends_as(standing: Standing) -> Mends:
            return Mends(its.router, its.config.shards, standing, its.index_parts)

        return FsckMending(
            its.router,
            its.clusters,
            its.config.shards,
            mends_as,
            is_beside_postgres=is_beside_postgres,
            may_give_up=may_give_up,
        )

    def _walks(self, order: FsckOrder) -> dict[str, PartWalk]:
        its = self._its
        shards = its.config.shards
        return {
            "owners": OneLook(OwnersLook(its.router, its.control), "Who owns the shards"),
            "beside": OneLook(
                BesideLook(its.router, its.clusters, its.triggers.status), "Offsets, buffers, ledgers and replicas"
            ),
            "tail": OneLook(TailsLook(its.clusters, its.promotions.lost_tails), "What a server has that does not lead"),
            "log": LogWalk(its.router, shards, order.columns),
            "entries": OneLook(EntriesLook(its.indexes.compare), "The entries of an index"),
            "replica": ReplicaWalk(its.clusters),
        }

    def _tails(self) -> list[Json]:
        return [{"tail": cluster.name} for cluster in self._its.clusters.values() if not cluster.is_alone]

    def _entries(self, order: FsckOrder) -> list[Json]:
        catalogue = self._its.index_parts.catalogue
        catalogue.refresh()
        return [
            {"entries": [version.name, version.number]}
            for version in catalogue.kept()
            if order.columns is None or set(order.columns) & set(version.definition.column_names)
        ]

    def _replicas(self, topology: Topology, first: int, last: int) -> list[Json]:
        parts: list[Json] = []
        for cluster in self._its.clusters.values():
            shards = [shard for shard in topology.shards_of(cluster.name) if first <= shard <= last]
            size = -(-topology.shards // PARTS_MAX)
            for replica in cluster.replicas:
                portions = [shards[start : start + size] for start in range(0, len(shards), size)]
                parts += [{"replica": [cluster.name, replica.node.name, list(each)]} for each in portions]
        return parts

    def _estimate(self, first: int, last: int, *, is_deep: bool) -> int:
        """The sum of the heads, on each server that is read; one that is down adds nothing to it."""
        answers = self._its.router.ask_all(lambda node: node.heads(None, Deadline(PAGE_SECONDS)))
        cells = 0
        for name, answer in answers.items():
            if not isinstance(answer, SchemalessError):
                logs = 1 + len(self._its.clusters[name].replicas) * is_deep
                cells += logs * sum(head.head for shard, head in answer.items() if first <= shard <= last)
        return cells

    def _topology(self) -> Topology:
        topology = Topologies(self._its.control).find_newest()
        if topology is None:
            raise SchemaMissing("There are no shards yet.", hint="Run `tripstore schema apply`.")
        if topology.is_elsewhere:
            raise LedElsewhere
        return topology


def order_of(job: Job) -> FsckOrder:
    """What a job was begun with."""
    match job.spec:
        case {
            "shards": shards,
            "columns": columns,
            "is_deep": bool(is_deep),
            "cells_per_second": rate,
            "processes": int(processes),
        }:
            return FsckOrder(
                _pair(shards), _names(columns), is_deep, None if rate is None else float(str(rate)), processes
            )
    raise InvalidRequest(f"{job.id} is of another version of tripstore.", hint="Begin a new one: `tripstore fsck`.")


def _pair(found: Json) -> tuple[int, int] | None:
    match found:
        case [int(first), int(last)]:
            return first, last
    return None


def _names(found: Json) -> tuple[str, ...] | None:
    return tuple(str(name) for name in found) if isinstance(found, list) else None


def _portions(first: int, last: int) -> Sequence[tuple[int, int]]:
    size = -(-(last - first + 1) // PARTS_MAX)
    return [(start, min(start + size - 1, last)) for start in range(first, last + 1, size)]
