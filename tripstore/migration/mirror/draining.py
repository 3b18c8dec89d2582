"""Draining: the caller carries the mirror itself until the other backend has everything, or says what stops it.

Relays may carry meanwhile; whatever they have claimed is carried, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from schemaless_core.errors import SchemalessError
from tripstore.backends.postgres.handover.queue import QueueLook
from tripstore.migration.mirror.carrier import Carrier
from tripstore.migration.mirror.pace import POLL_SECONDS, RelayPace
from tripstore.migration.mirror.status import ReverseStatus

#: How often it is asked how far the reverse mirror is.
LOOK_SECONDS = 0.1


#: Told how many are carried, how many are left, and why none is carried just now; empty: they are.
Tell = Callable[[int, int, str], None]


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
    tell: Tell = lambda carried, left, why: None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> Drained:
    """Carry the queue until nothing but parked changes is in it; give up when nothing moves for so long."""
    pace, carried, moved_at, why = RelayPace(), 0, clock(), ""
    while True:
        seen = look()
        left = seen.queued - seen.parked
        tell(carried, left, why)
        if not left:
            return Drained(carried, 0, seen.parked, "changes are parked" if seen.parked else "")
        started = clock()
        try:
            outcome = carrier.carry(pace.limit, from_others=True)
            rest_seconds = pace.after(outcome, clock() - started)
            carried += outcome.delivered
            why = "Schemaless does not take them" if outcome.is_stuck else ""
        except SchemalessError as error:
            rest_seconds, why = pace.after_failure(), error.message
        if not why:
            moved_at = clock()
        elif clock() - moved_at > patience_seconds:
            return Drained(carried, left, seen.parked, why)
        sleep(max(rest_seconds, POLL_SECONDS))


def drain_reverse(
    look: Callable[[], ReverseStatus],
    patience_seconds: float,
    *,
    tell: Tell = lambda carried, left, why: None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> Drained:
    """Wait until the reverse mirror has passed every cell, while a worker serves it; give up when nothing moves."""
    first, least, moved_at = None, None, clock()
    while True:
        seen = look()
        first = seen.cells if first is None else first
        if least is None or seen.cells < least:
            least, moved_at = seen.cells, clock()
        carried = max(first - seen.cells, 0)
        why = f"the servers of {seen.unknown} shards do not answer" if seen.unknown else ""
        tell(carried, seen.cells, why)
        if not seen.cells and not seen.unknown:
            return Drained(carried, 0, seen.parked, "cells are parked" if seen.parked else "")
        if seen.halted:
            return Drained(carried, seen.cells, seen.parked, f"the group is halted: {seen.halted}")
        if clock() - moved_at > patience_seconds:
            return Drained(carried, seen.cells, seen.parked, why or "Postgres does not take them")
        sleep(LOOK_SECONDS)
