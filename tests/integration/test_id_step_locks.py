"""While a session holds the tables, a step names it, gives up, and made no service wait for long. Then it goes on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from threading import Event, Thread

import psycopg2
import pytest
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from tests.chaos.actors import wait_until
from tests.integration.id_company import (
    FLAVOURS,
    FULL_SPEED,
    LAYOUT,
    ONE_FLAVOUR,
    QUICK,
    TRIPS,
    OldCode,
    company_session,
    one,
    postgres,
    session,
    silent,
    small_company,
    unfilled,
)
from tests.scale import SCALE
from tripstore.backends.postgres.ddl import ddl
from tripstore.backends.postgres.ddl.ddl import under_lock
from tripstore.backends.postgres.ddl.holders import Holder, holders
from tripstore.backends.postgres.ddl.steps import SchemaStep
from tripstore.backends.postgres.ddl.watched import run_watched
from tripstore.backends.postgres.errors import LegacyUnavailable
from tripstore.backends.postgres.ids.key_backfill import FillOldRows
from tripstore.backends.postgres.ids.key_triggers import FillNewRows
from tripstore.backends.postgres.ids.steps import id_steps
from tripstore.backends.postgres.wire.connections import rows
from tripstore.local.postgres import PostgresServer
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

#: What a statement takes on two busy cores, beside the lock.
SLACK_SECONDS = 0.6

READ = """\
BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM trips JOIN trip_notes ON trip_id = trips.id;
SELECT count(*) FROM billing.attempts; SELECT count(*) FROM fare_adjustments"""
WRITE = """\
BEGIN; UPDATE trips SET status = 'held' WHERE id = 6; UPDATE trip_notes SET note = 'held' WHERE trip_id = 6;
UPDATE billing.attempts SET result = 'held' WHERE trip_id = 6;
UPDATE fare_adjustments SET reason = 'held' WHERE trip_id < 13"""


#: For steps that a session is in the way of to the end: a try, and another one.
HASTY = replace(QUICK, give_up_seconds=0.15, build_give_up_seconds=0.15)
#: For steps that only two busy cores are in the way of.
CALM = replace(QUICK, give_up_seconds=20.0, build_give_up_seconds=20.0)

#: In CI each kind of holder on one version of Postgres.
HOLDS = [
    pytest.param(flavour, hold, refused, id=f"{flavour}-{name}")
    for number, (name, hold, refused) in enumerate([("writer", WRITE, 20), ("reader", READ, 12)])
    for flavour in (FLAVOURS if SCALE >= 1 else [FLAVOURS[number]])
]


@pytest.fixture(params=ONE_FLAVOUR)
def url(request: pytest.FixtureRequest, servers: LocalServers) -> Iterator[str]:
    flavour: Flavour = request.param
    with small_company(postgres(servers, flavour), 30) as made:
        yield made


@pytest.fixture
def ours(url: str) -> Iterator[Connection]:
    with session(url) as opened:
        yield opened


@pytest.mark.parametrize(("url", "hold", "refusals"), HOLDS, indirect=["url"])
def test_no_service_waits_longer_than_the_lock_timeout_and_blocking_sessions_are_named(
    url: str, ours: Connection, hold: str, refusals: int
) -> None:
    refused = 0
    hasty, calm = (id_steps(LAYOUT, pace=FULL_SPEED, patience=patience) for patience in (HASTY, CALM))
    with company_session(url, "the holder") as holder, probing(url) as probe:
        for attempt, step in zip(hasty, calm, strict=True):
            rows(holder, hold)
            refusal = refusal_of(attempt, ours)
            rows(holder, "ROLLBACK")
            if refusal is None:
                assert hold is READ, step.title
                assert isinstance(step, FillNewRows | FillOldRows), step.title
            else:
                refused += 1
                assert f"pid {holder.info.backend_pid} (postgres tripstore the holder, idle in transaction" in refusal
                assert f"pg_terminate_backend({holder.info.backend_pid})" in refusal
            step.apply(ours, silent)
            assert step.is_done(ours), step.title

    assert refused == refusals
    assert probe.count > 100
    assert probe.longest < QUICK.lock_timeout_seconds + SLACK_SECONDS
    with company_session(url) as company:
        assert unfilled(company) == 0


def test_without_a_limit_everybody_would_wait(url: str, ours: Connection) -> None:
    """The control of the test above."""
    [first, *_] = id_steps(LAYOUT)
    with company_session(url) as holder, probing(url) as probe, ThreadPoolExecutor(1) as pool:
        rows(holder, READ)
        unlimited = pool.submit(rows, ours, first.statements()[0])
        wait_until_blocked(holder, ours.info.backend_pid)
        time.sleep(2 * (QUICK.lock_timeout_seconds + SLACK_SECONDS))  # longer than any service may wait
        rows(holder, "ROLLBACK")
        unlimited.result(30)
        probe.wait_for_more()

    assert probe.longest > QUICK.lock_timeout_seconds + SLACK_SECONDS


def test_no_try_is_made_while_an_old_transaction_is_in_the_way(url: str, ours: Connection) -> None:
    """A try would take half a minute here."""
    patience = replace(QUICK, old_seconds=0.0, lock_timeout_seconds=30.0)
    with company_session(url) as holder:
        rows(holder, READ)
        started = time.monotonic()
        with pytest.raises(LegacyUnavailable, match=f"pid {holder.info.backend_pid} "):
            under_lock(ours, TRIPS, "ACCESS EXCLUSIVE", ["SELECT 1"], patience)

    assert time.monotonic() - started < 15


def test_a_prepared_transaction_is_named_by_what_ends_it(servers: LocalServers, url: str, ours: Connection) -> None:
    """It has no process, and outlives a restart."""
    [server] = [each for each in servers.servers if isinstance(each, PostgresServer) and f":{each.port}/" in url]
    ours.close()
    server.query("ALTER SYSTEM SET max_prepared_transactions = 4")
    server.restart()
    with company_session(url) as holder, session(url) as again:
        rows(holder, "BEGIN; UPDATE trips SET status = 'held' WHERE id = 6")
        rows(holder, "PREPARE TRANSACTION 'the payroll'")
        try:
            for step in id_steps(LAYOUT, pace=FULL_SPEED, patience=QUICK)[:1]:
                refusal = refusal_of(step, again)
                assert refusal is not None
                assert "the prepared transaction 'the payroll' of postgres" in refusal
                assert "ROLLBACK PREPARED 'the payroll'" in refusal
        finally:
            rows(holder, "ROLLBACK PREPARED 'the payroll'")


def test_an_autovacuum_is_sent_away(url: str, ours: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock that is waited for shortly would never make Postgres do it."""
    [step, *_] = id_steps(LAYOUT, patience=replace(QUICK, give_up_seconds=1.0))
    with company_session(url) as company:
        rows(company, "ALTER SYSTEM SET autovacuum_naptime = 1")
        rows(company, "SELECT pg_reload_conf()")
        rows(company, "INSERT INTO trips (status) SELECT repeat('x', 900) FROM generate_series(1, 4000)")
        slow = "autovacuum_vacuum_cost_delay = 100, autovacuum_vacuum_cost_limit = 1"
        rows(company, f"ALTER TABLE trips SET (autovacuum_vacuum_insert_threshold = 1, {slow})")
        wait_until("autovacuum is at work", lambda: autovacuums(company), 60)

        with monkeypatch.context() as patched:
            patched.setattr(ddl, "send_away", lambda _connection, _holder: None)
            refusal = refusal_of(step, ours)
        assert refusal is not None  # the control: it would still be there
        assert "autovacuum worker" in refusal
        assert refusal_of(step, ours) is None

        rows(company, "ALTER SYSTEM RESET autovacuum_naptime")
        rows(company, "SELECT pg_reload_conf()")


