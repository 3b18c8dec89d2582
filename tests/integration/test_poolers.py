"""A PgBouncer in between: our own connections are refused unless they keep their session, with our settings (I8, I12).

PgBouncer is as operators set it up for drivers that send settings: it drops them without a word.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import Any
from uuid import UUID

import psycopg2
import pytest

from schemaless_core.deadline import Deadline
from schemaless_core.errors import SchemalessError, Unavailable
from tests.legacy import FLAVOURS, Legacy, captured, layout, legacy_server
from tests.legacy_backends import SHARDS
from tests.legacy_databases import PATIENT
from tests.past import bodies
from tests.poolers import pooler, through
from tests.repairs import doing_at
from tripstore.backends.postgres.backend import PostgresBackend
from tripstore.backends.postgres.cells.past.reader import PastReader
from tripstore.backends.postgres.errors import SessionRefused, SessionUnclear
from tripstore.backends.postgres.wire import connections, database, session
from tripstore.backends.postgres.wire import pooler as pooler_question
from tripstore.backends.postgres.wire.connections import connected, prepare, rows, wanted
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.handover.ports import Chunk
from tripstore.local.pgbouncer import PgBouncer
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

#: What a role may have: with any of them texts of values are others, or an acknowledged commit may be lost.
HOSTILE = {
    "extra_float_digits": "-3",
    "DateStyle": "SQL, DMY",
    "TimeZone": "America/Los_Angeles",
    "IntervalStyle": "sql_standard",
    "bytea_output": "escape",
    "client_encoding": "LATIN1",
    "synchronous_commit": "off",
    "default_transaction_isolation": "serializable",
    "search_path": "public, pg_catalog",
}
NAME = "Zoë €"
SEVENTH = 1 / 7


@pytest.fixture(scope="module", params=FLAVOURS)
def legacy(request: pytest.FixtureRequest, servers: LocalServers) -> Legacy:
    """A company whose role has settings of its own, and one trip that shows what becomes of its values."""
    flavour: Flavour = request.param
    made = captured(legacy_server(servers, flavour))
    made.sql("INSERT INTO trips (status, distance, request_at) VALUES (%s, 1::float8 / 7, '2014-08-01 2:00+2')", NAME)
    for name, value in HOSTILE.items():
        made.sql(f"ALTER DATABASE {made.name} SET {name} = {value if name == 'search_path' else repr(value)}")
    return made


@pytest.fixture
def sessions(servers: LocalServers, legacy: Legacy) -> Legacy:
    """Through a pooler that keeps a session for its client."""
    return through(pooler(servers, legacy.server, "session"), legacy)


def transactions(servers: LocalServers, legacy: Legacy, **settings: str) -> PgBouncer:
    return pooler(servers, legacy.server, "transaction", settings)


def by_statement(url: str) -> None:
    with connected(url, "test"):
        pass


def by_call(url: str) -> None:
    with closing(LegacyDatabase(url, PATIENT)) as database:
        database.run(lambda connection: connection.rows("SELECT 1"), Deadline(20.0))


def by_barrier(url: str) -> None:
    with closing(LegacyDatabase(url, PATIENT)) as database:
        database.part_with(database.connect_apart("test barrier"))


def by_copy(url: str) -> None:
    with closing(PastReader(url, layout())) as reader:
        reader.read(Chunk(rows=10))


#: Every way in which we connect.
WAYS: dict[str, Callable[[str], None]] = {
    "schema, doctor, diff": by_statement,
    "facade, relay": by_call,
    "hand-over": by_barrier,
    "backfill": by_copy,
}


# --- a session of our own ---


def test_control_a_session_pooler_drops_our_settings_without_a_word(sessions: Legacy) -> None:
    """So without a look a backfill copied 0.142857142857."""
    with closing(psycopg2.connect(sessions.url, options=wanted().options)) as dropped:
        found = rows(dropped, "SELECT distance::text, current_setting('synchronous_commit') FROM trips")

    assert found == [("0.142857142857", "off")]


@pytest.mark.parametrize("way", WAYS)
def test_all_our_connections_may_go_through_a_session_pooler(sessions: Legacy, way: str) -> None:
    WAYS[way](sessions.url)


def test_i12_cells_through_a_session_pooler_are_those_of_a_direct_connection(sessions: Legacy, legacy: Legacy) -> None:
    with closing(PastReader(sessions.url, layout())) as pooled, closing(PastReader(legacy.url, layout())) as direct:
        copied = pooled.read(Chunk(rows=10))
        assert copied.cells == direct.read(Chunk(rows=10)).cells
    with PostgresBackend(LegacyDatabase(sessions.url, PATIENT), layout(), shards=SHARDS) as store:
        ((key, body),) = [(key, body) for (key, name, _), body in bodies(copied.cells).items() if name == "BASE"]
        cell = store.get_cell_latest(key, "BASE")
        assert cell is not None
        assert isinstance(cell.body, dict)
        assert cell.body["distance"] == SEVENTH
        assert (cell.body["status"], cell.body["request_at"]) == (NAME, "2014-08-01T00:00:00.000000Z")
        assert str(SEVENTH).encode() in body
        store.put_cell(UUID(int=1), "FREE", 1, {"name": NAME})
        free = store.get_cell(UUID(int=1), "FREE", 1)
        assert free is not None
        assert free.body == {"name": NAME}


def test_settings_are_read_back_as_they_were_set(sessions: Legacy) -> None:
    with closing(LegacyDatabase(sessions.url, PATIENT)) as database:
        found = dict.fromkeys([*HOSTILE, "lock_timeout", "statement_timeout", "plan_cache_mode"], "")
        columns = ", ".join(f"current_setting('{name}')" for name in found)
        answer = database.run(lambda connection: connection.rows(f"SELECT {columns}"), Deadline(20.0))

    assert dict(zip(found, answer[0], strict=True)) == {
        "extra_float_digits": "1",
        "DateStyle": "ISO, YMD",
        "TimeZone": "UTC",
        "IntervalStyle": "postgres",
        "bytea_output": "hex",
        "client_encoding": "UTF8",
        "synchronous_commit": "on",
        "default_transaction_isolation": "read committed",
        "search_path": "pg_catalog, pg_temp",
        "lock_timeout": "1s",
        "statement_timeout": "1min",
        "plan_cache_mode": "force_generic_plan",
    }


def test_we_know_the_servers_process_and_the_roles_search_path(sessions: Legacy) -> None:
    """A pooler makes up the process that a client is told of: no blocking session can be found by that."""
    with closing(LegacyDatabase(sessions.url, PATIENT)) as database:
        connection = database.connect_apart("test")
        assert connection.rows("SELECT pg_backend_pid()") == [(connection.pid,)]
        assert connection.search_path == HOSTILE["search_path"]
        database.part_with(connection)


def test_a_session_that_we_leave_is_as_it_was(sessions: Legacy) -> None:
    shown = "SELECT current_setting('search_path'), current_setting('extra_float_digits'), count(*) FROM trips"
    for way in WAYS.values():
        way(sessions.url)

    assert sessions.sql(shown) == [(HOSTILE["search_path"], "-3", 1)]


def test_a_session_that_lacks_a_setting_is_refused_by_its_name(legacy: Legacy) -> None:
    """Another client dropped it: that is no pooler, for the process is the one that we were told of."""
    with (
        closing(psycopg2.connect(legacy.url)) as plain,
        pytest.raises(
            SessionRefused, match=r"extra_float_digits is '-3', not '1'.*synchronous_commit is 'off'"
        ) as told,
    ):
        prepare(plain, wanted(), legacy.url)

    assert "past the pooler" in (told.value.hint or "")


@pytest.mark.parametrize("way", WAYS)
def test_a_stock_pooler_that_takes_no_settings_is_refused_by_name(
    servers: LocalServers, legacy: Legacy, way: str
) -> None:
    stock = through(pooler(servers, legacy.server, "session", {"ignore_startup_parameters": ""}), legacy)

    with pytest.raises(SessionRefused, match=r"takes no settings.*options") as told:
        WAYS[way](stock.url)

    assert "poolers.md" in (told.value.hint or "")


@pytest.mark.parametrize("reset", ["", "SELECT 1"])
def test_a_session_pooler_that_does_not_reset_is_refused(servers: LocalServers, legacy: Legacy, reset: str) -> None:
    """The next client would have our search path. The limits of a facade are long enough to find that out."""
    careless = through(pooler(servers, legacy.server, "session", {"server_reset_query": reset}), legacy)
    error: type[SchemalessError] = SessionUnclear if reset else SessionRefused
    reason = "could not be found out" if reset else "without DISCARD ALL"

    with closing(LegacyDatabase(careless.url)) as database, pytest.raises(error, match=reason):
        database.run(lambda connection: connection.rows("SELECT 1"), Deadline(2.0))
    assert issubclass(SessionUnclear, Unavailable)  # the caller repeats it


def test_a_server_that_tracks_no_statements_leaves_the_question_open(
    servers: LocalServers, sessions: Legacy, legacy: Legacy
) -> None:
    between = pooler(servers, legacy.server, "session")
    legacy.sql(f"ALTER DATABASE {legacy.name} SET track_activities = off")
    between.query("RECONNECT")
    try:
        with pytest.raises(SessionUnclear, match="could not be found out"):
            by_call(f"{sessions.url}?application_name=untold")  # an address that nothing is known of
    finally:
        legacy.sql(f"ALTER DATABASE {legacy.name} RESET track_activities")
        between.query("RECONNECT")


def test_the_question_is_put_once_in_a_while_and_not_at_every_connect(
    sessions: Legacy, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, ask = list[float](), pooler_question._reset_seconds

    def counted(*arguments: Any) -> float | None:
        asked.append(time.monotonic())
        return ask(*arguments)

    monkeypatch.setattr(pooler_question, "_reset_seconds", counted)
    monkeypatch.setattr(pooler_question, "_kept", {})
    for way in WAYS.values():
        way(sessions.url)
    first = len(asked)
    assert 1 < first <= pooler_question.ATTEMPTS, "once by itself proves nothing"

    monkeypatch.setattr(pooler_question, "KEPT_SECONDS", 0.0)
    by_call(sessions.url)
    assert len(asked) > first


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("narrows", [False, True], ids=["control", "narrows"])
def test_i8_what_one_host_of_a_url_showed_is_not_believed_of_another(
    servers: LocalServers, legacy: Legacy, monkeypatch: pytest.MonkeyPatch, way: str, *, narrows: bool
) -> None:
    """A URL with two hosts: the first is gone after a while, and the second pooler lends sessions."""
    if not narrows:
        for module in (connections, database):
            monkeypatch.setattr(module, "narrowed", lambda url, _: url)
    monkeypatch.setattr(pooler_question, "_kept", {})
    keeping = pooler(servers, legacy.server, "session", {"server_lifetime": "3601"})
    lending = transactions(servers, legacy)
    user = keeping.url.rpartition("@")[0]
    url = f"{user}@127.0.0.1:{keeping.port},127.0.0.1:{lending.port}/{legacy.name}"
    keeping.restart()
    WAYS[way](url)
    keeping.stop()
    try:
        if narrows:
            with pytest.raises(SessionRefused):
                WAYS[way](url)
        else:
            WAYS[way](url)
    finally:
        keeping.start()


# --- a session that is lent to others ---

#: Pools in which our process changes from one statement to the next, or never does.
POOLS = {
    "large": {"default_pool_size": "20"},
    "one connection": {"default_pool_size": "1"},
    "in turn": {"server_round_robin": "1", "min_pool_size": "3"},
    "always reset": {"server_reset_query_always": "1"},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("pool", POOLS)
def test_i8_a_transaction_pooler_is_refused_and_nothing_is_set_there(
    servers: LocalServers, legacy: Legacy, pool: str, way: str
) -> None:
    between = transactions(servers, legacy, **POOLS[pool])
    service = through(between, legacy)

    with pytest.raises(SessionRefused, match="transaction mode") as told:
        WAYS[way](service.url)

    assert "Connect past the pooler" in (told.value.hint or "")
    assert untouched(between, service)


@contextmanager
def busy(service: Legacy) -> Iterator[None]:
    """Other clients come and go, and hold sessions."""
    with closing(service.connect()) as inside, closing(service.connect(autocommit=True)) as quick:
        rows(inside, "SELECT 1")
        rows(quick, "SELECT 1")
        yield
        assert rows(quick, "SELECT count(*) FROM trips") == [(1,)]


def test_others_in_the_pool_hide_nothing(servers: LocalServers, legacy: Legacy) -> None:
    between = transactions(servers, legacy)
    service = through(between, legacy)

    for _ in range(5):
        with busy(service), pytest.raises(SessionRefused, match="transaction mode"):
            by_call(service.url)

    assert untouched(between, service)


@pytest.mark.parametrize("chance", [2.0, pooler_question.CHANCE], ids=["control", "asks again"])
def test_i8_another_clients_discard_all_is_not_taken_for_a_reset(
    servers: LocalServers, legacy: Legacy, monkeypatch: pytest.MonkeyPatch, chance: float
) -> None:
    """It has our process whenever the second client comes, and cleans that one's up at the worst moment."""
    monkeypatch.setattr(pooler_question, "CHANCE", chance)
    service = through(transactions(servers, legacy, server_lifetime="3600"), legacy)
    url = f"{service.url}?application_name=chance{chance}"  # an address that nothing is known of
    with closing(service.connect()) as inside, closing(service.connect(autocommit=True)) as cleaning:

        def hold() -> None:
            rows(inside, "SELECT 1")

        def clean() -> None:
            hold()
            rows(cleaning, "DISCARD ALL")
            inside.rollback()

        with (
            closing(psycopg2.connect(service.url)) as ours,
            doing_at("pooler.before_mark", hold),
            doing_at("pooler.marked", inside.rollback),
            doing_at("pooler.left", clean),
        ):
            ours.autocommit = True
            ((pid,),) = rows(ours, "SELECT pg_backend_pid()")
            if chance > 1:
                pooler_question.refuse_shared(partial(rows, ours), pid, url, Deadline(20.0))
                return
            with pytest.raises(SessionRefused, match="transaction mode"):
                pooler_question.refuse_shared(partial(rows, ours), pid, url, Deadline(20.0))


