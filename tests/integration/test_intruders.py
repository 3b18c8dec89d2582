"""A role that may only connect takes the locks of the hand-over: writers wait, `doctor` names it, ours end it (I10)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager

import psycopg2
import pytest
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from tests.facades import migration
from tests.legacy import Blocked, Legacy, captured, legacy_server
from tests.legacy_databases import PATIENT
from tests.stores import Stores
from tripstore.backends.postgres.capture.functions.gate import BARRIER, DOOR, lock_class
from tripstore.backends.postgres.handover.examination import examine_handover
from tripstore.backends.postgres.wire.connections import rows
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.cli.status.migration import look_at_migration
from tripstore.local.servers import LocalServers
from tripstore.ports.control import RealControlPort
from tripstore.store import TripStore

K = lock_class("trips")
#: Roles are the server's, and other tests have theirs.
STRANGER = """
DO $$ BEGIN
    CREATE ROLE intruder LOGIN PASSWORD 'secret';
EXCEPTION WHEN duplicate_object OR unique_violation THEN
    NULL;
END $$
"""


@pytest.fixture
def legacy(servers: LocalServers) -> Legacy:
    made = captured(legacy_server(servers, "machine"))
    made.sql(STRANGER)
    return made


@contextmanager
def intruding(legacy: Legacy, login: str = "intruder:secret", name: str = "prank") -> Iterator[Connection]:
    """A session that knows the name of the datastore, and nothing else."""
    url = re.sub(r"//[^@]*@", f"//{login}@", legacy.url)
    with closing(psycopg2.connect(url, application_name=name)) as connection:
        connection.autocommit = True
        yield connection


def said(legacy: Legacy) -> list[str]:
    with legacy.ours() as connection:
        return [each.reason for each in examine_handover(connection, "trips") if each.where == "lock"]


def take(connection: Connection, key: int, number: int) -> int:
    rows(connection, "SELECT pg_advisory_lock(%s, %s)", (key, number))
    return connection.info.backend_pid


@pytest.mark.parametrize("number", [BARRIER, DOOR])
def test_doctor_names_the_holder(legacy: Legacy, number: int) -> None:
    with intruding(legacy) as connection:
        pid = take(connection, K, number)

        (found,) = said(legacy)

    assert found.startswith(f"pid {pid} (prank) of intruder, which is no role of tripstore's, holds the lock")
    assert said(legacy) == []


def ours(legacy: Legacy) -> str:
    """The login of tripstore."""
    return legacy.url.split("//")[1].split("@")[0]


@pytest.mark.parametrize("has_rights", [False, True])
def test_a_session_that_waits_for_it_is_named_as_well_for_writers_wait_behind_it(
    legacy: Legacy, *, has_rights: bool
) -> None:
    login = ours(legacy) if has_rights else "intruder:secret"
    with (
        closing(legacy.connect()) as writer,
        closing(legacy.connect(autocommit=True)) as late,
        intruding(legacy, login) as connection,
    ):
        rows(writer, "UPDATE trips SET status = 'writes'")
        waiting = Blocked(legacy, connection, "SELECT pg_advisory_lock(%s, %s)", K, BARRIER)
        waiting.wait_until_it_waits()
        behind = Blocked(legacy, late, "INSERT INTO trips (status) VALUES ('waits')")
        behind.wait_until_it_waits()

        (found,) = said(legacy)
        writer.rollback()
        waiting.result()
        rows(connection, "SELECT pg_advisory_unlock_all()")
        behind.result()

    assert "waits for the lock" in found
    assert ("is no process" if has_rights else "is no role") in found


@pytest.mark.parametrize("number", [BARRIER, DOOR])
def test_a_person_with_the_rights_of_tripstore_is_named(legacy: Legacy, number: int) -> None:
    """As a superuser has them in `psql`. What calls itself ours and may not put a cell is no more ours."""
    with intruding(legacy, ours(legacy), "psql") as connection:
        pid = take(connection, K, number)
        (found,) = said(legacy)
        assert found.startswith(f"pid {pid} (psql) of postgres, but is no process of tripstore's, holds the lock")
        rows(connection, "SELECT pg_advisory_unlock_all()")
    with intruding(legacy, name="tripstore") as connection:
        take(connection, K, number)
        (found,) = said(legacy)
        assert "(tripstore) of intruder, which is no role of tripstore's, holds the lock" in found


def test_i10_writers_wait_until_a_process_of_ours_ends_it(legacy: Legacy) -> None:
    control = RealControlPort(LegacyDatabase(legacy.url, PATIENT), "trips")
    with intruding(legacy) as connection, closing(legacy.connect(autocommit=True)) as writer:
        take(connection, K, BARRIER)
        waiting = Blocked(legacy, writer, "INSERT INTO trips (status) VALUES ('waits') RETURNING status")
        waiting.wait_until_it_waits()
        assert said(legacy) != []

        control.obey()

        assert waiting.result() == [("waits",)]
        assert said(legacy) == []


def test_control_locks_of_another_program_or_of_ours_are_no_finding(legacy: Legacy) -> None:
    with intruding(legacy) as other, intruding(legacy, ours(legacy), "tripstore, layout abc") as one:
        take(other, K + 1, BARRIER)
        take(other, K, DOOR + 1)
        take(one, K, BARRIER)

        assert said(legacy) == []


def test_status_names_it(servers: LocalServers, stores: Stores) -> None:
    with migration(servers, stores) as made, closing(made.connect()) as store:
        made.legacy.sql(STRANGER)
        key = lock_class(made.document["datastore"])
        before = advice(store)
        with intruding(made.legacy) as holder, intruding(made.legacy, ours(made.legacy), "psql") as person:
            pid = take(holder, key, DOOR)
            waiting = Blocked(made.legacy, person, "SELECT pg_advisory_lock(%s, %s)", key, DOOR)
            waiting.wait_until_it_waits()
            seen = advice(store)
            rows(holder, "SELECT pg_advisory_unlock_all()")
            waiting.result()

    (held, waits) = [line for line in seen if line not in before]
    assert held.startswith(f"pid {pid} (prank) of intruder")
    assert "(psql)" in waits
    assert "waits for the lock" in waits


def advice(store: TripStore) -> list[str]:
    seen = look_at_migration(store.facade)
    assert seen is not None
    return seen.advice
