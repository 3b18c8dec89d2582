"""A probe on real Postgres: it measures what a service would wait for, reads and does nothing else, and always ends."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from uuid import uuid4

import psycopg2
import pytest

from schemaless_core.errors import InvalidRequest, Unavailable
from tests.chaos.actors import wait_until
from tests.legacy_databases import FLAVOURS, PATIENT, new_database, run
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.backends.postgres.wire.probe import APPLICATION, ServiceProbe
from tripstore.local.servers import LocalServers

TABLES = """
CREATE TABLE fares (id int PRIMARY KEY, fare int);
INSERT INTO fares SELECT n, n FROM generate_series(1, 10) AS n;
CREATE SEQUENCE numbers;
CREATE FUNCTION raise_fares() RETURNS int LANGUAGE sql AS 'UPDATE fares SET fare = fare + 1 RETURNING 1';
CREATE SCHEMA ops; CREATE TABLE ops.fares (id int)
"""
READS = "SELECT fare FROM fares WHERE id = 7"
DEADLINE_SECONDS = 0.3
#: Of this database: other tests have others.
_SESSIONS = f"""
SELECT pid, state FROM pg_stat_activity WHERE datname = current_database() AND application_name = '{APPLICATION}'
ORDER BY pid"""


@pytest.fixture(params=FLAVOURS, scope="module")
def url(request: pytest.FixtureRequest, servers: LocalServers) -> str:
    return new_database(servers, FLAVOURS[request.param], TABLES)


@pytest.fixture
def database(url: str) -> Iterator[LegacyDatabase]:
    with closing(LegacyDatabase(url, PATIENT)) as opened:
        yield opened


def probe(database: LegacyDatabase, statement: str = READS, seconds: float = DEADLINE_SECONDS) -> ServiceProbe:
    return ServiceProbe(database, statement, seconds)


@contextmanager
def locked(url: str, table: str = "fares") -> Iterator[None]:
    """What a migration of the company's may do: services wait for it."""
    with closing(psycopg2.connect(url)) as holding:
        holding.cursor().execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        yield


def sessions(url: str) -> list[tuple[object, ...]]:
    return run(url, _SESSIONS)


def test_it_takes_as_long_as_services_wait_and_no_longer_than_its_deadline(url: str, database: LegacyDatabase) -> None:
    """Control: without the lock the same statement is quick, on the same connection."""
    with closing(probe(database)) as measured:
        assert measured.measure() < DEADLINE_SECONDS
        ((pid, _state),) = sessions(url)
        with locked(url):
            assert DEADLINE_SECONDS <= measured.measure() < DEADLINE_SECONDS + 5
            wait_until("no session waits for the lock", lambda: [each for each in sessions(url) if each[1] == "idle"])
        assert measured.measure() < DEADLINE_SECONDS
        assert [each[0] for each in sessions(url)] == [pid], "the connection was kept"
    wait_until("its session has ended", lambda: sessions(url) == [])


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("SELEC 1", "syntax error"),
        ("", "cannot open|empty"),
        ("SELECT fare FROM fare", 'relation "fare" does not exist'),
        ("SELECT 1 / 0", "division by zero"),
        ("SELECT 1; DELETE FROM fares", "cannot open multi-query plan as cursor"),
        ("COMMIT; DELETE FROM fares", "cannot open multi-query plan as cursor|not.*cursor"),
        ("COMMIT", "cannot open .* as cursor"),
        ("DELETE FROM fares", "cannot open DELETE query as cursor|read-only"),
        ("DELETE FROM fares RETURNING id", "cannot open DELETE query as cursor|read-only"),
        ("WITH gone AS (DELETE FROM fares RETURNING id) SELECT * FROM gone", "data-modifying|read-only|cursor"),
        ("SELECT raise_fares()", "cannot execute UPDATE in a read-only transaction"),
        ("SELECT nextval('numbers')", r"cannot execute nextval\(\) in a read-only transaction"),
        ("SELECT id FROM fares FOR UPDATE", "cannot execute SELECT FOR UPDATE in a read-only transaction"),
        ("SELECT set_config('transaction_read_only', 'off', true), raise_fares()", "read-write mode|read-only"),
        ("SELECT pg_sleep(20)", f"no answer within {DEADLINE_SECONDS:g} s"),
    ],
)
def test_what_is_no_statement_that_reads_in_its_time_is_refused(
    url: str, database: LegacyDatabase, statement: str, reason: str
) -> None:
    before = run(url, "SELECT * FROM fares ORDER BY id")

    with pytest.raises(InvalidRequest, match=reason) as refused:
        probe(database, statement).check()

    assert refused.value.message.startswith("The probe (throttle.probe) is refused: ")
    assert refused.value.hint
    assert run(url, "SELECT * FROM fares ORDER BY id") == before
    wait_until("no session is left", lambda: sessions(url) == [])


def test_control_a_sound_one_is_not_refused(database: LegacyDatabase) -> None:
    probe(database).check()
    probe(database, "EXPLAIN SELECT 1").check()
    probe(database, "TABLE fares;").check()
    probe(database, "SELECT '100 %s', 5 % 3").check()


def test_one_without_rights_is_refused_and_a_role_finds_names_as_its_services_do(url: str) -> None:
    role = f"probing_{uuid4().hex[:8]}"
    run(url, f"CREATE ROLE {role} LOGIN PASSWORD 'x'; ALTER ROLE {role} SET search_path = ops")
    run(url, f"GRANT USAGE ON SCHEMA ops TO {role}; GRANT SELECT ON ops.fares TO {role}")
    with closing(LegacyDatabase(re.sub(r"//[^@]*@", f"//{role}:x@", url), PATIENT)) as database:
        probe(database, "SELECT id FROM fares").check()
        with pytest.raises(InvalidRequest, match="permission denied for table fares"):
            probe(database, "SELECT id FROM public.fares").check()


def test_a_connection_that_is_ended_is_unknown_once_and_then_made_anew(url: str, database: LegacyDatabase) -> None:
    """I12 for throttles: it is neither quick nor slow."""
    with closing(probe(database)) as measured:
        measured.measure()
        ((pid, _state),) = sessions(url)
        run(url, "SELECT pg_terminate_backend(%s)", pid)
        wait_until("it is gone", lambda: sessions(url) == [])

        with pytest.raises(Unavailable):
            measured.measure()
        assert measured.measure() < DEADLINE_SECONDS


def test_one_that_an_operator_cancels_is_not_taken_for_slow(url: str, database: LegacyDatabase) -> None:
    with closing(probe(database, seconds=20.0)) as measured, ThreadPoolExecutor(1) as pool, locked(url):
        measuring = pool.submit(measured.measure)
        wait_until("it waits", lambda: [each for each in sessions(url) if each[1] == "active"])
        run(url, f"SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE application_name = '{APPLICATION}'")
        with pytest.raises(Unavailable, match="took too long"):
            measuring.result()
