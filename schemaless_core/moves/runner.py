"""`MoveRunner`: claims shards of a job, and moves one after the other.

Any number of them serve a job, in as many processes. What one has left closed, the next one that claims the shard opens
again, here or there.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple, Protocol

from schemaless_core import metrics
from schemaless_core.cell.canonical import Json
from schemaless_core.control.jobs.held_part import HeldPart
from schemaless_core.control.jobs.jobs import Jobs
from schemaless_core.control.jobs.part_worker import PartWorker
from schemaless_core.control.jobs.records import Finding, JobState, Part
from schemaless_core.errors import CopyDiffers, InvalidServer, LogHole, MoveRefused, SchemalessError, Unavailable
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
#: The same of times that the shard was closed in vain: each is a pause of its puts.
STAYS = 3
#: Between two times that it tells how fast it copies.
TELL_SECONDS = 2.0

#: At which a move may be left, as long as the shard takes writes.
_MAY_END = (steps.READ, steps.PREPARE, steps.BEGIN, steps.PRACTISE, steps.LEAVE)
#: What may be otherwise in a moment. Of other errors an operator hears at once.
_PASSING = (Unavailable, CopyDiffers, LogHole, MoveRefused)

#: A shard that stayed where it was, and why.
NOT_MOVED = "not_moved"


class MoveRun(Protocol):
    """One shard's move."""

    def run(self, hear: Callable[[Step], None]) -> Moved | MoveStopped:
        """Do it as far as it goes."""
        ...

    def give_up(self) -> Moved | MoveStopped:
        """Have the shard stay, if it is not decided that it goes; else end the move."""
        ...

    def is_settled(self) -> bool:
        """Whether none of this shard to this cluster is under way, as far as is known."""
        ...

    @property
    def is_closed(self) -> bool:
        """Whether the shard takes no writes, as far as this move knows."""
        ...

    def silence(self, cluster: str) -> str:
        """Why a cluster did not do what was asked, the last time; empty: it did."""
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


class _Copied:
    """What a move has copied since this was asked last. The thread that renews the lease asks, and then the runner."""

    def __init__(self, move: MoveRun) -> None:
        self._move = move
        self._told = 0

    def __call__(self) -> dict[str, int]:
        before, self._told = self._told, self._move.cells
        return {"cells": self._told - before, "rows": self._told - before}


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
        #: When it told how fast it copies, and how much it had copied by then.
        self._told = (time.monotonic(), 0)

    def _serve(self, held: HeldPart) -> None:
        order = order_of(held.part.bounds)
        move = self._run_of(order)
        copied, self._told = _Copied(move), (time.monotonic(), 0)
        with held.kept_alive(copied):
            try:
                result = self._result(move, order, held)
            except _Ended:
                self._end(move, held)
                return
        outcome = "moved" if isinstance(result, Moved) else "stayed"
        metrics.shard_moved(outcome, move.seconds_closed)
        counts = {outcome: 1, "milliseconds_closed": round(1000 * move.seconds_closed), **copied()}
        findings = [] if isinstance(result, Moved) else [_finding(order, result, move)]
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

    def _result(self, move: MoveRun, order: ShardOrder, held: HeldPart) -> Moved | MoveStopped | SchemalessError:
        """Move the shard, or leave it open where it is."""
        tries = stays = 0
        while True:
            result = self._tried(partial(move.run, partial(self._heard, held, move)))
            tries += 1
            if isinstance(result, Moved):
                return result
            if isinstance(result, InvalidServer) and result.lacks_right:
                raise result  # a worker with another login may serve the part; this one leaves it
            stays += isinstance(result, MoveStopped) and result.why is MoveStop.STAYED
            if stays == STAYS or self._is_final(result, tries):
                if self._has_lost(held):
                    raise _Ended  # the move is another worker's, which a stalled one would undo
                ended = result if move.is_settled() else self._tried(move.give_up)
                if isinstance(ended, Moved) and ended.placed.cluster == order.to:
                    return ended
                if move.is_settled():
                    return result
            if not move.is_closed and not self._may_go_on(held):
                raise _Ended  # what is decided is carried out by the next worker
            self._sleep(PAUSE_SECONDS)

    def _end(self, move: MoveRun, held: HeldPart) -> None:
        """Leave a shard that takes writes; of a job that was cancelled its move is given up."""
        if held.is_lost:
            self._lost(held.part)
        with suppress(SchemalessError):  # the command that cancels gives it up, too
            if self._jobs.state(self._job) is JobState.CANCELLED and not move.is_settled():
                move.give_up()

    def _tried(self, run: Callable[[], Moved | MoveStopped]) -> Moved | MoveStopped | SchemalessError:
        try:
            return run()
        except SchemalessError as error:
            extra = {"event": "move.failed", "job": self._job, "reason": error.message}
            logger.warning("a move is gone on with in a moment", extra=extra)
            return error

    def _heard(self, held: HeldPart, move: MoveRun, step: Step) -> None:
        """A shard that takes writes may be left at any page."""
        self._tell_pace(move)
        if step in _MAY_END and not self._may_go_on(held):
            raise _Ended
        # What was cancelled has been given up: asked anew, since the lease tells of it only now and then.
        if step in (steps.BEGIN, steps.LEAVE) and self._jobs.state(self._job) is not JobState.RUNNING:
            raise _Ended

    def _tell_pace(self, move: MoveRun) -> None:
        (at, cells), now = self._told, time.monotonic()
        if now - at >= TELL_SECONDS:
            self._told = (now, move.cells)
            self._tell((move.cells - cells) / (now - at))

    def _may_go_on(self, held: HeldPart) -> bool:
        return held.may_go_on and not held.is_lost and not self._is_stopped.is_set()

    def _has_lost(self, held: HeldPart) -> bool:
        """Asked anew: the thread that renews the lease may have slept as well."""
        with suppress(SchemalessError):  # without an answer no move can be given up
            return held.is_lost or not self._jobs.holds(held.part, self._worker)
        return False

    def _is_final(self, result: MoveStopped | SchemalessError, tries: int) -> bool:
        if isinstance(result, MoveStopped):
            is_clear = result.why in (MoveStop.NEAR, MoveStop.OTHER)
        else:
            is_clear = not isinstance(result, _PASSING)
        return is_clear or tries >= TRIES

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


def _finding(order: ShardOrder, result: MoveStopped | SchemalessError, move: MoveRun) -> Finding:
    if isinstance(result, SchemalessError):
        reason = result.message.rstrip(".")
    else:
        silence = move.silence(result.cluster).rstrip(".") if result.why is MoveStop.SILENT else ""
        reason = _WHY[result.why].format(result.cluster) + (f" ({silence})" if silence else "")
    return Finding(NOT_MOVED, body={"shard": order.shard, "cluster": order.to, "reason": reason})
