"""Jobs that slow down by what hurts: a backfill beside services that wait, and blocks that Postgres reads for it."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import msgspec
import pytest

from schemaless_core.control.jobs.jobs import Job
from schemaless_core.control.paces import SharedPace
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
    heap_blocks,
    seen,
    services_wait,
)
from tests.stores import Stores
from tripstore.backends.postgres.cells.past import plan
from tripstore.backends.postgres.cells.past.reader import PastReader
from tripstore.backends.postgres.errors import LegacyUnavailable
from tripstore.backends.postgres.wire import own_reads, probe
from tripstore.backends.postgres.wire.own_reads import OwnReads
from tripstore.config import load_config
from tripstore.engines.backfill import latency_limit
from tripstore.engines.backfill.block_limit import TURN_SECONDS
from tripstore.engines.backfill.runner import Ending, Runner
from tripstore.handover.ports import Chunk
from tripstore.local.servers import LocalServers
from tripstore.migration.backfill.backfill import KIND, Backfill, Wanted
from tripstore.migration.backfill.walk import WalkKind
from tripstore.phase import Phase
from tripstore.store import TripStore
from tripstore.wiring import build

TRIPS = 600
CHUNK_ROWS = 20
BLOCKS_MAX = 40


@pytest.fixture(params=["postgres", "postgres18"], scope="module")
def made(request: pytest.FixtureRequest, servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    """A probe stands in the configuration, and no limit on it."""
    configured = {"probe": PROBE, "probe_deadline_seconds": DEADLINE_SECONDS}
    with migration(servers, stores, postgres=request.param, backfill={"parts": 4}, throttle=configured) as opened:
        opened.legacy.sql(CONTENDED)
        opened.legacy.sql(WIDE.format(trips=TRIPS))
        opened.phase(Phase.DUALWRITE)
        yield opened


@pytest.fixture
def backfill(made: Migration, monkeypatch: pytest.MonkeyPatch) -> Backfill:
    monkeypatch.setattr(latency_limit, "GROWTH", 10)  # that it grows step by step is another test's
    return Backfill(made.facade)


def begun(backfill: Backfill, **wanted: Any) -> Job:
    return backfill.begin(backfill.plan(Wanted(verify=0.0, **wanted)))


def rows(backfill: Backfill, job: Job) -> int:
    return backfill.jobs.progress(job.id).counts.get("rows", 0)


@contextmanager
def running(backfill: Backfill, *runners: Runner) -> Iterator[list[Future[Ending]]]:
    """Each in a thread; they are stopped at the end of the block."""
    with ThreadPoolExecutor(len(runners)) as pool:
        endings = [pool.submit(each.run) for each in runners]
        try:
            yield endings
        finally:
            for each in runners:
                each.stop()


def is_held_by(backfill: Backfill, job: Job, limit: str) -> bool:
    return limit in seen(backfill.jobs, job.id).limits


def test_beside_services_that_wait_a_trickle_is_copied_and_the_rest_when_they_do_not(
    made: Migration, backfill: Backfill, caplog: pytest.LogCaptureFixture
) -> None:
    """Control: without the limit all is copied while they wait."""
    free = begun(backfill, chunk_rows=CHUNK_ROWS)
    job = begun(backfill, chunk_rows=CHUNK_ROWS, probe_seconds_max=LIMIT_SECONDS)
    with services_wait(made):
        assert backfill.runner(free, "free").run() is Ending.DONE
        assert rows(backfill, free) == TRIPS
        with caplog.at_level(logging.INFO), running(backfill, backfill.runner(job, "spared")) as endings:
            wait_until("it says which limit holds", lambda: is_held_by(backfill, job, "probe"))
            (reason,) = seen(backfill.jobs, job.id).throttles
            assert reason == NO_ANSWER
            wait_until("some rows are copied all the same", lambda: rows(backfill, job) >= 3 * CHUNK_ROWS)
            assert rows(backfill, job) < TRIPS / 2
            assert not endings[0].done()
            made.legacy.sql(RELEASED)
            wait_until("it is done when they wait no more", lambda: endings[0].done())
            assert endings[0].result() is Ending.DONE
    assert rows(backfill, job) == TRIPS
    (said,) = [each for each in caplog.records if getattr(each, "event", "") == "jobs.limited"]
    assert (said.__dict__["job"], said.__dict__["limit"]) == (job.id, "probe")


def test_a_job_keeps_its_probe_on_hosts_that_have_none_and_when_it_is_resumed(
    made: Migration, backfill: Backfill
) -> None:
    """What a worker of Dask, or of another host, has is its own configuration. And one over a part of the rows."""
    job = begun(backfill, chunk_rows=CHUNK_ROWS, probe_seconds_max=LIMIT_SECONDS, where="t.status = 'old'")
    document = {key: value for key, value in made.document.items() if key != "throttle"}
    with closing(TripStore(build(load_config(document)))) as store:
        elsewhere = Backfill(store.facade)
        with services_wait(made):
            for number in range(2):
                found = elsewhere.jobs.resume(KIND, job.id)
                with running(elsewhere, elsewhere.runner(found, f"w{number}")) as endings:
                    wait_until("the limit holds", lambda: is_held_by(elsewhere, job, "probe"))
                assert endings[0].result() is Ending.STOPPED
            assert rows(backfill, job) < TRIPS / 2

            given = {**job.spec, "probe_seconds_max": 0}
            free = elsewhere.runner(msgspec.structs.replace(job, spec=given), "free")
            assert free.run() is Ending.DONE, "the control: a command's own limit is none"
        with pytest.raises(InvalidRequest, match="no probe"):
            elsewhere.plan(Wanted(probe_seconds_max=LIMIT_SECONDS))
        without = {**job.spec, "probe": None}
        with pytest.raises(InvalidRequest, match="no probe"):
            elsewhere.runner(msgspec.structs.replace(job, spec=without), "without")


def test_a_probe_that_cannot_be_run_any_more_pauses_the_job_and_says_why(
    made: Migration, backfill: Backfill, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is neither ignored nor waited for without an end. One that cannot be run for the moment is waited for."""
    job = begun(backfill, chunk_rows=CHUNK_ROWS, probe_seconds_max=LIMIT_SECONDS)
    away, measure = LegacyUnavailable("It starts up."), probe.ServiceProbe.measure

    def refuse(_probe: probe.ServiceProbe) -> float:
        raise away

    monkeypatch.setattr(probe.ServiceProbe, "measure", refuse)
    with running(backfill, backfill.runner(job, "w")) as endings:
        unknown = "the probe's latency is unknown: It starts up."
        wait_until("it says that it is unknown", lambda: seen(backfill.jobs, job.id).throttles == [unknown])
        assert rows(backfill, job) == 0
        made.legacy.sql("ALTER TABLE contended RENAME TO renamed")
        try:
            monkeypatch.setattr(probe.ServiceProbe, "measure", measure)
            assert endings[0].result(30) is Ending.PAUSED
        finally:
            made.legacy.sql("ALTER TABLE renamed RENAME TO contended")
    assert 'relation "contended" does not exist' in backfill.jobs.find(KIND, job.id).why
    backfill.jobs.resume(KIND, job.id)
    assert backfill.runner(job, "w").run() is Ending.DONE
    assert rows(backfill, job) == TRIPS


