"""The company's services may go through a PgBouncer of either mode: capture, gate and barrier are of transactions.

I8: every change is captured. I9: no writer is inside when the gate is shut.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from uuid import UUID, uuid4

import psycopg2
import pytest

from tests.facades import Migration, migration
from tests.integration.gate.gates import Writers, session, set_to, switched
from tests.legacy import FLAVOURS, Legacy, captured, legacy_server
from tests.poolers import MODES, pooler, through
from tests.stores import Stores
from tripstore.backends.postgres import sqlstates
from tripstore.backends.postgres.capture.functions.gate import BARRIER, GateState, lock_class
from tripstore.backends.postgres.wire.connections import rows
from tripstore.handover import switch
from tripstore.handover.steps import run
from tripstore.local.pgbouncer import PoolMode
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers
from tripstore.phase import Phase

K = lock_class("trips")


@pytest.fixture(scope="module", params=FLAVOURS)
def legacy(request: pytest.FixtureRequest, servers: LocalServers) -> Legacy:
    flavour: Flavour = request.param
    return captured(legacy_server(servers, flavour))


@pytest.fixture(scope="module", params=MODES)
def mode(request: pytest.FixtureRequest) -> PoolMode:
    found: PoolMode = request.param
    return found


@pytest.fixture
def services(servers: LocalServers, legacy: Legacy, mode: PoolMode) -> Iterator[Legacy]:
    """The company as its services see it: two sessions of the server for all of them."""
    set_to(legacy, GateState.OPEN)
    yield through(pooler(servers, legacy.server, mode, {"default_pool_size": "2"}), legacy)
    set_to(legacy, GateState.OPEN)


def test_i8_every_change_through_a_pooler_is_captured(services: Legacy) -> None:
    key = uuid4()
    with session(services) as one:
        rows(one, "SET LOCAL extra_float_digits = -3; SET LOCAL search_path = public")
        rows(one, "INSERT INTO trips (trip_uuid, status, distance) VALUES (%s, 'a', 1::float8 / 7)", (str(key),))
        one.commit()
    with session(services) as other:
        rows(other, "UPDATE trips SET status = 'b' WHERE trip_uuid = %s", (str(key),))
        other.commit()
        rows(other, "UPDATE trips SET status = 'never' WHERE trip_uuid = %s", (str(key),))
        other.rollback()
    services.sql("DELETE FROM trips WHERE trip_uuid = %s", str(key))

    assert services.versions(key) == [(1, "a"), (2, "b"), (3, None)]
    assert services.changes(key, "BASE")[0].row["distance"] == str(1 / 7)  # type: ignore[index]  # it is there


def test_i9_a_shut_gate_refuses_through_a_pooler_and_the_session_serves_the_next(
    services: Legacy, legacy: Legacy
) -> None:
    set_to(legacy, GateState.CLOSED)
    for _ in range(3):
        with pytest.raises(psycopg2.Error) as refused:
            services.trip("refused")
        assert refused.value.pgcode == sqlstates.GATE_SHUT

    set_to(legacy, GateState.OPEN)
    _, key = services.trip("let in")
    assert services.versions(key) == [(1, "let in")]


def test_i9_the_barrier_waits_for_a_transaction_in_a_pooler_and_not_for_its_session(
    services: Legacy, legacy: Legacy
) -> None:
    take = f"SELECT pg_try_advisory_xact_lock({K}, {BARRIER})"
    with closing(services.connect()) as inside:
        rows(inside, "INSERT INTO trips (status) VALUES ('inside')")
        assert legacy.sql(take) == [(False,)]
        inside.commit()

        # The client is still there, and in session mode it keeps its session: the lock has gone with the transaction.
        assert legacy.sql(take) == [(True,)]


@pytest.fixture(params=["postgres", "postgres18"])
def migrated(request: pytest.FixtureRequest, servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    with migration(servers, stores, postgres=request.param) as made:
        made.phase(Phase.DUALWRITE)
        yield made


def test_i9_a_switch_while_services_write_through_a_pooler_loses_nothing(
    servers: LocalServers, migrated: Migration, mode: PoolMode
) -> None:
    services = through(pooler(servers, migrated.legacy.server, mode), migrated.legacy)
    writers = Writers(services)
    with writers.writing():
        outcome, shut_at = switched(migrated, writers)
        writers.wait_for_more()

    assert outcome.is_decided, outcome
    assert writers.refusals
    assert min(writers.refusals) > shut_at
    assert migrated.legacy.sql("SELECT count(*) FROM trips") == [(len(writers.commits),)]
    keys = [UUID(key) for (key,) in migrated.legacy.sql("SELECT trip_uuid::text FROM trips")]
    latest = [migrated.store.get_cell_latest(key, "BASE") for key in keys]
    assert [cell and (cell.ref_key, cell.body) for cell in latest] == [(2, {"status": "b"})] * len(writers.commits)


def test_control_a_writer_who_stays_inside_through_a_pooler_stops_a_switch(
    servers: LocalServers, migrated: Migration, mode: PoolMode
) -> None:
    """And is named by the process of the server, which the service itself does not know."""
    services = through(pooler(servers, migrated.legacy.server, mode), migrated.legacy)
    with closing(services.connect()) as writer:
        ((pid,),) = rows(writer, "INSERT INTO trips (status) VALUES ('inside') RETURNING pg_backend_pid()")

        outcome = run(switch.switch(migrated.duo.ports, "inside", tries=1))

        assert (outcome.is_decided, outcome.reason) == (False, "writers stay inside")
        assert f"pid {pid} " in migrated.duo.ports.legacy.in_the_way  # type: ignore[attr-defined]  # of the real one
        writer.commit()
    assert run(switch.switch(migrated.duo.ports, "outside")).is_decided
