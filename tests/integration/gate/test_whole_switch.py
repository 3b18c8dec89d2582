"""A whole switch, and the company writes all the time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.facades import Migration, migration
from tests.integration.gate.gates import Writers, session, switched
from tests.stores import Stores
from tripstore.backends.postgres.capture.names import GATE_FUNCTION
from tripstore.backends.postgres.wire.connections import rows
from tripstore.local.servers import LocalServers


@pytest.fixture(params=["postgres", "postgres18"])
def migrated(request: pytest.FixtureRequest, servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    with migration(servers, stores, postgres=request.param) as made:
        yield made


def test_no_writer_is_refused_before_the_gate_is_shut(migrated: Migration) -> None:
    writers = Writers(migrated.legacy)
    with writers.writing():
        outcome, shut_at = switched(migrated, writers)
        writers.wait_for_more()

    assert outcome.is_decided, outcome
    assert writers.refusals
    assert min(writers.refusals) > shut_at
    assert migrated.legacy.sql("SELECT count(*) FROM trips") == [(len(writers.commits),)]


def undone(migrated: Migration) -> Writers:
    """What became of writers during a switch that is undone: one of them stays inside."""
    writers = Writers(migrated.legacy)
    with session(migrated.legacy) as inside, writers.writing():
        rows(inside, "INSERT INTO trips (status) VALUES ('stays')")
        outcome, _ = switched(migrated, writers)
        assert outcome.reason == "writers stay inside"
        writers.wait_for_more()
        rows(inside, "UPDATE trips SET status = 'goes on' WHERE status = 'stays'")
        inside.commit()
    return writers


def test_no_writer_is_refused_when_a_switch_is_undone(migrated: Migration) -> None:
    writers = undone(migrated)

    assert writers.refusals == []
    assert migrated.legacy.sql("SELECT count(*) FROM trips") == [(len(writers.commits) + 1,)]


def test_control_a_closing_gate_that_lets_no_writer_in_refuses_them(migrated: Migration) -> None:
    find = "SELECT pg_get_functiondef(%s::regproc)"
    ((function,),) = migrated.legacy.sql(find, f"tripstore.{GATE_FUNCTION}")
    assert function.count("% 4 IN (1, 2)") == 1
    migrated.legacy.sql(function.replace("% 4 IN (1, 2)", "% 4 = 1"))

    assert undone(migrated).refusals