def test_a_probe_that_is_wrong_or_has_no_answer_in_its_time_is_refused_before_a_job_begins(
    made: Migration, backfill: Backfill
) -> None:
    with services_wait(made), pytest.raises(InvalidRequest, match="no answer within"):
        backfill.plan(Wanted(probe_seconds_max=LIMIT_SECONDS))
    with pytest.raises(InvalidRequest, match="syntax error"):
        backfill.plan(Wanted(probe="SELEC 1", probe_seconds_max=LIMIT_SECONDS))
    with pytest.raises(InvalidRequest, match="is ended after"):
        backfill.plan(Wanted(probe_seconds_max=DEADLINE_SECONDS))
    assert backfill.plan(Wanted(probe="SELEC 1")).parts, "without a limit no probe is run"
    spec = backfill.plan(Wanted(probe_seconds_max=LIMIT_SECONDS)).spec
    assert {name: spec[name] for name in PROBING} == PROBING
    assert not any(name in backfill.plan(Wanted()).spec for name in ("blocks_max", *PROBING))


def test_a_session_counts_the_blocks_that_were_read_for_it_and_no_others(made: Migration) -> None:
    """As Postgres counts them, when the session has ended; another one reads meanwhile."""
    statistics = """
        SELECT heap_blks_read + idx_blks_read + coalesce(toast_blks_read, 0) FROM pg_statio_user_tables
        WHERE relname = 'trips'"""
    chill(made, "trips")
    made.legacy.sql("SELECT pg_stat_reset()")
    wide = Chunk(rows=2 * TRIPS, counts_blocks=True)
    with closing(PastReader(made.legacy.url, made.duo.legacy.layout)) as reader:
        first, second = reader.read(wide), reader.read(wide)
        silent = reader.read(wide._replace(counts_blocks=False))

    assert first.blocks_read >= heap_blocks(made, "trips") >= TRIPS / 10
    assert second.blocks_read == silent.blocks_read == 0, "all is in memory by now"
    wait_until("the session has told its statistics", lambda: made.legacy.sql(statistics)[0][0] > 0)
    counted = int(str(made.legacy.sql(statistics)[0][0]))
    # Beside this table it reads ours, and catalogues.
    assert counted <= first.blocks_read <= counted + 100

    chill(made, "trips")
    with closing(made.legacy.connect()) as mine, closing(made.legacy.connect()) as other:
        reads = OwnReads(mine.cursor(), is_counting=True)
        reads.since()
        other.cursor().execute("SELECT count(*) FROM trips")
        assert reads.since() == 0
        chill_again = mine.cursor()
        other.rollback()
        chill_again.execute("SELECT count(*) FROM trips")
        assert reads.since() < heap_blocks(made, "trips") / 2, "another session has read them"


