"""What waits in a buffer and a hand-over of authority meet, on real stores (I1, I5, I9)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from schemaless_core import PutStatus
from tests.facades import Migration, facts_of, folder_of, migration
from tests.stores import Stores
from tripstore.backends.postgres.wire.connections import connected, rows
from tripstore.handover import switch
from tripstore.handover.authority import Backend
from tripstore.handover.steps import Step, run
from tripstore.local.servers import LocalServers
from tripstore.migration.cutover.facts import Unknown
from tripstore.migration.layouts.existing import Existing
from tripstore.phase import Phase
from tripstore.ports.present import EpochOfRow

DEADLINES = {"put_seconds": 0.2, "read_seconds": 5.0, "connect_seconds": 5.0, "pool_seconds": 5.0}


@pytest.fixture
def live(servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    with migration(servers, stores, shards=4, buffer={"put_seconds": 5.0}, deadlines=DEADLINES) as made:
        made.phase(Phase.LIVE)
        yield made


@contextmanager
def held(live: Migration, cluster: str = "a") -> Iterator[None]:
    """Another writer has the file of a cluster: its puts are not answered in time."""
    path = Path(folder_of(live.document)) / cluster / f"{live.document['datastore']}.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def row_on(live: Migration, cluster: str) -> UUID:
    shards = live.facade.store.schema.plan().topology.shards_of(cluster)
    return next(row for row in iter(uuid4, None) if live.facade.store.shard_of(row) in shards)


def put_while_held(live: Migration) -> UUID:
    row = row_on(live, "a")
    with held(live):
        result = live.store.put_cell(row, "BASE", 1, {"status": "requested"})
    assert result.status is PutStatus.BUFFERED
    return row


def replay(live: Migration) -> int:
    return live.facade.store.replayer(EpochOfRow(live.duo.ports.control)).round().cells


class GivenUp(Exception):
    """A hand-over that waits for too long."""


def give_up_at(name: str, times: int) -> object:
    seen = [0]

    def hear(step: Step) -> None:
        seen[0] += step.name == name
        if seen[0] > times:
            raise GivenUp

    return hear


def test_i1_i9_a_way_back_waits_for_what_a_buffer_keeps(live: Migration) -> None:
    row = put_while_held(live)
    assert live.store.get_cell_latest(row, "BASE") is None
    assert sum(map(live.duo.ports.store.buffered, live.duo.ports.store.servers)) == 1
    live.carry()

    with pytest.raises(GivenUp):
        run(switch.reverse(live.duo.ports, "back"), give_up_at(switch.BACK_REPLAY.name, 20))  # type: ignore[arg-type]  # it hears steps
    assert not live.duo.ports.control.authority().is_open
    assert replay(live) == 1  # while it closes
    live.carry()
    run(switch.undone(live.duo.ports, live.duo.ports.control.authority(), "it was given up"))
    live.duo.watch.look()
    live.reverse()

    assert live.duo.ports.control.authority().backend is Backend.LEGACY
    assert live.store.get_cell_latest(row, "BASE").body["status"] == "requested"  # type: ignore[union-attr, index, call-overload]  # it is there


def test_control_a_way_back_that_counts_no_buffers_loses_what_was_acknowledged(
    live: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = put_while_held(live)
    monkeypatch.setattr(type(live.duo.ports.store), "buffered", lambda _port, _server: 0)

    live.reverse()

    assert live.store.get_cell_latest(row, "BASE") is None
    assert replay(live) == 0  # and nothing is carried into a mirror


def test_i5_what_waited_through_a_hand_over_that_was_undone_is_carried(live: Migration) -> None:
    row = put_while_held(live)
    with pytest.raises(GivenUp):
        run(switch.reverse(live.duo.ports, "back"), give_up_at(switch.BACK_REPLAY.name, 1))  # type: ignore[arg-type]  # it hears steps
    run(switch.undone(live.duo.ports, live.duo.ports.control.authority(), "it was given up"))
    live.duo.watch.look()

    assert replay(live) == 1
    assert live.store.get_cell_latest(row, "BASE") is not None


def test_i2_a_cell_that_waits_is_one_of_its_column(live: Migration) -> None:
    """Another reading of the column is refused as long as there is any."""
    with connected(live.legacy.url, "test") as connection:
        existing = Existing(live.facade.store, lambda sql, values: rows(connection, sql, values))
        put_while_held(live)

        assert existing.places("BASE") == ["a buffer"]
        replay(live)
        assert "Schemaless" in existing.places("BASE")
        assert "a buffer" not in existing.places("BASE")


def test_the_gate_counts_what_waits_and_what_conflicts(live: Migration) -> None:
    put_while_held(live)
    assert facts_of(live).buffered == 1
    replay(live)
    found = facts_of(live).buffered
    assert not isinstance(found, Unknown)
    assert found == 0
