"""Draining: the mirror carried by whoever asks, until the other backend has everything, or until it is said what stops.

Others may carry meanwhile; whatever they have claimed is carried, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from schemaless_core.errors import SchemalessError
from tripstore.backends.postgres.handover.queue import QueueLook
from tripstore.mirror.carrier import Carrier
from tripstore.mirror.pace import POLL_SECONDS, Pace
from tripstore.mirror.status import Reverse

#: How often it is asked how far the reverse mirror is.
LOOK_SECONDS = 0.1


class Drained(NamedTuple):
    """How it ended: what is left, and why (empty: nothing is left)."""

    carried: int
    left: int
    parked: int
    reason: str

    @property
    def is_empty(self) -> bool:
        return not self.left and not self.parked


def drain_forward(
    carrier: Carrier,
    look: Callable[[], QueueLook],
    patience_seconds: float,
    *,
    tell: Callable[[int, int], None] = lambda carried, left: None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> Drained:
    """Carry the queue until nothing but parked changes is in it; give up when nothing moves for so long."""
    pace, carried, moved_at, reason = Pace(), 0, clock(), "Schemaless does not take them"
    while True:
        seen = look()
        left = seen.queued - seen.parked
        tell(carried, left)
        if not left:
            return Drained(carried, 0, seen.parked, "changes are parked" if seen.parked else "")
        started = clock()
        try:
            outcome = carrier.carry(pace.limit, from_others=True)
            rest_seconds = pace.after(outcome, clock() - started)
            carried += outcome.delivered
            is_moving = not outcome.is_stuck
        except SchemalessError as error:
            rest_seconds, is_moving, reason = pace.after_failure(), False, error.message
        if is_moving:
            moved_at = clock()
        elif clock() - moved_at > patience_seconds:
            return Drained(carried, left, seen.parked, reason)
        sleep(max(rest_seconds, POLL_SECONDS))


def drain_reverse(
    look: Callable[[], Reverse],
    patience_seconds: float,
    *,
    tell: Callable[[int, int], None] = lambda carried, left: None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> Drained:
    """Wait until the reverse mirror has passed every cell, while somebody serves it; give up when nothing moves."""
    first, least, moved_at = None, None, clock()
    while True:
        seen = look()
        first = seen.cells if first is None else first
        if least is None or seen.cells < least:
            least, moved_at = seen.cells, clock()
        carried = max(first - seen.cells, 0)
        tell(carried, seen.cells)
        if not seen.cells and not seen.unknown:
            return Drained(carried, 0, seen.parked, "cells are parked" if seen.parked else "")
        if seen.halted:
            return Drained(carried, seen.cells, seen.parked, f"the group is halted: {seen.halted}")
        if clock() - moved_at > patience_seconds:
            reason = (
                f"the servers of {seen.unknown} shards do not answer" if seen.unknown else "Postgres does not take them"
            )
            return Drained(carried, seen.cells, seen.parked, reason)
        sleep(LOOK_SECONDS)
