"""Which workers are alive, for a command that is no worker: by their counters and the command's own clock."""

from __future__ import annotations

import time
from collections.abc import Callable

from schemaless_core.triggers.leases.coordinator import Coordinator

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
    tells that no worker serves.
    """
    counters = _counters(coordinator)
    silent, now = set(counters), counters
    give_up_at = clock() + lease_seconds
    while silent and clock() < give_up_at:
        sleep(LOOK_SECONDS)
        now = _counters(coordinator)
        silent = {worker for worker in silent if now.get(worker) == counters[worker]}
    return set(now) - silent


class Pulse:
    """Whether any worker serves a group, for a command that looks now and then while it does other work."""

    def __init__(
        self,
        coordinator: Coordinator,
        group: str,
        lease_seconds: float,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._coordinator = coordinator
        self._group = group
        self._lease_seconds = lease_seconds
        self._clock = clock
        self._counters: dict[str, int] | None = None
        self._beat_at = 0.0

    def is_missing(self) -> bool:
        """Look once. True when no worker announces the group, or none of them has beaten for `lease_seconds`."""
        found = {each.worker: each.counter for each in self._coordinator.survey().workers if self._group in each.groups}
        if self._counters is None or any(self._counters.get(worker) != count for worker, count in found.items()):
            self._beat_at = self._clock()
        self._counters = found
        return not found or self._clock() - self._beat_at >= self._lease_seconds


def _counters(coordinator: Coordinator) -> dict[str, int]:
    return {record.worker: record.counter for record in coordinator.survey().workers}
