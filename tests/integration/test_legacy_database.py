"""Connections of the legacy store: no call outlives its deadline, a dead one is replaced, errors say who and why."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any
from uuid import uuid4

import psycopg2
import pytest
from prometheus_client import REGISTRY

from schemaless_core import CellConflict, InvalidRequest, InvalidServer, SchemaMissing, StaleEpoch, Unavailable
from schemaless_core.config import DeadlineConfig, PoolConfig
from schemaless_core.deadline import Deadline
from tests.integration.test_forks import forked
from tests.legacy_backends import Company, company, status
from tests.legacy_databases import PATIENT, postgres_server, run, unused_layout
from tripstore.backends.postgres.backend import PostgresBackend
from tripstore.backends.postgres.errors import LegacyRefused, LegacyUnavailable
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.backends.postgres.wire.settings import LegacySettings
from tripstore.backends.postgres.wire.wire import LegacyConnection
from tripstore.local.postgres import PostgresServer
from tripstore.local.servers import LocalServers

#: Beyond the deadline: this machine's own delays.
SLACK_SECONDS = 0.35


@pytest.fixture(scope="module")
def server(servers: LocalServers) -> PostgresServer:
    return postgres_server(servers, "machine")


@pytest.fixture(scope="module")
def trips(server: PostgresServer) -> Iterator[Company]:
    with company(server) as made:
        yield made


@pytest.fixture
def own_server(servers: LocalServers) -> Iterator[PostgresServer]:
    """A server to be stopped and restarted, this file's alone."""
    name = "legacy-accidents"
    known = [each for each in servers.servers if each.name == name]
    server = known[0] if known else servers.postgres(name, flavour="machine")
    assert isinstance(server, PostgresServer)
    yield server
    if not server.is_running:
        server.start()


