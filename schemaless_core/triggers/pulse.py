"""Which workers are alive, as somebody sees who looks for a moment only: by their counters and the own clock."""

from __future__ import annotations

import time
from collections.abc import Callable

from schemaless_core.triggers.coordinator import Coordinator

LOOK_SECONDS = 0.1


def living_workers(
    coordinator: Coordinator,
    lease_seconds: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> set[str]:
    """Return the workers that beat while we looked: until all have, at most for `lease_seconds`.

    A lease names an owner until a leader takes it away. When all workers were killed there is no leader, and only this
    tells that nobody serves.
    """
    counters = _counters(coordinator)
    silent, now = set(counters), counters
    give_up_at = clock() + lease_seconds
    while silent and clock() < give_up_at:
        sleep(LOOK_SECONDS)
        now = _counters(coordinator)
        silent = {worker for worker in silent if now.get(worker) == counters[worker]}
    return set(now) - silent


def _counters(coordinator: Coordinator) -> dict[str, int]:
    return {record.worker: record.counter for record in coordinator.survey().workers}