def autovacuums(connection: Connection) -> list[Holder]:
    return [holder for holder in holders(connection, TRIPS, "ACCESS EXCLUSIVE") if holder.is_autovacuum]


def test_who_does_not_conflict_is_not_in_the_way(url: str, ours: Connection) -> None:
    with company_session(url) as holder:
        rows(holder, READ)

        assert holders(ours, TRIPS, "SHARE ROW EXCLUSIVE") == []
        [found] = holders(ours, TRIPS, "ACCESS EXCLUSIVE")
        assert found.pid == holder.info.backend_pid


def test_a_long_statement_is_ended_by_the_session_that_watches_it(url: str, ours: Connection) -> None:
    """So Ctrl-C ends it, too: the driver itself would hear of it only at the end."""

    def interrupted() -> None:
        raise KeyboardInterrupt

    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_watched(ours, "SELECT pg_sleep(60)", interrupted)

    assert time.monotonic() - started < 30
    assert one(ours, "SELECT 1") == 1


def test_a_statement_that_takes_long_under_its_lock_is_ended_and_undone(url: str, ours: Connection) -> None:
    statements = ["ALTER TABLE public.trips ADD COLUMN slow int", "SELECT pg_sleep(30)"]

    with pytest.raises(LegacyUnavailable):
        under_lock(ours, TRIPS, "ACCESS EXCLUSIVE", statements, QUICK)

    assert one(ours, "SELECT count(*) FROM pg_attribute WHERE attname = 'slow'") == 0


