"""`CompressJobs`: the cells of all shards, stored as puts store them now, as a job that any number of processes do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from schemaless_core.cell.canonical import Json
from schemaless_core.compression.catalogue import DictionaryCatalogue
from schemaless_core.compression.runner import CELLS_PER_STEP, KIND, CompressionRunner, place_of
from schemaless_core.config import CompressionConfig
from schemaless_core.control.audit import AuditLog
from schemaless_core.control.database import ControlDatabase
from schemaless_core.control.jobs.jobs import Job, Jobs
from schemaless_core.errors import InvalidRequest
from schemaless_core.servers.shard_primaries import ShardPrimaries


@dataclass(frozen=True, slots=True)
class CompressOrder:
    """What is asked for. Which columns are compressed says the configuration of those that do it."""

    #: Of each process; None: as fast as the servers take it.
    cells_per_second: float | None = None
    processes: int = 1


class CompressPlan(NamedTuple):
    """An order, and the parts it comes to."""

    order: CompressOrder
    parts: list[Json]


class TurnedCells(NamedTuple):
    """Cells that are stored anew, of how many, and what their bodies take before and after."""

    cells: int
    looked: int
    bytes_before: int
    bytes_after: int


class CompressJobs:
    """Of one datastore."""

    def __init__(
        self,
        config: CompressionConfig,
        catalogue: DictionaryCatalogue,
        primaries: ShardPrimaries,
        control: ControlDatabase,
        shards: int,
    ) -> None:
        self._config = config
        self._catalogue = catalogue
        self._primaries = primaries
        self._control = control
        self._shards = shards
        self.jobs = Jobs(control)

    def plan(self, order: CompressOrder) -> CompressPlan:
        """What would be looked at; each server gets the dictionaries that it lacks, and no cell is changed."""
        self._catalogue.spread()
        heads = {shard: self._head(shard) for shard in range(self._shards)}
        return CompressPlan(order, [{"shard": shard, "last": head} for shard, head in heads.items() if head])

    def count(self, plan: CompressPlan) -> TurnedCells:
        """What would become of it. It reads as much as the job would."""
        cells = looked = before = after = 0
        for part in plan.parts:
            (shard, last), at = place_of("This plan", part), 0
            while at < last:
                turned = self._primaries.ask(
                    shard,
                    lambda node, end: node.turning.look(shard, at, last, CELLS_PER_STEP, end),  # noqa: B023  # called at once
                )
                cells, looked, at = cells + turned.cells, looked + turned.reached - at, turned.reached
                before, after = before + turned.bytes_before, after + turned.bytes_after
        return TurnedCells(cells, looked, before, after)

    def begin(self, plan: CompressPlan, *, is_detached: bool = False) -> Job:
        """Write it down as a job, and in the audit log. No cell is changed yet."""
        columns = list(self._config.columns)
        spec: dict[str, Json] = {
            "columns": [*columns],
            "cells_per_second": plan.order.cells_per_second,
            "processes": plan.order.processes,
            "unit": "added ids",
            "estimate": sum(place_of("This plan", part)[1] for part in plan.parts),
            "is_partial": False,
        }
        job = self.jobs.create(KIND, spec, plan.parts, is_detached=is_detached)
        AuditLog(self._control).add("cell.compress", {"job": job.id, "columns": columns})
        return job

    def runner(self, job: Job, worker: str) -> CompressionRunner:
        """What serves a job, as a worker of this name.

        `InvalidRequest`: its configuration names other columns than the job was begun with. One of two such workers
        would undo what the other does.
        """
        order = order_of(job)
        if job.spec.get("columns") != list(self._config.columns):
            raise InvalidRequest(
                f"{job.id} was begun with other columns under `compression` than this configuration has.",
                hint="Give all workers one configuration, or begin a new one: `tripstore cell compress`.",
            )
        return CompressionRunner(self.jobs, job.id, self._primaries, worker, order.cells_per_second)

    def _head(self, shard: int) -> int:
        return self._primaries.ask(shard, lambda node, end: node.heads([shard], end)[shard].head)


def order_of(job: Job) -> CompressOrder:
    """What a job was begun with."""
    match job.spec:
        case {"cells_per_second": rate, "processes": int(processes)}:
            return CompressOrder(None if rate is None else float(str(rate)), processes)
    raise InvalidRequest(f"{job.id} is of another version of tripstore.", hint="Begin a new one.")
