"""`CompressionRunner`: claims shards of a job and has their cells stored as puts store them now, step by step.

A step that is repeated finds nothing to do, and what a step does changes no cell: a worker may be killed at any line.
"""

from __future__ import annotations

import logging
import time

from schemaless_core import metrics
from schemaless_core.cell.canonical import Json
from schemaless_core.cell.standing import Gate
from schemaless_core.control.jobs.held_part import HeldPart
from schemaless_core.control.jobs.jobs import Jobs
from schemaless_core.control.jobs.part_worker import PartWorker
from schemaless_core.control.jobs.records import Part
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import Node
from schemaless_core.engine.turning import Turned
from schemaless_core.errors import InvalidRequest, StaleEpoch, Unavailable
from schemaless_core.failpoints import reach
from schemaless_core.servers.shard_primaries import ShardPrimaries

logger = logging.getLogger(__name__)

KIND = "compress"
LEASE_SECONDS = 30.0
#: Cells that are read at once, and whose bodies one statement may change.
CELLS_PER_STEP = 200
#: Times that a step is tried whose server does not answer, and the pause before the second.
TRIES = 5
PAUSE_SECONDS = 0.2


class CompressionRunner(PartWorker):
    """One worker of one job."""

    def __init__(
        self, jobs: Jobs, job: str, primaries: ShardPrimaries, worker: str, cells_per_second: float | None
    ) -> None:
        super().__init__(jobs, job, worker, LEASE_SECONDS)
        self._primaries = primaries
        self._cells_per_second = cells_per_second

    def _serve(self, held: HeldPart) -> None:
        shard, last = place_of(self._job, held.part.bounds)
        begin = at = reached_by(held.part.checkpoint)
        while at < last and held.may_go_on and not self._is_stopped.is_set():
            begun = time.monotonic()
            with held.kept_alive():
                turned = self._tried(shard, at, last, is_first=at == begin)
                if turned is None:
                    return
                looked = turned.reached - at
                self._rest(looked, time.monotonic() - begun)
            at = turned.reached
            metrics.cells_turned(turned.cells)
            counts = {
                "rows": looked,
                "cells": turned.cells,
                "bytes_before": turned.bytes_before,
                "bytes_after": turned.bytes_after,
            }
            reach("compress.before_save")
            held.save({"at": at}, counts, [], (), is_done=at >= last)
            reach("compress.saved")
            self._tell(looked / max(time.monotonic() - begun, 1e-6))

    def _lost(self, part: Part) -> None:
        extra = {"event": "compress.part_lost", "job": self._job, "part": part.number}
        logger.warning("another worker has the part by now", extra=extra)

    def _tried(self, shard: int, at: int, last: int, *, is_first: bool) -> Turned | None:
        """None: it was to end meanwhile. The first step goes by the dictionaries of now, whatever is known here."""

        def turn(node: Node, gate: Gate, deadline: Deadline) -> Turned:
            if is_first:
                node.bodies.look_again()
            return node.turning.turn(gate, at, last, CELLS_PER_STEP, deadline)

        for n in range(TRIES):
            try:
                return self._primaries.write(shard, turn)
            except (Unavailable, StaleEpoch):
                if n + 1 == TRIES:
                    raise
                if self._is_stopped.wait(PAUSE_SECONDS * 2**n):
                    return None
        raise AssertionError("the last attempt returns or raises")

    def _rest(self, cells: int, seconds: float) -> None:
        """As long as it takes to have been no faster than was asked for."""
        if self._cells_per_second is not None:
            self._is_stopped.wait(max(cells / self._cells_per_second - seconds, 0.0))


def place_of(job: str, bounds: Json) -> tuple[int, int]:
    """The shard of a part, and its head when the job was planned: what came later was stored by puts of now."""
    match bounds:
        case {"shard": int(shard), "last": int(last)}:
            return shard, last
    raise InvalidRequest(f"{job} is of another version of tripstore.", hint="Begin a new one.")


def reached_by(checkpoint: Json) -> int:
    match checkpoint:
        case {"at": int(at)}:
            return at
    return 0
