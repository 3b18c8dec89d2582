"""What an operator asks moves for, and which jobs have which shards. A shard belongs to one unended job at most."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from schemaless_core.control.jobs.jobs import Job, JobState
from schemaless_core.errors import InvalidRequest

#: For how long a shard may take no writes; a put waits so long, or is buffered.
HOLD_SECONDS = 0.8


class MoveOrder(NamedTuple):
    """What an operator asks for."""

    shards: tuple[int, ...]
    to: str
    hold_seconds: float = HOLD_SECONDS
    cells_per_second: float | None = None


def order_of_job(job: Job) -> MoveOrder:
    """What a job was begun with."""
    match job.spec:
        case {"shards": list(shards), "to": str(to), "hold_seconds": float() | int() as hold, "cells_per_second": rate}:
            return MoveOrder(
                tuple(int(str(shard)) for shard in shards), to, float(hold), None if rate is None else float(str(rate))
            )
    raise InvalidRequest(f"{job.id} is of another version of tripstore.", hint="Move its shards by number.")


def shards_of_others(jobs: Iterable[Job], own: str) -> dict[str, set[int]]:
    """By job, of those that have not ended and are not one's own."""
    return {
        job.id: set(order_of_job(job).shards)
        for job in jobs
        if job.id != own and job.state in (JobState.RUNNING, JobState.PAUSED)
    }


def taken_by_others(jobs: Iterable[Job], shards: Collection[int], own: str) -> list[str]:
    """What refuses an order: two jobs with one shard would take its copy from each other."""
    both = {job: sorted(theirs.intersection(shards)) for job, theirs in shards_of_others(jobs, own).items()}
    return [
        f"Shards {', '.join(map(str, shared))} are part of {job}: go on with that, or cancel it."
        for job, shared in both.items()
        if shared
    ]


def mover_of(jobs: Iterable[Job], shard: int, to: str) -> Job | None:
    """The first of these jobs that moves a shard to a cluster."""
    orders = ((job, order_of_job(job)) for job in jobs)
    return next((job for job, order in orders if order.to == to and shard in order.shards), None)


def cancelling(job: Job) -> str:
    """What an operator does to end what a job has left."""
    return f"run `tripstore shards move --cancel {job.id}`"
