"""The row that decides, on real Postgres (I9)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from itertools import repeat

import pytest
from alembic import command

from tests.chaos.actors import wait_until
from tests.handovers import gate
from tests.integration.authority.trips import FIRST, held, is_writable
from tests.legacy import FLAVOURS, captured, legacy_server
from tests.legacy_backends import Company
from tests.legacy_databases import PATIENT
from tripstore.backends.postgres.capture.functions.gate import GateReading, GateState
from tripstore.backends.postgres.capture.migrate import _handed_in, migrate
from tripstore.backends.postgres.handover import authority as authority_sql
from tripstore.backends.postgres.handover import barrier as barriers
from tripstore.backends.postgres.handover.authority import gate_of
from tripstore.backends.postgres.wire.connections import rows
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.handover.authority import Authority, Backend
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers
from tripstore.ports.control import RealControlPort


def history(trips: Company) -> list[tuple[int, str, str | None, str]]:
    found = trips.legacy.sql("SELECT epoch, backend, target, switch_id FROM tripstore.authority_history ORDER BY epoch")
    return [(epoch, backend, target, switch_id) for epoch, backend, target, switch_id in found]


def test_in_the_beginning_postgres_is_the_authority_at_the_epoch_of_the_gate(
    servers: LocalServers, trips: Company, control: RealControlPort
) -> None:
    assert control.authority() == FIRST
    assert control.obey() == FIRST
    assert gate(trips) == gate_of(FIRST) == GateReading(0, GateState.OPEN)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_database_of_an_older_revision_keeps_its_changes(servers: LocalServers, flavour: Flavour) -> None:
    """A service's open transaction keeps the lock from the migration; no service waits for long behind that."""
    legacy = captured(legacy_server(servers, flavour))
    with legacy.ours() as ours, _handed_in(ours) as config:
        command.downgrade(config, "0004")
        config.attributes["connection"].commit()
    legacy.trip("waits")
    moved = "row_key, column_name, ref_key, id"
    legacy.sql(
        f"WITH gone AS (DELETE FROM tripstore.queue RETURNING *) INSERT INTO tripstore.log ({moved}, delivered_at)"
        f" SELECT {moved}, now() FROM gone"
    )
    legacy.trip("waits, too")
    with closing(legacy.connect()) as writer, legacy.ours() as ours, ThreadPoolExecutor(1) as pool:
        rows(writer, "INSERT INTO trips (status) VALUES ('open')")
        migrated = pool.submit(migrate, ours)
        waits = "SELECT 1 FROM pg_locks WHERE relation = 'tripstore.queue'::regclass AND NOT granted"
        wait_until("the migration waits", lambda: bool(legacy.sql(waits)))
        legacy.trip("comes by")
        assert not migrated.done()
        writer.commit()
        migrated.result(60)

    legacy.trip("after")
    assert legacy.sql("SELECT epoch, attempts FROM tripstore.queue") == [(0, 0)] * 4
    assert legacy.sql("SELECT epoch FROM tripstore.log") == [(0,)]
    assert legacy.sql("SELECT epoch, backend, target FROM tripstore.authority") == [(0, "postgres", None)]


def test_a_hand_over_and_the_way_back_are_written_down_change_by_change(
    trips: Company, control: RealControlPort, barrier: barriers.Barrier
) -> None:
    forward = FIRST.closing("forward", "me")
    assert control.close(FIRST, forward)
    assert gate(trips) == GateReading(1, GateState.CLOSING)
    assert barrier.take()
    assert control.shut_gate(forward)
    assert gate(trips) == GateReading(1, GateState.CLOSED)
    assert control.decide(forward, forward.decided())
    assert held(trips) == 0
    store = control.obey()
    assert (store, gate(trips)) == (forward.decided(), GateReading(2, GateState.CLOSED))
    assert not is_writable(trips)

    back = store.closing("back")
    assert control.close(store, back)
    assert (control.obey(), gate(trips)) == (back, GateReading(2, GateState.CLOSED))
    assert control.decide(back, back.decided())
    assert control.obey() == back.decided()
    assert gate(trips) == GateReading(4, GateState.OPEN)
    assert is_writable(trips)
    assert history(trips) == [
        (0, "postgres", None, ""),
        (1, "postgres", "schemaless", "forward"),
        (2, "schemaless", None, "forward"),
        (3, "schemaless", "postgres", "back"),
        (4, "postgres", None, "back"),
    ]
    said = control.history(10)
    assert [row.epoch for row in said] == [4, 3, 2, 1, 0]
    assert said[3].who == "me"
    assert said[0].since is not None
    assert said[1].since is not None
    assert said[1].since <= said[0].since


