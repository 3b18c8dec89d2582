"""`MoveRunner`: claims shards of a job, and moves one after the other.

Any number of them serve a job, in as many processes. What one has left closed, the next one that claims the shard opens
again, here or there.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

from schemaless_core import metrics
from schemaless_core.cell.canonical import Json
from schemaless_core.control.jobs.held_part import HeldPart
from schemaless_core.control.jobs.jobs import Jobs
from schemaless_core.control.jobs.part_worker import PartWorker
from schemaless_core.control.jobs.records import Finding, Part
from schemaless_core.errors import CopyDiffers, LogHole, MoveRefused, SchemalessError, Unavailable
from schemaless_core.moves import steps
from schemaless_core.moves.steps import Moved, MoveStop, MoveStopped
from schemaless_core.steps import Step

logger = logging.getLogger(__name__)

KIND = "move"
#: A mover that died has left a shard closed for so long, at most, where another one serves the job.
LEASE_SECONDS = 5.0
#: Between two times that a move is gone on with that stopped.
PAUSE_SECONDS = 0.2
#: Such times until a person is asked. Where the shard is closed it is gone on with for ever.
TRIES = 25

#: A shard that stayed where it was, and why.
NOT_MOVED = "not_moved"


class MoveRun(Protocol):
    """One shard's move."""

    def run(self, hear: Callable[[Step], None]) -> Moved | MoveStopped:
        """Do it as far as it goes."""
        ...

    def is_settled(self) -> bool:
        """Whether the shard is open somewhere, and no decision is left to be carried out."""
        ...

    @property
    def cells(self) -> int:
        """Cells copied so far."""
        ...

    @property
    def seconds_closed(self) -> float:
        """How long the shard took no writes, the last time."""
        ...


class _Ended(Exception):
    """The worker is to end, or the job was paused, while the shard is open."""


class ShardOrder(NamedTuple):
    """A part of a job."""

    shard: int
    to: str


class MoveRunner(PartWorker):
    """One worker of one job."""

    def __init__(
        self,
        jobs: Jobs,
        job: str,
        worker: str,
        run_of: Callable[[ShardOrder], MoveRun],
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        super().__init__(jobs, job, worker, LEASE_SECONDS)
        self._run_of = run_of
        self._sleep = sleep

    def _serve(self, held: HeldPart) -> None:
        order = order_of(held.part.bounds)
        move = self._run_of(order)
        outcome, tries = "stopped", 0
        with held.kept_alive():
            try:
                while True:
                    result = self._tried(move, held)
                    tries += 1
                    if isinstance(result, Moved):
                        outcome = "moved"
                        break
                    if self._is_final(result, tries) and move.is_settled():
                        outcome = "stayed"
                        break
                    self._sleep(PAUSE_SECONDS)
            except _Ended:
                return
        metrics.shard_moved(outcome, move.seconds_closed)
        counts = {outcome: 1, "cells": move.cells, "milliseconds_closed": round(1000 * move.seconds_closed)}
        findings = [] if isinstance(result, Moved) else [_finding(order, result)]
        checkpoint: Json = {"closed_seconds": round(move.seconds_closed, 4)}
        held.save(checkpoint, counts, findings, is_done=True)
        extra = {
            "event": "move.ended",
            "shard": order.shard,
            "cluster": order.to,
            "outcome": outcome,
            "cells": move.cells,
            "seconds_closed": round(move.seconds_closed, 3),
        }
        logger.info("a move has ended", extra=extra)

    def _tried(self, move: MoveRun, held: HeldPart) -> Moved | MoveStopped | SchemalessError:
        try:
            return move.run(lambda step: self._heard(step, held))
        except (Unavailable, CopyDiffers, LogHole, MoveRefused) as error:
            extra = {"event": "move.failed", "job": self._job, "reason": error.message}
            logger.warning("a move is gone on with in a moment", extra=extra)
            return error

    def _heard(self, step: Step, held: HeldPart) -> None:
        """A shard that takes writes may be left at any page."""
        if step in (steps.READ, steps.PREPARE, steps.BEGIN) and not self._may_go_on(held):
            raise _Ended

    def _may_go_on(self, held: HeldPart) -> bool:
        return held.may_go_on and not self._is_stopped.is_set()

    def _is_final(self, result: MoveStopped | SchemalessError, tries: int) -> bool:
        is_clear = isinstance(result, MoveStopped) and result.why in (MoveStop.NEAR, MoveStop.OTHER)
        return is_clear or tries >= TRIES or self._is_stopped.is_set()

    def _lost(self, part: Part) -> None:
        extra = {"event": "move.part_lost", "job": self._job, "part": part.number}
        logger.warning("another worker has the shard by now", extra=extra)


def order_of(bounds: Json) -> ShardOrder:
    match bounds:
        case [int(shard), str(to)]:
            return ShardOrder(shard, to)
    raise AssertionError("a part of a move names its shard and its cluster")


_WHY = {
    MoveStop.SILENT: "cluster {} does not answer, or its replicas are behind",
    MoveStop.OVERTAKEN: "another move of the shard has gone on",
    MoveStop.OTHER: "it is being moved to cluster {}: end that first",
    MoveStop.FENCED: "cluster {} is being promoted",
    MoveStop.STAYED: "its last cells took longer to copy than it may be closed; --hold-ms allows more",
    MoveStop.NEAR: "what is beside its log would take longer to copy than it may be closed; --hold-ms allows more",
}


def _finding(order: ShardOrder, result: MoveStopped | SchemalessError) -> Finding:
    reason = result.message if isinstance(result, SchemalessError) else _WHY[result.why].format(result.cluster)
    return Finding(NOT_MOVED, body={"shard": order.shard, "cluster": order.to, "reason": reason})
