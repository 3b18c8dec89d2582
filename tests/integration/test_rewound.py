"""The old primary comes back: rewound it is a standby like any other; as it was, nothing of ours believes it (I9)."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg2
import pytest

from schemaless_core import Cell
from schemaless_core.control.audit import AuditLog
from tests.chaos.actors import wait_until
from tests.facades import Migration
from tests.standbys import FAILING_OVER, TRUE, FailingOver, cut_off, fail_over
from tests.stores import Stores
from tripstore.backends.postgres.errors import PostgresNotAccepted
from tripstore.handover.accept import EPOCHS_PER_TIMELINE
from tripstore.handover.acceptance import look, settle_lost
from tripstore.handover.authority import Backend
from tripstore.local.postgres import give
from tripstore.local.servers import LocalServers
from tripstore.local.standby import StandbyServer
from tripstore.local.template import run as run_program
from tripstore.phase import Phase
from tripstore.ports.control import RealControlPort

LOST, LATER = "20.00", "30.00"


@pytest.fixture(params=FAILING_OVER)
def failing_over(request: pytest.FixtureRequest, servers: LocalServers, stores: Stores) -> Iterator[FailingOver]:
    with fail_over(servers, stores, request.param) as made:
        yield made


def promoted_beside(failing_over: FailingOver, *others: StandbyServer) -> Migration:
    """In shadow: the standby is promoted and accepted, and the old primary has a change that it lacks."""
    hands = failing_over.hands
    failing_over.pair.legacy.sql("ALTER SYSTEM SET wal_log_hints = on")  # what pg_rewind asks for
    failing_over.pair.primary.restart()
    failing_over.follow()
    hands.carry()
    control = hands.duo.ports.control
    assert isinstance(control, RealControlPort)
    assert control.guard() == []
    hands.phase(Phase.SHADOW)
    hands.duo.watch.close()
    for standby in (failing_over.pair.standby, *others):
        standby.catch_up()
        cut_off(standby)
    failing_over.pair.set_fare(LOST)
    failing_over.proxy.lead_to(failing_over.pair.standby.port)
    failing_over.pair.standby.promote()
    hands.duo.watch.look()
    return hands


def rewind(failing_over: FailingOver) -> None:
    """Make the old primary a standby of the promoted server."""
    old, new = failing_over.pair.primary, failing_over.pair.standby
    new.query("ALTER SYSTEM RESET primary_conninfo")
    new.query("CHECKPOINT")
    old.stop()
    program, data = old.program("pg_rewind"), old.place.data
    assert program is not None
    command = [str(program), f"--target-pgdata={data}", f"--source-server={new.url}/postgres", "--no-sync"]
    run_program(command, account=old.run_as)
    with open(data / "postgresql.conf", "a", encoding="utf-8") as file:
        file.write(f"port = '{old.port}'\nprimary_conninfo = '{new.url}'\n")
    (data / "standby.signal").touch()
    if old.run_as is not None:
        give(data, old.run_as)
    old.start()


def fare_at(failing_over: FailingOver, url: str) -> object:
    with psycopg2.connect(f"{url}/{failing_over.pair.legacy.name}") as connection, connection.cursor() as cursor:
        cursor.execute("SELECT fare::text FROM trips WHERE trip_uuid = %s", (str(failing_over.pair.row_key),))
        return cursor.fetchall()[0][0]


def test_i9_an_old_primary_that_was_rewound_follows_and_may_be_promoted_again(failing_over: FailingOver) -> None:
    hands = promoted_beside(failing_over)
    old, new = failing_over.pair.primary, failing_over.pair.standby
    rewind(failing_over)
    with psycopg2.connect(failing_over.pair.url) as connection:
        connection.cursor().execute(
            "UPDATE trips SET fare = %s WHERE trip_uuid = %s", (LATER, str(failing_over.pair.row_key))
        )
    written = new.query("SELECT pg_current_wal_flush_lsn()::text AS lsn")[0]["lsn"]
    is_here = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn AS is_here"
    wait_until("the old primary follows", lambda: bool(old.query(is_here, written)[0]["is_here"]))
    assert fare_at(failing_over, old.url) == LATER

    failing_over.proxy.lead_to(old.port)
    new.kill()
    old.query("SELECT pg_promote(true)")
    hands.duo.watch.look()

    row = hands.duo.ports.control.authority()
    assert row.epoch == 3 * EPOCHS_PER_TIMELINE + 2
    assert failing_over.fare() == LATER


def test_i9_an_old_primary_that_comes_back_as_it_was_is_shut_by_a_process_that_knows_better(
    failing_over: FailingOver,
) -> None:
    """It has its own timeline, and believes itself. Control: until a process of ours looks it takes what SQL writes.

    Led to it for good, the operator has it accepted. The shards are at an epoch of the promoted server: it goes above.
    """
    hands = promoted_beside(failing_over)
    failing_over.proxy.lead_to(failing_over.pair.primary.port)
    failing_over.pair.set_fare(LATER)  # its SQL is let in

    hands.duo.watch.look()

    with pytest.raises(psycopg2.DatabaseError, match="are shut off"):
        failing_over.pair.set_fare(LOST)
    with pytest.raises(PostgresNotAccepted):
        hands.duo.ports.control.authority()
    failing_over.proxy.lead_to(failing_over.pair.standby.port)
    assert hands.duo.ports.control.authority().epoch == 2 * EPOCHS_PER_TIMELINE + 2
    assert failing_over.fare() == TRUE

    failing_over.pair.standby.kill()
    failing_over.proxy.lead_to(failing_over.pair.primary.port)
    hands.duo.watch.look()
    with pytest.raises(PostgresNotAccepted):  # the address may have been led there by mistake
        hands.duo.ports.control.authority()
    assert look(hands.duo.ports).in_the_way.startswith("another Postgres was accepted meanwhile")
    settled = settle_lost(hands.duo.ports, AuditLog(hands.facade.store.control), "the other one is gone")
    assert settled.is_accepted
    hands.duo.watch.look()

    row = hands.duo.ports.control.authority()
    assert row.is_open_for(Backend.LEGACY)
    assert row.epoch == 3 * EPOCHS_PER_TIMELINE + 2
    assert failing_over.fare() == LATER
    failing_over.pair.set_fare(LOST)
    assert failing_over.relay()
    assert failing_over.mirrored() == LOST


def test_i9_i12_a_second_standby_of_the_same_timeline_is_given_no_epoch_of_the_first(
    failing_over: FailingOver, servers: LocalServers
) -> None:
    """Both are promoted to timeline 2. What the first one decided, and what was looked for by its epoch, is void."""
    failing_over.follow()  # or a copy of the primary leaves behind what a paused standby has yet to get
    second = servers.standby(f"{failing_over.pair.standby.name}-2", failing_over.pair.primary)
    second.catch_up()
    hands = promoted_beside(failing_over, second)
    first = hands.duo.ports.control.authority()
    closing = first.closing("of the first")
    assert hands.duo.ports.control.close(first, closing)
    failing_over.pair.standby.kill()
    failing_over.proxy.lead_to(second.port)
    second.promote()

    hands.duo.watch.look()
    with pytest.raises(PostgresNotAccepted):
        hands.duo.ports.control.authority()
    assert settle_lost(hands.duo.ports, AuditLog(hands.facade.store.control), "both are lost").is_accepted
    hands.duo.watch.look()

    stated = hands.duo.ports.control.stated_authority()
    assert stated.is_accepted
    assert stated.timeline == 2
    assert stated.row.epoch == 3 * EPOCHS_PER_TIMELINE + 2
    # What the first one had decided, and what its relay had claimed, comes late.
    store = hands.duo.ports.store
    assert all(store.open(server, closing.decided().epoch, None) for server in store.servers)
    seen = hands.facade.store.authority.find()
    assert seen is not None
    assert (seen.epoch, seen.shards_open) == (3 * EPOCHS_PER_TIMELINE + 1, 0)
    assert store.copy([Cell(failing_over.pair.row_key, "FREE", 1, "of the first")], first.epoch) == ()
    failing_over.store.put_cell(failing_over.pair.row_key, "FREE", 1, "of the second")
    assert failing_over.relay()
    assert hands.facade.store.get_cell_latest(failing_over.pair.row_key, "FREE") is not None