def refusal_of(step: SchemaStep, connection: Connection) -> str | None:
    try:
        step.apply(connection, silent)
    except LegacyUnavailable as error:
        return str(error)
    return None


class Probe:
    """Works on every table without an end and knows how long its longest statement took."""

    def __init__(self, url: str) -> None:
        self.longest = 0.0
        self.count = 0
        self._url = url
        self._ended = Event()
        self._thread = Thread(target=self._work, name="probe")
        self._failures: list[psycopg2.Error] = []

    def start(self) -> None:
        self._thread.start()

    def wait_for_more(self) -> None:
        """Until something that began after this call has ended."""
        goal = self.count + 2
        give_up_at = time.monotonic() + 30
        while self.count < goal:
            assert time.monotonic() < give_up_at
            time.sleep(0.005)

    def end(self) -> None:
        self._ended.set()
        self._thread.join(30)
        if self._failures:
            raise self._failures[0]

    def _work(self) -> None:
        with company_session(self._url, "probe") as connection:
            trip = OldCode(connection).insert()
            statements = [
                "SELECT count(*) FROM trips",
                f"UPDATE trips SET status = 'probed' WHERE id = {trip}",
                f"UPDATE trip_notes SET note = 'probed' WHERE trip_id = {trip}",
                f"UPDATE billing.attempts SET result = 'probed' WHERE trip_id = {trip}",
                f"UPDATE fare_adjustments SET reason = 'probed' WHERE trip_id = {trip} AND n = 1",
                "SELECT count(*) FROM fare_adjustments",
            ]
            try:
                while not self._ended.is_set():
                    for statement in statements:
                        self._time(connection, statement)
            except psycopg2.Error as error:
                self._failures.append(error)

    def _time(self, connection: Connection, statement: str) -> None:
        started = time.monotonic()
        rows(connection, statement)
        self.longest = max(self.longest, time.monotonic() - started)
        self.count += 1
        self._ended.wait(0.002)  # the other core is for the step


@contextmanager
def probing(url: str) -> Iterator[Probe]:
    probe = Probe(url)
    probe.start()
    try:
        probe.wait_for_more()
        yield probe
    finally:
        probe.end()


def wait_until_blocked(watcher: Connection, pid: int) -> None:
    give_up_at = time.monotonic() + 30
    while not one(watcher, "SELECT cardinality(pg_blocking_pids(%s))", (pid,)):
        assert time.monotonic() < give_up_at
        time.sleep(0.005)
