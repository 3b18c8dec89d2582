"""What makes a captured row cheap for its writer, and what that must not cost: I9, and writers who wait for nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psycopg2
import pytest
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from tests.facades import Migration
from tests.legacy import FLAVOURS, Blocked, Legacy, captured, legacy_server, refused
from tests.scale import SCALE
from tests.standbys import FailingOver, fail_over
from tests.stores import Stores
from tripstore.backends.postgres.capture import migrate
from tripstore.backends.postgres.sqlstates import GATE_SHUT
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

#: Postgres reads a CHECK's text and plans it in each statement that writes its table, and capture's are of one row.
CHECKS = """
SELECT conrelid::regclass::text FROM pg_constraint
WHERE contype = 'c' AND conrelid::regclass::text IN ('tripstore.queue', 'tripstore.log', 'tripstore.tomb',
  'tripstore.kept', 'tripstore.cell', 'tripstore.pair')
"""
#: The tables as revision 0009 left them.
CHECKED = """
ALTER TABLE tripstore.queue ADD CONSTRAINT queue_parked_check CHECK (parked IN ('conflict', 'unreadable', 'refused'));
UPDATE tripstore.alembic_version SET version_num = '0009'
"""


@pytest.fixture(params=FLAVOURS if SCALE >= 1 else FLAVOURS[:1])
def legacy(request: pytest.FixtureRequest, servers: LocalServers) -> Legacy:
    flavour: Flavour = request.param
    return captured(legacy_server(servers, flavour))


@pytest.fixture(params=FLAVOURS if SCALE >= 1 else FLAVOURS[:1])
def failing_over(request: pytest.FixtureRequest, servers: LocalServers, stores: Stores) -> Iterator[FailingOver]:
    with fail_over(servers, stores, request.param) as made:
        made.hands.carry()
        yield made


def test_no_table_that_capture_writes_has_a_check(legacy: Legacy) -> None:
    assert legacy.sql(CHECKS) == []


def test_an_upgrade_takes_the_check_away_and_no_writer_waits_for_it(legacy: Legacy) -> None:
    """One writer has queued a change and does not end: the next one waits for one try of the lock at most."""
    legacy.sql(CHECKED)
    assert legacy.sql(CHECKS) == [("tripstore.queue",)]
    upgrade = threading.Thread(target=upgraded, args=[legacy])
    with legacy.connect() as connection, connection.cursor() as cursor:
        cursor.execute("INSERT INTO trips (status) VALUES ('held')")
        upgrade.start()
        for n in range(20):
            legacy.sql("SET statement_timeout = '1s'; INSERT INTO trips (status) VALUES (%s)", str(n))
        assert upgrade.is_alive()
    upgrade.join()

    assert legacy.sql(CHECKS) == []
    assert legacy.sql("SELECT count(*) FROM tripstore.queue WHERE column_name = 'BASE'") == [(21,)]


def test_control_a_lock_that_waits_makes_writers_wait(legacy: Legacy) -> None:
    with legacy.connect() as other:
        with legacy.connect() as connection, connection.cursor() as cursor:
            cursor.execute("INSERT INTO trips (status) VALUES ('held')")
            lock = Blocked(legacy, other, "LOCK TABLE tripstore.queue IN ACCESS EXCLUSIVE MODE")
            lock.wait_until_it_waits()
            with pytest.raises(psycopg2.errors.LockNotAvailable):
                legacy.sql("SET lock_timeout = '300ms'; INSERT INTO trips (status) VALUES ('next')")
        lock.result()


def upgraded(legacy: Legacy) -> None:
    with legacy.ours() as connection:
        migrate(connection)


def test_i9_a_session_that_was_open_on_the_standby_writes_nothing_before_the_promotion_is_accepted(
    failing_over: FailingOver,
) -> None:
    """Postgres plans the comparison of timelines once in a session: no plan may be older than the promotion."""
    hands, session = on_the_standby(failing_over, guards=True)
    with session.cursor() as cursor:
        with refused(GATE_SHUT):
            cursor.execute("UPDATE trips SET fare = 3")
        hands.duo.watch.look()  # accepts it
        cursor.execute("UPDATE trips SET fare = 3")
        assert cursor.rowcount > 0


def test_control_without_the_guard_such_a_session_writes(failing_over: FailingOver) -> None:
    _, session = on_the_standby(failing_over, guards=False)
    with session.cursor() as cursor:
        cursor.execute("UPDATE trips SET fare = 3")
        assert cursor.rowcount > 0


def on_the_standby(failing_over: FailingOver, *, guards: bool) -> tuple[Migration, Connection]:
    """A session that has read on the standby, and has tried to write, before that is promoted."""
    hands = failing_over.shadowed(guards=guards)
    session = psycopg2.connect(failing_over.pair.url)
    session.autocommit = True
    with session.cursor() as cursor, pytest.raises(psycopg2.errors.ReadOnlySqlTransaction):
        cursor.execute("SELECT count(*) FROM trips; UPDATE trips SET fare = 2")
    failing_over.lose_the_primary()
    return hands, session