def untouched(between: PgBouncer, service: Legacy) -> bool:
    """Whether every session of the pool is the role's own, and has none of our statements."""
    query = """SELECT pg_backend_pid(), current_setting('search_path'), current_setting('extra_float_digits'),
        current_setting('synchronous_commit'), (SELECT count(*) FROM pg_prepared_statements),
        (SELECT count(*) FROM trips)"""
    clients, seen = [], set[Any]()

    def unseen() -> set[Any]:
        """Without those that have no process yet, and those that were closed meanwhile: no client is given them."""
        servers = [server for server in between.query("SHOW SERVERS") if server["database"] == service.name]
        return {server["remote_pid"] for server in servers} - {0} - seen

    try:
        while unseen():
            clients.append(service.connect())
            ((pid, *found),) = rows(clients[-1], query)  # and its transaction stays open, so that the next is another
            assert found == [HOSTILE["search_path"], "-3", "off", 0, 1]
            seen.add(pid)
    finally:
        for client in clients:
            client.close()
    return bool(seen)


def test_control_in_a_pool_of_one_the_process_tells_nothing(servers: LocalServers, legacy: Legacy) -> None:
    """Two statements outside of a transaction are of one process: without a second client all looks well."""
    service = through(transactions(servers, legacy, default_pool_size="1"), legacy)

    with closing(service.connect(autocommit=True)) as alone:
        asked = [rows(alone, "SELECT pg_backend_pid(), current_setting('search_path')") for _ in range(5)]

    assert len({pid for ((pid, _),) in asked}) == 1


def test_control_without_the_question_other_services_lose_their_tables(
    servers: LocalServers, legacy: Legacy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "refuse_shared", lambda *_: None)
    between = pooler(servers, legacy.server, "transaction", {"default_pool_size": "1", "server_lifetime": "3600"})
    service = through(between, legacy)

    with closing(LegacyDatabase(service.url, PATIENT)) as database:
        database.run(lambda connection: connection.rows("SELECT 1"), Deadline(20.0))
        with pytest.raises(psycopg2.errors.UndefinedTable, match='relation "trips" does not exist'):
            service.sql("SELECT count(*) FROM trips")
    between.query("RECONNECT")
