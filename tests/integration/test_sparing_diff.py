"""A diff that is spared: it reads by turns and finds the same, goes slowly while services wait, and can be stopped."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from schemaless_core.control.jobs.jobs import Job, JobState
from schemaless_core.errors import InvalidRequest
from tests.chaos.actors import wait_until
from tests.facades import Migration, migration
from tests.sparing import (
    CONTENDED,
    DEADLINE_SECONDS,
    LIMIT_SECONDS,
    NO_ANSWER,
    PROBE,
    PROBING,
    RELEASED,
    WIDE,
    chill,
    seen,
    services_wait,
)
from tests.stores import Stores
from tripstore.backends.postgres.wire.own_reads import OwnReads
from tripstore.engines.backfill import latency_limit
from tripstore.engines.validation.diff.runner import KIND
from tripstore.local.servers import LocalServers
from tripstore.migration.backfill.backfill import Backfill, Wanted
from tripstore.migration.diff import spared
from tripstore.migration.diff.diff import Diffing
from tripstore.migration.diff.order import Order
from tripstore.phase import Phase

TRIPS = 300
ROWS_PER_TURN = 5
BLOCKS_MAX = 40
ALONE: dict[str, Any] = {"indexes": False, "decoded": 0}


@pytest.fixture(params=["postgres", "postgres18"], scope="module")
def made(request: pytest.FixtureRequest, servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    """Both stores are equal, and no test changes them. A probe stands in the configuration, and no limit on it."""
    configured = {"probe": PROBE, "probe_deadline_seconds": DEADLINE_SECONDS}
    with migration(servers, stores, postgres=request.param, shards=4, throttle=configured) as opened:
        opened.legacy.sql(CONTENDED)
        opened.legacy.sql(WIDE.format(trips=TRIPS))
        opened.phase(Phase.DUALWRITE)
        backfill = Backfill(opened.facade)
        backfill.runner(backfill.begin(backfill.plan(Wanted())), "past").run()
        yield opened


@pytest.fixture
def diffing(made: Migration, monkeypatch: pytest.MonkeyPatch) -> Diffing:
    monkeypatch.setattr(spared, "ROWS_PER_TURN", ROWS_PER_TURN)
    monkeypatch.setattr(spared, "ROWS_RESTING", ROWS_PER_TURN)
    # Beside services that wait it does not end while a test looks, and afterwards at once.
    monkeypatch.setattr(latency_limit, "SHARE_MIN", 0.0005)
    monkeypatch.setattr(latency_limit, "GROWTH", 10_000)
    return Diffing(made.facade)


def begun(diffing: Diffing, **order: Any) -> Job:
    return diffing.begin(diffing.plan(Order(**(ALONE | order))))


def counts(diffing: Diffing, job: Job) -> dict[str, int]:
    return dict(diffing.jobs.progress(job.id).counts)


@contextmanager
def compared(diffing: Diffing, job: Job, workers: int = 1) -> Iterator[list[Any]]:
    runners = [diffing.runner(job, f"w{number}") for number in range(workers)]
    with ThreadPoolExecutor(workers) as pool:
        endings = [pool.submit(each.run) for each in runners]
        try:
            yield endings
        finally:
            for each in runners:
                each.stop()


def test_it_compares_the_same_by_turns_as_at_one_go(made: Migration, diffing: Diffing) -> None:
    """Older versions too, which are read by row key."""
    free = begun(diffing, older=1.0, decoded=10)
    limited = begun(diffing, older=1.0, decoded=10, blocks_max=100_000)
    assert diffing.runner(free, "w").run() is JobState.DONE
    turned = diffing.runner(limited, "w")
    assert turned.run() is JobState.DONE

    assert counts(diffing, limited) == counts(diffing, free)
    assert counts(diffing, free)["rows"] >= 2 * TRIPS
    assert limited.spec["blocks_max"] == 100_000
    assert not any(name in free.spec for name in ("blocks_max", *PROBING))


def test_beside_services_that_wait_it_goes_slowly_says_why_and_ends_when_they_do_not(
    made: Migration, diffing: Diffing
) -> None:
    """Control: without the limit all is compared while they wait."""
    free, job = begun(diffing), begun(diffing, probe_seconds_max=LIMIT_SECONDS)
    with services_wait(made):
        assert diffing.runner(free, "free").run() is JobState.DONE
        with compared(diffing, job) as endings:
            wait_until("it says which limit holds", lambda: seen(diffing.jobs, job.id).limits == ["probe"])
            assert seen(diffing.jobs, job.id).throttles == [NO_ANSWER]
            assert counts(diffing, job) == {}
            assert not endings[0].done()
            made.legacy.sql(RELEASED)
            wait_until("it is done when they wait no more", lambda: endings[0].done())
            assert endings[0].result() is JobState.DONE
    assert counts(diffing, job) == counts(diffing, free)


def test_one_that_is_stopped_in_the_midst_of_a_pass_gives_its_part_back_and_is_resumed(
    made: Migration, diffing: Diffing
) -> None:
    """A pass that is spared may take for hours: it is given up, where one at full speed is finished."""
    job = begun(diffing, probe_seconds_max=LIMIT_SECONDS)
    with services_wait(made):
        with compared(diffing, job) as endings:
            wait_until("the limit holds", lambda: seen(diffing.jobs, job.id).limits == ["probe"])
        assert endings[0].result(20) is JobState.RUNNING
        progress = diffing.jobs.progress(job.id)
        assert (progress.parts_claimed, progress.parts_done, progress.workers) == (0, 0, ())
        paused = diffing.runner(job, "paused")
        diffing.jobs.pause(KIND, job.id)
        assert paused.run() is JobState.PAUSED
    found = diffing.jobs.resume(KIND, job.id)
    assert diffing.runner(found, "again").run() is JobState.DONE
    assert counts(diffing, job)["rows"] >= 2 * TRIPS


def test_a_probe_that_cannot_be_run_any_more_pauses_it(made: Migration, diffing: Diffing) -> None:
    job = begun(diffing, probe_seconds_max=LIMIT_SECONDS)
    made.legacy.sql("ALTER TABLE contended RENAME TO renamed")
    try:
        with pytest.raises(InvalidRequest, match='relation "contended" does not exist'):
            diffing.plan(Order(**ALONE, probe_seconds_max=LIMIT_SECONDS))
        assert diffing.runner(job, "w").run() is JobState.PAUSED
        assert 'relation "contended" does not exist' in diffing.jobs.find(KIND, job.id).why
        free = msgspec.structs.replace(job, spec={**job.spec, "probe_seconds_max": 0})
        diffing.jobs.resume(KIND, job.id)
        assert diffing.runner(free, "free").run() is JobState.DONE, "a command's own limit is none"
    finally:
        made.legacy.sql("ALTER TABLE renamed RENAME TO contended")


@pytest.mark.parametrize("is_counted", [True, False], ids=["counted", "control"])
def test_workers_together_read_no_more_blocks_than_they_may(
    made: Migration, diffing: Diffing, monkeypatch: pytest.MonkeyPatch, *, is_counted: bool
) -> None:
    """The rows that are compared are counted by Postgres as well, and that is a part of it."""
    job = begun(diffing, blocks_max=BLOCKS_MAX, processes=2)
    chill(made, "trips")
    read: list[int] = []
    since = OwnReads.since

    def counted(own: OwnReads) -> int:
        read.append(since(own))
        return read[-1] if is_counted else 0

    monkeypatch.setattr(OwnReads, "since", counted)
    began, limits = time.monotonic(), set[str]()
    with compared(diffing, job, workers=2) as endings:

        def are_done() -> bool:
            limits.update(seen(diffing.jobs, job.id).limits)
            return all(each.done() for each in endings)

        wait_until("all is compared", are_done, 60)
    seconds = time.monotonic() - began

    assert {each.result() for each in endings} == {JobState.DONE}
    assert counts(diffing, job)["rows"] >= 2 * TRIPS
    assert sum(read) >= TRIPS / 10
    if is_counted:
        assert sum(read) <= BLOCKS_MAX * seconds + 200, (sum(read), seconds)
        assert limits == {"blocks"}
