"""`PurgeJobs`: what is to be purged, as a job that any number of processes do together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple, TypeVar
from uuid import UUID

from schemaless_core.cell.canonical import Json
from schemaless_core.cell.cell import check_column_name
from schemaless_core.control.audit import AuditLog
from schemaless_core.control.database import ControlDatabase
from schemaless_core.control.jobs.jobs import Job, Jobs
from schemaless_core.errors import InvalidRequest
from schemaless_core.purging.columns import ColumnBook, ColumnKinds, refuse_children
from schemaless_core.purging.purges import PurgedCells, Purges
from schemaless_core.purging.replicas import PurgeReplicas
from schemaless_core.purging.runner import KIND, REPLICA_SECONDS, SETTLE_SECONDS, PurgeRunner, unfinished_rows

T = TypeVar("T")

ROWS_PER_PART = 1_000
#: Rows that a dry run asks the servers about at once.
ROWS_PER_LOOK = 200


@dataclass(frozen=True, slots=True)
class PurgeOrder:
    """What is asked for: these rows, or superseded versions of these columns that were stored before a moment."""

    rows: tuple[UUID, ...] = ()
    columns: tuple[str, ...] = ()
    before: datetime | None = None
    #: Of each process; None: as fast as the servers take it.
    cells_per_second: float | None = None
    processes: int = 1
    #: Columns that no layout tells of, whose cells are said to be versions of one thing.
    versioned: tuple[str, ...] = ()
    #: What a layer above knows of columns, newer than what is written down.
    kinds: ColumnKinds = field(default_factory=dict[str, int | None])


class PurgePlan(NamedTuple):
    """An order, and the parts it comes to."""

    order: PurgeOrder
    parts: list[Json]


class PurgeJobs:
    """Of one datastore."""

    def __init__(self, purges: Purges, replicas: PurgeReplicas, control: ControlDatabase, shards: int) -> None:
        self._purges = purges
        self._replicas = replicas
        self._control = control
        self._shards = shards
        self.jobs = Jobs(control)

    def plan(self, order: PurgeOrder) -> PurgePlan:
        """What would be looked at. Nothing is purged. `InvalidRequest`: a column may hold more than one thing."""
        if bool(order.rows) == bool(order.columns):
            raise InvalidRequest("A purge is of rows or of columns.", hint="Name row keys, or columns and an age.")
        for name in order.columns:
            check_column_name(name)
        if order.rows:
            keys = [str(row) for row in order.rows]
            return PurgePlan(order, [{"rows": list(each)} for each in _portions(keys, ROWS_PER_PART)])
        refuse_children(order.columns, {**ColumnBook(self._control).find(), **order.kinds}, order.versioned)
        assert order.before is not None, "columns come with an age"
        lasts = {shard: self._purges.last_before(shard, order.before) for shard in range(self._shards)}
        return PurgePlan(order, [{"superseded": [shard, last]} for shard, last in lasts.items() if last])

    def count(self, plan: PurgePlan) -> PurgedCells:
        """What would be deleted, as the servers say now. It reads as much as the purge would."""
        if plan.order.rows:
            counts = [self._purges.count_rows(rows) for rows in _portions(plan.order.rows, ROWS_PER_LOOK)]
            return PurgedCells(*map(sum, zip(*counts, strict=True)))
        cells = 0
        for part in plan.parts:
            match part:
                case {"superseded": [int(shard), int(last)]}:
                    cells += self._purges.count_superseded(shard, plan.order.columns, last)
        return PurgedCells(cells, 0)

    def begin(self, plan: PurgePlan, *, is_detached: bool = False) -> Job:
        """Write it down as a job, and in the audit log. Nothing is purged yet."""
        order = plan.order
        spec: dict[str, Json] = {
            "purged_rows": len(order.rows),
            "columns": list(order.columns),
            "versioned": list(order.versioned),
            "before": None if order.before is None else order.before.isoformat(),
            "cells_per_second": order.cells_per_second,
            "processes": order.processes,
            "unit": "rows" if order.rows else "added ids",
            "estimate": len(order.rows) or sum(_last_of(part) for part in plan.parts),
            "is_partial": False,
        }
        job = self.jobs.create(KIND, spec, plan.parts, is_detached=is_detached)
        said = {name: str(spec[name]) for name in ("purged_rows", "columns", "versioned", "before")}
        AuditLog(self._control).add("purge.order", {"job": job.id, **said})
        return job

    def unfinished(self, job: Job) -> list[UUID]:
        """Rows that were begun and not finished.

        They are barred, some of their cells may be readable, and bodies of others stand in the audit table.
        """
        return [row for part in self.jobs.begun(job.id) for row in unfinished_rows(*part)]

    def runner(
        self,
        job: Job,
        worker: str,
        *,
        settle_seconds: float = SETTLE_SECONDS,
        replica_seconds: float = REPLICA_SECONDS,
    ) -> PurgeRunner:
        """What serves a job, as a worker of this name."""
        order = order_of(job)
        return PurgeRunner(
            self.jobs,
            job.id,
            self._purges.of_job(job.id),
            self._replicas,
            order.columns,
            worker,
            order.cells_per_second,
            settle_seconds=settle_seconds,
            replica_seconds=replica_seconds,
        )


def order_of(job: Job) -> PurgeOrder:
    """What a job was begun with, but for its rows: its parts name them."""
    match job.spec:
        case {"columns": list(columns), "cells_per_second": rate, "processes": int(processes)}:
            names = tuple(str(name) for name in columns)
            return PurgeOrder((), names, None, None if rate is None else float(str(rate)), processes)
    raise InvalidRequest(f"{job.id} is of another version of tripstore.", hint="Begin a new one: `tripstore purge`.")


def _last_of(part: Json) -> int:
    match part:
        case {"superseded": [_, int(last)]}:
            return last
    return 0


def _portions(listed: Sequence[T], size: int) -> list[Sequence[T]]:
    return [listed[first : first + size] for first in range(0, len(listed), size)]