def test_of_all_who_change_the_row_at_once_one_wins_each_epoch(trips: Company) -> None:
    """I9: the history has every epoch once, and each change in it was the only one of its thread."""
    # It asks who wins. A disk that takes a second for seven commits is no reason to give a lock up.
    waiting = replace(PATIENT, lock_seconds=PATIENT.deadlines.put_seconds)
    with closing(LegacyDatabase(trips.store.database.url, waiting)) as database, ThreadPoolExecutor(8) as pool:
        ports = [RealControlPort(database, "trips", who=str(n)) for n in range(8)]
        for turn in range(10):
            found = ports[0].authority()
            closings = [found.closing(f"{turn}.{n}") for n in range(len(ports))]
            closed = list(pool.map(RealControlPort.close, ports, repeat(found), closings))
            assert closed.count(True) == 1
            closing_ = closings[closed.index(True)]
            assert ports[0].authority() == closing_
            undone = list(pool.map(RealControlPort.undo, ports, repeat(closing_), repeat(closing_.undone())))
            assert undone.count(True) == 1
            list(pool.map(RealControlPort.obey, ports))

            assert gate(trips) == gate_of(ports[0].authority()) == GateReading(found.epoch + 2, GateState.OPEN)

    assert [epoch for epoch, *_ in history(trips)] == list(range(21))


def test_control_a_change_that_compares_nothing_is_won_by_all(
    trips: Company, control: RealControlPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    careless = authority_sql._CHANGE.replace(authority_sql._IS_FOUND, "(true OR (%s, %s, %s, %s, %s) IS NULL)")
    # The history alone would stop the second: it has each epoch once.
    careless = careless.replace("INSERT INTO tripstore.authority_history", "INSERT INTO tripstore.careless")
    monkeypatch.setattr(authority_sql, "_CHANGE", careless)
    trips.legacy.sql("CREATE TABLE tripstore.careless (LIKE tripstore.authority)")
    try:
        assert [control.close(FIRST, FIRST.closing(name)) for name in "abc"] == [True, True, True]
    finally:
        trips.legacy.sql("DROP TABLE tripstore.careless")


@pytest.mark.parametrize(
    "other",
    [
        replace(FIRST, epoch=1),
        replace(FIRST, backend=Backend.STORE),
        replace(FIRST, target=Backend.STORE),
        replace(FIRST, switch_id="other"),
    ],
)
def test_each_part_of_the_row_is_compared(trips: Company, control: RealControlPort, other: Authority) -> None:
    wanted = FIRST.closing("x")

    assert not control.undo(other, wanted)
    assert not control.close(other, wanted)
    assert not control.shut_gate(other)

    assert control.authority() == FIRST
    assert gate(trips) == gate_of(FIRST)
    assert len(history(trips)) == 1


def test_an_answer_that_was_lost_is_found_in_the_history(
    trips: Company, control: RealControlPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection breaks after the packet was done and before its answer is read."""
    change, tries = control._row.close, []

    def lost(connection: object, found: Authority, wanted: Authority) -> bool:
        is_changed = change(connection, found, wanted)  # type: ignore[arg-type]  # handed on as it is
        tries.append(is_changed)
        if len(tries) == 1:
            trips.legacy.sql("SELECT pg_terminate_backend(%s)", connection.pid)  # type: ignore[attr-defined]
            connection.rows("SELECT 1")  # type: ignore[attr-defined]
        return is_changed

    monkeypatch.setattr(control._row, "close", lost)

    assert control.close(FIRST, FIRST.closing("lost"))
    assert tries == [True, False]
    assert not control.close(FIRST, FIRST.closing("another"))


def test_a_pause_is_counted_from_when_this_process_first_saw_it(trips: Company) -> None:
    now = [5.0]
    control = RealControlPort(trips.store.database, "trips", 2.0, clock=lambda: now[0])
    row = FIRST.closing("slow")
    control.close(FIRST, row)
    assert control.authority() == row
    now[0] += 2.0
    assert not control.is_overdue(row)
    now[0] += 0.5
    assert control.is_overdue(row)
    assert control.pause_of(row) == 2.5

    for epoch in range(3, 40, 2):
        assert not control.is_overdue(replace(row, epoch=epoch))
    assert len(control._first_seen) < 20
