"""Which workers are alive, for a command that is no worker."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from schemaless_core.triggers.leases.coordinator import Coordinator, Survey, WorkerRecord
from schemaless_core.triggers.leases.pulse import Pulse, living_workers
from tests.unit.clock import FakeClock

LEASE_SECONDS = 6.0


def watched(counter_of: Callable[[str, float], int | None], *workers: str) -> tuple[set[str], float]:
    """Who lives, when counters are this function of time, and how long it took to see."""
    clock = FakeClock()
    started = clock()

    def survey() -> Survey:
        counters = {worker: counter_of(worker, clock() - started) for worker in workers}
        records = [
            WorkerRecord(worker, "host", 1, (), count) for worker, count in counters.items() if count is not None
        ]
        return Survey(tuple(records), (), {})

    coordinator = cast(Coordinator, cast(Any, SimpleNamespace(survey=survey)))
    living = living_workers(coordinator, LEASE_SECONDS, clock=clock, sleep=clock.advance)
    return living, clock() - started


def test_without_workers_the_look_does_not_wait() -> None:
    assert watched(lambda worker, seconds: None, "a") == (set(), 0.0)


def test_a_worker_that_beats_lives_and_the_look_ends_when_all_have_beaten() -> None:
    living, seconds = watched(lambda worker, seconds: int(seconds / (1 if worker == "a" else 2)), "a", "b")

    assert living == {"a", "b"}
    assert 2.0 <= seconds < 2.5


def test_a_worker_silent_for_a_lease_does_not_live() -> None:
    living, seconds = watched(lambda worker, seconds: int(seconds) if worker == "a" else 7, "a", "b")

    assert living == {"a"}
    assert LEASE_SECONDS <= seconds < LEASE_SECONDS + 0.5


def test_a_worker_that_leaves_meanwhile_does_not_live_and_one_that_comes_does() -> None:
    def counter(worker: str, seconds: float) -> int | None:
        return {"leaves": 1 if seconds < 1 else None, "comes": None if seconds < 1 else 1}[worker]

    assert watched(counter, "leaves", "comes")[0] == {"comes"}


GROUP = "mirror:reverse"


def pulse_of(records: list[WorkerRecord]) -> tuple[Pulse, FakeClock]:
    """Of the workers that the list has by then."""
    clock = FakeClock()
    coordinator = SimpleNamespace(survey=lambda: Survey(tuple(records), (), {}))
    return Pulse(cast(Coordinator, cast(Any, coordinator)), GROUP, LEASE_SECONDS, clock=clock), clock


def beaten(counter: int, *groups: str) -> WorkerRecord:
    return WorkerRecord("a", "host", 1, groups, counter)


def test_a_worker_that_does_not_serve_the_group_is_missing_at_once() -> None:
    assert pulse_of([])[0].is_missing()
    assert pulse_of([beaten(1, "index:x:v1")])[0].is_missing()


def test_a_worker_that_beats_is_there_and_one_that_was_killed_is_missing_after_a_lease() -> None:
    records = [beaten(1, GROUP)]
    pulse, clock = pulse_of(records)

    for counter in range(2, 10):
        assert not pulse.is_missing()
        clock.advance(LEASE_SECONDS / 2)
        records[:] = [beaten(counter, GROUP)]
    assert not pulse.is_missing()
    clock.advance(LEASE_SECONDS)
    assert pulse.is_missing()
    records[:] = [beaten(10, GROUP)]
    assert not pulse.is_missing()