def seconds_of(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def ask(database: LegacyDatabase, sql: str, seconds: float = 20.0) -> list[tuple[object, ...]]:
    return database.run(lambda connection: connection.rows(sql), Deadline(seconds))


@contextmanager
def database_at(url: str, settings: LegacySettings = PATIENT) -> Iterator[LegacyDatabase]:
    with closing(LegacyDatabase(url, settings)) as database:
        yield database


def test_a_stopped_server_costs_no_call_more_than_its_deadline(own_server: PostgresServer) -> None:
    """Pooled connections, new ones and the look at blocking sessions all keep to the deadline."""
    with company(own_server) as made:
        row_key = made.base()
        hurried = made.store.using(deadline=0.5)
        # One that is pooled, and one with connections of its own to make.
        fresh = LegacyDatabase(made.legacy.url, LegacySettings(DeadlineConfig(connect_seconds=0.5)))
        stranger = PostgresBackend(fresh, made.store.layout, shards=8).using(deadline=0.5)
        calls: list[Callable[[], object]] = [
            lambda: hurried.get_cell_latest(row_key, "BASE"),
            lambda: hurried.put_cell(row_key, "BASE", 2, status(2)),
            lambda: hurried.put_cell(row_key, "FREE", 1, "x" * 1_000_000),
            lambda: hurried.get_row(row_key),
            lambda: hurried.scan_rows(0),
            lambda: stranger.get_cell_latest(row_key, "BASE"),
        ]

        own_server.pause()
        try:
            for call in calls:
                started = time.perf_counter()
                with pytest.raises(Unavailable) as raised:
                    call()
                assert time.perf_counter() - started < 0.5 + SLACK_SECONDS
                assert "before the deadline" in str(raised.value) or "within the deadline" in str(raised.value)
        finally:
            own_server.resume()

        assert made.store.put_cell(row_key, "BASE", 2, status(2)).status in ("CREATED", "EXISTS")
        stranger.close()


def test_a_restart_of_the_server_is_survived_without_an_error(own_server: PostgresServer) -> None:
    with company(own_server) as made:
        row_key = made.base()
        idle_connections(made, 3)

        own_server.restart()

        found = made.store.get_cell_latest(row_key, "BASE")
        assert found is not None
        assert made.store.put_cell(row_key, "BASE", 2, status(2)).status == "CREATED"


def idle_connections(made: Company, count: int) -> None:
    """As many calls at once leave as many connections in the pool."""
    meet = threading.Barrier(count)

    def wait_for_the_others(connection: LegacyConnection) -> None:
        connection.rows("SELECT 1")
        meet.wait(20)

    threads = [
        threading.Thread(target=made.store.database.run, args=(wait_for_the_others, Deadline(20))) for _ in range(count)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_a_server_that_is_away_is_unavailable_and_says_where_to_look(own_server: PostgresServer) -> None:
    with company(own_server) as made:
        row_key = made.base()
        own_server.stop()
        try:
            with pytest.raises(LegacyUnavailable, match="cannot be reached") as raised:
                made.store.get_cell_latest(row_key, "BASE")
            assert raised.value.hint
        finally:
            own_server.start()
        assert made.store.get_cell_latest(row_key, "BASE") is not None


def test_a_connection_that_the_server_ended_is_replaced_once(trips: Company) -> None:
    row_key, before = trips.base(), repeats("connection_broken")

    trips.legacy.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND application_name = 'tripstore'"
    )

    assert trips.store.get_cell_latest(row_key, "BASE") is not None
    assert repeats("connection_broken") == before + 1


def repeats(cause: str) -> float:
    return REGISTRY.get_sample_value("schemaless_repeats_total", {"cause": cause}) or 0.0


def test_a_verb_that_breaks_every_connection_is_not_repeated_for_ever(trips: Company) -> None:
    calls = []

    def die(connection: LegacyConnection) -> None:
        calls.append(connection.pid)
        connection.rows("SELECT pg_terminate_backend(pg_backend_pid())")

    trips.store.get_cell_latest(uuid4(), "BASE")
    with pytest.raises(LegacyUnavailable):
        trips.store.database.run(die, Deadline(20))

    assert len(calls) == 2


def test_the_session_that_holds_the_row_is_named(trips: Company) -> None:
    """B19: a service that puts through the facade inside its own transaction waits for itself."""
    row_key = trips.base()
    settings = LegacySettings(DeadlineConfig(put_seconds=10.0, connect_seconds=5.0), lock_seconds=1.0)
    backend = PostgresBackend(LegacyDatabase(trips.legacy.url, settings), trips.store.layout, shards=8)
    with closing(psycopg2.connect(trips.legacy.url, application_name="billing")) as holder, backend:
        holder.cursor().execute("UPDATE trips SET memo = 'mine' WHERE trip_uuid = %s", (str(row_key),))
        pid = holder.info.backend_pid

        with pytest.raises(LegacyUnavailable) as by_lock_timeout:
            backend.put_cell(row_key, "BASE", 2, status(2))
        with pytest.raises(LegacyUnavailable) as by_deadline:
            backend.using(deadline=0.8).put_cell(row_key, "BASE", 2, status(2))

    for raised in (by_lock_timeout, by_deadline):
        assert f"pid {pid} (billing, idle in transaction)" in str(raised.value)
    assert "lock" in str(by_lock_timeout.value)
    assert "deadline" in str(by_deadline.value)
    assert trips.versions(row_key) == [1]


def test_a_transaction_that_lost_is_repeated_inside(trips: Company) -> None:
    """The caller sees no serialization failure and no deadlock."""
    row_key, before = trips.base(), repeats("transaction_lost")
    for code in ("40001", "40P01"):
        trips.legacy.sql(f"CREATE SEQUENCE lost_{code.lower()}")
        trips.legacy.sql(
            f"CREATE FUNCTION lose_{code.lower()}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            f"IF NEW.status = '{code}' AND nextval('lost_{code.lower()}') < 3 THEN "
            f"RAISE EXCEPTION 'lost' USING ERRCODE = '{code}'; END IF; RETURN NEW; END $$"
        )
        trips.legacy.sql(
            f"CREATE TRIGGER lose_{code.lower()} BEFORE UPDATE ON trips FOR EACH ROW "
            f"EXECUTE FUNCTION lose_{code.lower()}()"
        )

    assert trips.store.put_cell(row_key, "BASE", 2, status("40001")).status == "CREATED"
    assert trips.store.put_cell(row_key, "BASE", 3, status("40P01")).status == "CREATED"

    assert repeats("transaction_lost") == before + 4
    assert trips.versions(row_key) == [3, 2, 1]


def test_a_transaction_that_always_loses_ends_with_its_deadline(trips: Company) -> None:
    def lose(connection: LegacyConnection) -> None:
        connection.rows("DO $$ BEGIN RAISE EXCEPTION 'lost' USING ERRCODE = '40001'; END $$")

    seconds = seconds_of(lambda: expect(LegacyUnavailable, lambda: trips.store.database.run(lose, Deadline(0.3))))

    assert seconds < 0.3 + SLACK_SECONDS


def expect(kind: type[Exception], call: Callable[[], object]) -> None:
    with pytest.raises(kind):
        call()


@pytest.mark.parametrize(
    ("change", "kind", "says"),
    [
        ({"password": "wrong"}, InvalidServer, "password"),
        ({"database": "nowhere"}, InvalidServer, "does not exist"),
        ({"port": 1}, LegacyUnavailable, "cannot be reached"),
    ],
)
def test_a_wrong_address_says_what_is_wrong(
    server: PostgresServer, change: dict[str, object], kind: type[Exception], says: str
) -> None:
    parts = {"password": server.password, "database": "postgres", "port": server.port} | change
    url = "postgresql://postgres:{password}@127.0.0.1:{port}/{database}".format(**parts)

    with database_at(url) as database, pytest.raises(kind, match=says) as raised:
        ask(database, "SELECT 1")

    assert getattr(raised.value, "hint", None)
    assert str(parts["password"]) not in str(raised.value).replace("password", "")


def test_a_database_without_our_tables_says_what_to_run(server: PostgresServer) -> None:
    server.query("CREATE DATABASE bare")
    with database_at(f"{server.url}/bare") as database:
        backend = PostgresBackend(database, unused_layout(), shards=8)

        with pytest.raises(SchemaMissing, match="schema apply"):
            backend.get_cell_latest(uuid4(), "FREE")
        with pytest.raises(SchemaMissing, match="schema apply"):
            backend.put_cell(uuid4(), "FREE", 1, 1)


def test_other_constraints_of_the_company_refuse_without_end_or_noise(trips: Company) -> None:
    trips.legacy.sql("CREATE UNIQUE INDEX one_vip ON trips (status) WHERE status = 'vip'")
    trips.base(1)
    first, second = trips.base(1), trips.base(1)
    trips.store.put_cell(first, "BASE", 2, status("vip"))

    with pytest.raises(LegacyRefused, match="one_vip"):
        trips.store.put_cell(second, "BASE", 2, status("vip"))

    assert trips.versions(second) == [1]


def test_a_closed_gate_refuses_as_another_authority_does(server: PostgresServer) -> None:
    with company(server) as made:
        row_key = made.base()
        made.legacy.sql("SELECT setval('tripstore.gate', 4)")

        with pytest.raises(StaleEpoch):
            made.store.put_cell(row_key, "BASE", 2, status(2))

        made.legacy.sql("SELECT setval('tripstore.gate', 9)")
        assert made.store.put_cell(row_key, "BASE", 2, status(2)).status == "CREATED"


def test_more_threads_than_connections_share_them(trips: Company) -> None:
    settings = LegacySettings(PATIENT.deadlines, PoolConfig(size=1, overflow=1))
    row_key = trips.base()
    failures: list[Exception] = []
    with PostgresBackend(LegacyDatabase(trips.legacy.url, settings), trips.store.layout, shards=8) as backend:

        def read() -> None:
            try:
                for _ in range(20):
                    assert backend.get_cell_latest(row_key, "BASE") is not None
            except Exception as error:  # noqa: BLE001  # the test looks at them
                failures.append(error)

        threads = [threading.Thread(target=read) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(backend.database._open) <= 2
    assert failures == []


def test_a_full_pool_says_so_in_time(trips: Company) -> None:
    settings = LegacySettings(DeadlineConfig(pool_seconds=0.1), PoolConfig(size=1, overflow=0))
    with database_at(trips.legacy.url, settings) as database:

        def hold(connection: LegacyConnection) -> None:
            connection.rows("SELECT 1")
            with pytest.raises(LegacyUnavailable, match="in use"):
                ask(database, "SELECT 2")

        database.run(hold, Deadline(5))
        assert ask(database, "SELECT 3") == [(3,)]


def test_a_transaction_left_open_by_an_error_is_rolled_back(trips: Company) -> None:
    row_key = trips.base()

    def leave_open(connection: LegacyConnection) -> None:
        connection.rows(f"BEGIN; SELECT 1 FROM public.trips WHERE trip_uuid = '{row_key}' FOR UPDATE")
        raise InvalidRequest("stop here")

    with pytest.raises(InvalidRequest):
        trips.store.database.run(leave_open, Deadline(5))

    trips.legacy.sql("SET lock_timeout = 500; UPDATE trips SET memo = 'y' WHERE trip_uuid = %s", str(row_key))
    assert ask(trips.store.database, "SELECT 1") == [(1,)]


def test_a_child_and_its_parent_use_connections_of_their_own(trips: Company) -> None:
    """A forked child must neither share nor end its parent's sessions."""
    row_key, other = trips.base(), uuid4()
    pids = sessions(trips)

    def put_in_child() -> None:
        trips.store.put_cell(other, "BASE", 1, status("child"))
        trips.store.close()

    assert forked(put_in_child) == 0

    assert trips.store.get_cell_latest(other, "BASE") is not None
    assert trips.store.put_cell(row_key, "BASE", 2, status(2)).status == "CREATED"
    ends = time.monotonic() + 10
    while sessions(trips) != pids and time.monotonic() < ends:
        time.sleep(0.01)  # Postgres drops an ended session from its list when its process ends
    assert sessions(trips) == pids


def sessions(trips: Company) -> list[tuple[Any, ...]]:
    return run(trips.legacy.url, "SELECT pid FROM pg_stat_activity WHERE application_name = 'tripstore' ORDER BY 1")


def test_forks_in_the_midst_of_calls_lose_nothing(trips: Company) -> None:
    stop, failures, row_key = threading.Event(), list[Exception](), uuid4()

    def keep_putting() -> None:
        while not stop.is_set():
            try:
                trips.store.append_cell(row_key, f"FREE{threading.get_ident()}", 1)
            except Exception as error:  # noqa: BLE001  # the test looks at them
                failures.append(error)

    threads = [threading.Thread(target=keep_putting) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        children = [uuid4() for _ in range(10)]
        codes = [forked(lambda key=key: trips.store.put_cell(key, "FREE", 1, os.getpid())) for key in children]  # type: ignore[misc]  # mypy knows no default of a lambda
    finally:
        stop.set()
        for thread in threads:
            thread.join()

    assert codes == [0] * len(children)
    assert failures == []
    assert all(trips.store.get_cell(key, "FREE", 1) is not None for key in children)


@pytest.mark.parametrize(
    ("call", "packets"),
    [
        ("latest row", 1),
        ("latest free", 1),
        ("latest child", 1),
        ("row", 1),
        ("cell", 1),
        ("history", 1),
        ("put free", 1),
        ("put next version", 2),
        ("put first version", 2),
        ("put new child", 2),
        ("put new fact", 2),
    ],
)
def test_a_call_takes_as_few_round_trips_as_it_can(
    trips: Company, call: str, packets: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, row_key = trips.store, trips.base()
    store.put_cell(row_key, "NOTES", 1 << 20, {"text": "a"})
    calls: dict[str, Callable[[int], object]] = {
        "latest row": lambda n: store.get_cell_latest(row_key, "BASE"),
        "latest free": lambda n: store.get_cell_latest(row_key, "FREE"),
        "latest child": lambda n: store.get_cell_latest(row_key, "NOTES"),
        "row": lambda n: store.get_row(row_key),
        "cell": lambda n: store.get_cell(row_key, "BASE", 1),
        "history": lambda n: store.get_history(row_key, "BASE"),
        "put free": lambda n: store.put_cell(row_key, "FREE", n, n),
        "put next version": lambda n: store.put_cell(row_key, "BASE", n, status(n)),
        "put first version": lambda n: store.put_cell(uuid4(), "BASE", 1, status(n)),
        "put new child": lambda n: store.put_cell(row_key, "NOTES", n << 20, {"text": "a"}),
        "put new fact": lambda n: store.put_cell(row_key, "STATUS", n, {"result": "a"}),
    }
    calls[call](2)  # connections and prepared statements are there
    sent: list[str] = []
    rows = LegacyConnection.rows

    def counted(self: LegacyConnection, sql: str, *more: Any) -> object:
        sent.append(sql)
        return rows(self, sql, *more)

    monkeypatch.setattr(LegacyConnection, "rows", counted)

    calls[call](3)

    assert len(sent) == packets, sent


def test_a_conflict_leaves_the_connection_ready(trips: Company) -> None:
    row_key = trips.base()
    for _ in range(3):
        with pytest.raises(CellConflict):
            trips.store.put_cell(row_key, "BASE", 1, status("another"))
    assert all(connection.is_idle for connection in trips.store.database._idle)
    assert not run(
        trips.legacy.url,
        "SELECT 1 FROM pg_stat_activity WHERE state LIKE 'idle in%%' AND application_name = %s",
        "tripstore",
    )