@pytest.mark.parametrize(
    ("walk", "is_counted"),
    [(WalkKind.KEYS, True), (WalkKind.BLOCKS, True), (WalkKind.KEYS, False)],
    ids=["by keys", "by blocks", "control"],
)
def test_workers_together_never_read_more_blocks_than_they_may(
    made: Migration, backfill: Backfill, monkeypatch: pytest.MonkeyPatch, walk: WalkKind, *, is_counted: bool
) -> None:
    """Of a table of which nothing is in memory. Control: a limit that counts nothing is not kept."""
    monkeypatch.setattr(plan, "SAMPLED_PAGES", 1)  # a plan would read all of so small a table
    chill(made, "trips")
    blocks = heap_blocks(made, "trips")
    job = begun(backfill, blocks_max=BLOCKS_MAX, walk=walk)
    assert job.spec["blocks_max"] == BLOCKS_MAX
    read: list[int] = []
    since = OwnReads.since

    def counted(own: OwnReads) -> int:
        read.append(since(own))
        return read[-1] if is_counted else 0

    monkeypatch.setattr(own_reads.OwnReads, "since", counted)
    began = time.monotonic()
    limits = set[str]()
    with running(backfill, backfill.runner(job, "one"), backfill.runner(job, "two")) as endings:

        def are_done() -> bool:
            limits.update(seen(backfill.jobs, job.id).limits)
            return all(each.done() for each in endings)

        wait_until("all is copied", are_done, 60)
    seconds = time.monotonic() - began

    assert {each.result() for each in endings} == {Ending.DONE}
    assert rows(backfill, job) == TRIPS
    assert sum(read) >= 0.9 * blocks, "a plan has looked at a few"
    ahead = 2 * BLOCKS_MAX * TURN_SECONDS + 2 * 200  # a turn of each; and what the first chunks read of indexes
    is_kept = sum(read) <= BLOCKS_MAX * seconds + ahead
    assert is_kept or not is_counted, (sum(read), seconds)
    if is_counted:
        assert limits == {"blocks"}


def test_a_limit_on_blocks_that_nothing_counts_is_refused(made: Migration, backfill: Backfill) -> None:
    name = made.legacy.name
    made.legacy.sql(f"ALTER DATABASE {name} SET track_counts = off")
    try:
        with closing(made.connect()) as store, pytest.raises(InvalidRequest, match="track_counts is off"):
            Backfill(store.facade).plan(Wanted(blocks_max=BLOCKS_MAX))
    finally:
        made.legacy.sql(f"ALTER DATABASE {name} RESET track_counts")
    assert backfill.plan(Wanted(blocks_max=BLOCKS_MAX)).parts


def test_turns_of_blocks_and_of_rows_are_two_paces(made: Migration, backfill: Backfill) -> None:
    job = begun(backfill, blocks_max=10, rate=10_000)
    runners = [backfill.runner(job, worker) for worker in ("one", "two")]

    pauses = [each._throttle.take(100) for each in runners]

    assert pauses[0] is None
    assert pauses[1] is not None
    assert pauses[1].reason == "limit of 10 blocks/s that Postgres reads"
    assert SharedPace(made.facade.store.control, job.id).take(1, 10_000) <= 0.01, "the rate was given back"
    backfill.jobs.cancel(KIND, job.id)
