"""A backfill's limits beside services at work: it slows down, waits, says why, and goes on when it may.

Real Postgres, MariaDB as the mirror, and services in processes of their own. What a limit looks at is driven by the
test: a relay that is held back, sessions that wait for a lock.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any, NamedTuple
from uuid import uuid4

import psycopg2
import pytest

from schemaless_core.control.jobs.jobs import Job
from schemaless_core.control.paces import SharedPace
from tests.chaos.actors import wait_until
from tests.facades import Migration, migration
from tests.forking import FORK_SERVER
from tests.mirrors import relaying
from tests.scale import scaled
from tests.stores import Stores
from tripstore.backends.postgres.handover.queue import Queue
from tripstore.cli.jobs.documents import progress_document
from tripstore.engines.backfill.runner import Ending, Runner
from tripstore.local.servers import LocalServers
from tripstore.migration.backfill.backfill import KIND, Backfill, Wanted
from tripstore.migration.backfill.limits import mirror_lag
from tripstore.phase import Phase

ROWS = scaled(3_000, short=1_200)
CHUNK_ROWS = 100
PAST = f"""
INSERT INTO trips (status) SELECT 'old' FROM generate_series(1, {ROWS});
INSERT INTO notes (trip_id, trip_uuid, n, text) SELECT id, trip_uuid, 1, 'a note' FROM trips;
DELETE FROM tripstore.queue
"""
SERVICES, PER_SECOND = 2, 100.0
_READ = "SELECT t.*, (SELECT count(*) FROM notes AS n WHERE n.trip_id = t.id) FROM trips AS t WHERE t.id = %s"
_WRITE = "UPDATE trips SET status = %s WHERE id = %s"
LAG_SECONDS = 0.5
#: At work whatever the machine does: they wait for a lock.
WAITING = 3
LOAD_MAX = 2.0
RATE = 400


def serve(url: str, pipe: Any) -> None:
    """A service's process: reads and writes at its pace until it is asked; then it says how long each took."""
    connection = psycopg2.connect(url)
    connection.autocommit = True
    with connection.cursor() as cursor:
        taken: list[float] = []
        n, due = 0, time.perf_counter()
        while True:
            if pipe.poll(max(0.0, due - time.perf_counter())):
                if pipe.recv() == "end":
                    return
                pipe.send(taken)
                taken = []
            n, due = n + 1, due + 1 / PER_SECOND
            row, begun = 1 + n * 7 % ROWS, time.perf_counter()
            cursor.execute(*((_WRITE, (f"{n}", row)) if n % 3 == 0 else (_READ, (row,))))
            taken.append(time.perf_counter() - begun)


class Busy(NamedTuple):
    """A company whose services are at work, and the backfill beside them."""

    made: Migration
    backfill: Backfill
    services: list[Connection]

    def p99(self) -> str:
        """Of what services did since they were asked last."""
        for service in self.services:
            service.send("tell")
        taken = sorted(seconds for service in self.services for seconds in service.recv())
        return f"p99 of {len(taken)} calls {taken[int(len(taken) * 0.99)] * 1e3:.1f} ms" if taken else "no calls"

    def begin(self, **wanted: Any) -> Job:
        wanted.setdefault("chunk_rows", CHUNK_ROWS)
        return self.backfill.begin(self.backfill.plan(Wanted(verify=0.0, **wanted)))

    def rows(self, job: Job) -> int:
        return self.backfill.jobs.progress(job.id).counts.get("rows", 0)

    def throttles(self, job: Job) -> list[str]:
        """Why its workers wait, as `tripstore backfill status` says it."""
        return progress_document(self.backfill.jobs.progress(job.id)).throttles

    def lag(self) -> float:
        return mirror_lag(self.made.duo.legacy.database, Queue(self.made.duo.legacy.layout))

    @contextmanager
    def running(self, job: Job, workers: int = 1) -> Iterator[list[Future[Ending]]]:
        """Workers of this job, each in a thread; what is left of it is cancelled."""
        runners = [self.backfill.runner(job, f"w{number}") for number in range(workers)]
        with ThreadPoolExecutor(workers) as pool:
            endings = [pool.submit(runner.run) for runner in runners]
            try:
                yield endings
            finally:
                _end(self.backfill, job, runners)
                assert {each.result() for each in endings} <= {Ending.DONE, Ending.STOPPED, Ending.CANCELLED}


def _end(backfill: Backfill, job: Job, runners: list[Runner]) -> None:
    for runner in runners:
        runner.stop()
    if backfill.jobs.state(job.id).value == "running":
        backfill.jobs.cancel(KIND, job.id)


