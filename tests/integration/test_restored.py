"""Postgres is restored from a base backup to a point in time: as shut as a promoted standby, and as honest (I1, I9)."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg2
import pytest

from schemaless_core import Cell
from tests.facades import Migration
from tests.standbys import FAILING_OVER, FailingOver, fail_over, restore
from tests.stores import Stores
from tripstore.backends.postgres.errors import PostgresNotAccepted
from tripstore.handover import accept
from tripstore.handover.accept import EPOCHS_PER_TIMELINE
from tripstore.handover.authority import Backend
from tripstore.handover.steps import run
from tripstore.local.servers import LocalServers
from tripstore.local.standby import StandbyServer
from tripstore.migration.losses.losses import LookStart, Losses
from tripstore.phase import Phase
from tripstore.ports.control import RealControlPort

KEPT, LOST = "20.00", "30.00"
POINT = "before it went wrong"


@pytest.fixture(params=FAILING_OVER)
def failing_over(request: pytest.FixtureRequest, servers: LocalServers, stores: Stores) -> Iterator[FailingOver]:
    with fail_over(servers, stores, request.param) as made:
        yield made


def backed_up(failing_over: FailingOver, servers: LocalServers) -> tuple[Migration, StandbyServer]:
    """In shadow; a backup of that, then a change, then the point to which it will be restored."""
    hands = failing_over.hands
    failing_over.follow()
    hands.carry()
    control = hands.duo.ports.control
    assert isinstance(control, RealControlPort)
    assert control.guard() == []
    hands.phase(Phase.SHADOW)
    hands.duo.watch.close()
    backup = servers.standby(f"{failing_over.pair.standby.name}-backup", failing_over.pair.primary, start=False)
    failing_over.pair.set_fare(KEPT)
    failing_over.pair.primary.query("SELECT pg_create_restore_point(%s)", POINT)
    return hands, backup


def restored(failing_over: FailingOver, backup: StandbyServer) -> None:
    failing_over.pair.primary.kill()
    restore(backup, failing_over.pair.primary, POINT)
    failing_over.proxy.lead_to(backup.port)


def is_open_to_sql(failing_over: FailingOver, server: StandbyServer) -> bool:
    """Whether a program of the company can write there."""
    update = "UPDATE trips SET fare = fare + 1 WHERE trip_uuid = %s"
    with psycopg2.connect(f"{server.url}/{failing_over.pair.legacy.name}") as connection:
        try:
            connection.cursor().execute(update, (str(failing_over.pair.row_key),))
        except psycopg2.DatabaseError:
            return False
    return True


def test_i1_i9_a_restored_postgres_is_shut_until_it_is_accepted_and_what_it_lacks_is_listed(
    failing_over: FailingOver, servers: LocalServers
) -> None:
    hands, backup = backed_up(failing_over, servers)
    failing_over.pair.set_fare(LOST)
    assert failing_over.relay()
    restored(failing_over, backup)

    assert not is_open_to_sql(failing_over, backup)
    hands.duo.watch.look()

    assert hands.duo.ports.control.authority().epoch == 2 * EPOCHS_PER_TIMELINE + 2
    assert failing_over.fare() == KEPT
    losses = Losses(hands.facade)
    job = losses.begin(LookStart())
    losses.serve(job)
    (found,) = losses.listed(job.id, open_only=True)
    assert found.row_key == failing_over.pair.row_key
    losses.take_back(job)
    assert failing_over.fare() == LOST
    assert is_open_to_sql(failing_over, backup)


def test_i9_a_restored_postgres_that_lacks_a_switch_is_shut_and_schemaless_stays_the_authority(
    failing_over: FailingOver, servers: LocalServers
) -> None:
    hands, backup = backed_up(failing_over, servers)
    hands.switch()
    later = Cell(failing_over.pair.row_key, "FREE", 1, "acknowledged by Schemaless")
    failing_over.store.put_cell(*later.key, later.body)
    restored(failing_over, backup)

    assert not is_open_to_sql(failing_over, backup)
    hands.duo.watch.look()
    with pytest.raises(PostgresNotAccepted):
        hands.duo.ports.control.authority()

    acceptance = run(accept.accept(hands.duo.ports, settles=True))

    assert (acceptance.is_accepted, acceptance.has_lost) == (True, True)
    assert acceptance.authority.is_open_for(Backend.STORE)
    hands.duo.watch.look()
    hands.carry()
    assert hands.duo.legacy.get_cell(*later.key) == later
    assert not is_open_to_sql(failing_over, backup)
