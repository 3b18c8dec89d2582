"""A process whose callers hold all its connections: what waits for nothing but the watch is freed (I10), and a cohort's
read waits no longer than it may."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest
from prometheus_client import REGISTRY

from schemaless_core import PutResult
from schemaless_core.calls import using
from tests.chaos.actors import wait_until
from tests.facades import PATIENT_LEGACY, Migration, migration
from tests.legacy_backends import status
from tests.stores import Stores
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.facade.facade import Duo
from tripstore.handover.switch import SHUT, switch
from tripstore.local.servers import LocalServers
from tripstore.phase import Phase
from tripstore.store import TripStore
from tripstore.wiring import connect

MAX_PAUSE_SECONDS = 0.3
#: What a control has to show, it shows soon; nothing else here waits for a connection.
POOL_SECONDS = 0.1
COHORT_SECONDS = 0.05
#: How long any other call waits for a connection.
PATIENCE_SECONDS = 1.0
WAITS = """\
SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""


@pytest.fixture(scope="module")
def moving(servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    options = {"max_pause_seconds": MAX_PAUSE_SECONDS, "cohort_seconds": COHORT_SECONDS, "max_lag_seconds": 60.0}
    with migration(servers, stores, mirror=options) as made:
        made.phase(Phase.SHADOW)
        yield made


@contextmanager
def small(moving: Migration, **limits: float) -> Iterator[tuple[TripStore, Duo]]:
    """A process that has one connection for its callers."""
    pool = {"pool_size": 1, "pool_overflow": 0, **limits}
    legacy: Mapping[str, Any] = {**moving.document["legacy"], **pool}
    with connect({**moving.document, "legacy": legacy}) as store:
        assert store.facade.duo is not None
        yield store, store.facade.duo


@contextmanager
def held(database: LegacyDatabase) -> Iterator[None]:
    """Threads of the process have all connections of a pool."""
    permits, size = database._permits, database.settings.pool.size + database.settings.pool.overflow
    for _ in range(size):
        permits.take(0.0)
    try:
        yield
    finally:
        for _ in range(size):
            permits.give()


@contextmanager
def stopped_hand_over(moving: Migration) -> Iterator[None]:
    """A process has the door and the barrier, and goes on no more."""
    other = moving.connect()
    try:
        assert other.facade.duo is not None
        steps = switch(other.facade.duo.ports, "stopped")
        assert next(step for step in steps if step is SHUT)
        yield
    finally:
        other.close()


@contextmanager
def at_the_door(moving: Migration, **limits: float) -> Iterator[tuple[Duo, Future[PutResult]]]:
    """A put with the one connection of its process, waiting in Postgres. The watch looks when the test says so."""
    moving.phase(Phase.SHADOW)
    with small(moving, **limits) as (store, duo), ThreadPoolExecutor(1) as threads:
        store.facade.has_begun = True
        duo.watch.look()
        with stopped_hand_over(moving):
            waiting = threads.submit(store.put_cell, uuid4(), "BASE", 1, status("waits at the door"))
            wait_until("it waits", lambda: moving.legacy.sql(WAITS))
            yield duo, waiting


def test_i10_writers_at_the_door_hold_no_connection_that_the_watch_needs(moving: Migration) -> None:
    """The hand-over is undone by their own process. Postgres ends the one that stopped five seconds later."""
    with at_the_door(moving) as (duo, waiting):

        def is_through() -> bool:
            duo.watch.look()
            return waiting.done()

        wait_until("the put is through", is_through, moving.duo.legacy.database.settings.idle_transaction_seconds)

        assert waiting.result().status == "CREATED"
        assert moving.duo.ports.control.authority().is_open


def test_i10_control_a_watch_that_shares_their_connections_sees_nothing(
    moving: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    with at_the_door(moving, pool_seconds=POOL_SECONDS) as (duo, waiting):
        monkeypatch.setattr(duo.watch, "_ports", duo.ports)

        duo.watch.look()

        assert "authority" in duo.watch._failing
        assert not waiting.done()

        # What can look undoes it.
        def is_open() -> bool:
            moving.duo.watch.look()
            return moving.duo.ports.control.authority().is_open

        wait_until("it is undone", is_open)
        assert waiting.result(PATIENT_LEGACY["lock_seconds"]).status == "CREATED"


def read_seconds(moving: Migration) -> float:
    """How long a cohort's read takes whose mirror has no connection left. It is answered by the authority."""
    row_key = uuid4()
    with small(moving, pool_seconds=PATIENCE_SECONDS) as (store, duo):
        store.put_cell(row_key, "BASE", 1, status("read by a cohort"))
        duo.watch.look()
        moving.carry()
        duo.watch.look()
        failed = cohort_reads("failed")
        with held(duo.legacy_mirror.database):
            begun = time.monotonic()
            assert store.get_cell_latest(row_key, "BASE") is not None, "it was put"
            taken = time.monotonic() - begun
    assert cohort_reads("failed") == failed + 1, "the mirror was asked"
    return taken


def cohort_reads(reason: str) -> float:
    labels = {"operation": "get_cell_latest", "reason": reason}
    return REGISTRY.get_sample_value("tripstore_cohort_reads_total", labels) or 0.0


def test_i10_a_cohorts_read_waits_for_a_connection_within_its_own_time(
    moving: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    moving.phase(Phase.LIVE, 100.0)

    assert read_seconds(moving) < PATIENCE_SECONDS

    # Control: where the deadline stands still for the pool, the caller waits for it.
    monkeypatch.setattr(using, "InAll", float)
    assert read_seconds(moving) >= PATIENCE_SECONDS