@pytest.fixture(params=["postgres", "postgres18"], scope="module")
def made(request: pytest.FixtureRequest, servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    with migration(servers, stores, postgres=request.param, engine="mariadb", backfill={"parts": 8}) as moving:
        moving.legacy.sql(PAST)
        moving.phase(Phase.DUALWRITE)
        yield moving


@pytest.fixture
def busy(made: Migration) -> Iterator[Busy]:
    """No relay is at work, unless a test has one."""
    made.carry()
    with ExitStack() as exits:
        services = []
        for _ in range(SERVICES):
            here, there = FORK_SERVER.Pipe()
            process = FORK_SERVER.Process(target=serve, args=(made.legacy.url, there), daemon=True)
            process.start()
            exits.callback(process.join, 30)
            exits.callback(here.send, "end")
            services.append(here)
        yield Busy(made, Backfill(made.facade), services)


def with_lag_limit(backfill: Backfill, seconds: float) -> Backfill:
    """As a configuration says it; 0: there is none."""
    found = copy.copy(backfill)
    found._config = replace(backfill._config, mirror_lag_seconds_max=seconds)
    return found


def test_nothing_is_copied_while_the_mirror_is_late_and_all_is_when_it_has_caught_up(busy: Busy) -> None:
    """Services write and the relay is held back. Control: without the limit all is copied beside the same lag."""
    free, limited = (busy._replace(backfill=with_lag_limit(busy.backfill, seconds)) for seconds in (0.0, LAG_SECONDS))
    wait_until("the mirror is late", lambda: busy.lag() > LAG_SECONDS)
    job = free.begin()
    with free.running(job) as endings:
        assert endings[0].result() is Ending.DONE
    assert busy.rows(job) >= ROWS
    assert busy.lag() > LAG_SECONDS
    print(f"\nwithout a limit: {busy.p99()}")

    job = limited.begin()
    with limited.running(job) as endings:
        wait_until("it says why it waits", lambda: any("the mirror's lag is" in why for why in busy.throttles(job)))
        (first,) = busy.throttles(job)
        wait_until("it has looked again", lambda: busy.throttles(job) not in ([first], []))
        assert busy.rows(job) == 0
        print(f"it waits ({first}): {busy.p99()}")
        with relaying(busy.made):
            wait_until("all is copied", lambda: endings[0].done(), 120)
            assert endings[0].result() is Ending.DONE
    assert busy.rows(job) >= ROWS
    print(f"beside the relay: {busy.p99()}")


@contextmanager
def loaded(made: Migration) -> Iterator[None]:
    """Sessions at work."""
    name = f"contended_{uuid4().hex[:8]}"
    made.legacy.sql(f"CREATE TABLE {name} ()")
    holding = made.legacy.connect()
    holding.cursor().execute(f"LOCK TABLE {name}")
    with ThreadPoolExecutor(WAITING) as pool:
        waits = [pool.submit(made.legacy.sql, f"SELECT count(*) FROM {name}") for _ in range(WAITING)]
        try:
            yield
        finally:
            holding.rollback()
            holding.close()
            for each in waits:
                each.result()


def test_beside_a_high_load_a_trickle_is_copied_and_the_rest_when_it_falls(busy: Busy) -> None:
    """Sessions of others wait for a lock, and count as at work. Control: without the limit all is copied at once."""
    busy = busy._replace(backfill=with_lag_limit(busy.backfill, 0.0))
    with loaded(busy.made):
        job, begun = busy.begin(), time.monotonic()
        with busy.running(job) as endings:
            assert endings[0].result() is Ending.DONE
        free = busy.rows(job) / (time.monotonic() - begun)
    print(f"\nwithout a limit: {free:,.0f} rows/s, {busy.p99()}")

    job = busy.begin(postgres_load_max=LOAD_MAX, chunk_rows=20)
    with ExitStack() as load:
        load.enter_context(loaded(busy.made))
        with busy.running(job):
            begun = time.monotonic()
            reason = f"sessions of others are at work, the limit is {LOAD_MAX:g}"
            wait_until("it says why it waits", lambda: any(reason in why for why in busy.throttles(job)))
            wait_until("chunks are copied all the same", lambda: busy.rows(job) >= 2 * 20)
            trickle = busy.rows(job) / (time.monotonic() - begun)
            print(f"with it: {trickle:,.0f} rows/s, {busy.p99()}")
            assert trickle < free / 4
            load.close()
            wait_until("it goes on when the load has fallen", lambda: busy.rows(job) >= ROWS / 2, 120)


class Turn(NamedTuple):
    """So many rows were begun at this time of the control database."""

    at: float
    rows: int


@pytest.mark.parametrize("shared", [False, True], ids=["control", "shared"])
def test_workers_together_never_exceed_their_rate_beside_services(
    busy: Busy, monkeypatch: pytest.MonkeyPatch, *, shared: bool
) -> None:
    """In no stretch of time is more begun than the rate allows and one chunk; a pace of one's own is the control."""
    busy = busy._replace(backfill=with_lag_limit(busy.backfill, 0.0))
    turns, latest = list[Turn](), dict[SharedPace, int]()
    take, give_back = SharedPace.take, SharedPace.give_back

    def noted(pace: SharedPace, count: int, per_second: float) -> float:
        if not shared:
            pace._name = f"pace:{id(pace)}"
        seconds = take(pace, count, per_second)
        if pace._turn is not None:
            latest[pace] = len(turns)
            turns.append(Turn(pace._turn.taken_at_ms / 1000, count))
        return seconds

    def held_fewer(pace: SharedPace, count: int, per_second: float) -> None:
        """The last chunk of a part has as many rows as there are left."""
        turn = turns[latest[pace]]
        turns[latest[pace]] = turn._replace(rows=turn.rows - max(0, count))
        give_back(pace, count, per_second)

    monkeypatch.setattr(SharedPace, "take", noted)
    monkeypatch.setattr(SharedPace, "give_back", held_fewer)
    job = busy.begin(rate=RATE)
    with busy.running(job, workers=3):
        wait_until("some seconds of the rate are begun", lambda: sum(turn.rows for turn in turns) > 2 * RATE)
        print(f"\nrate {RATE}, {'together' if shared else 'each'}: {busy.p99()}")

    assert busy.rows(job) > 0
    assert (most_ahead(sorted(turns)) <= 0.01) is shared, turns


def most_ahead(turns: list[Turn]) -> float:
    """By how many rows the rate and one chunk was exceeded, in whichever stretch it was most."""
    return max(
        sum(turn.rows for turn in turns[first : last + 1])
        - RATE * (turns[last].at - turns[first].at)
        - turns[last].rows
        for first in range(len(turns))
        for last in range(first, len(turns))
    )
