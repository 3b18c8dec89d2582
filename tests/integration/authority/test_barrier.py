"""The barrier: it waits for writers that are inside, and no other writer waits behind it (I9)."""

from __future__ import annotations

import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import partial

import pytest

from tests.chaos.actors import wait_until
from tests.handovers import gate
from tests.integration.authority.trips import BARRIER_HOLDERS, FIRST, WEAK, held, is_writable, session
from tests.legacy_backends import Company
from tests.legacy_databases import PATIENT
from tripstore.backends.postgres.errors import LegacyUnavailable
from tripstore.backends.postgres.handover import authority as authority_sql
from tripstore.backends.postgres.handover import barrier as barriers
from tripstore.backends.postgres.handover.authority import gate_of
from tripstore.backends.postgres.wire.connections import rows
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.backends.postgres.wire.wire import LegacyConnection
from tripstore.handover.authority import Authority
from tripstore.ports.control import RealControlPort


def test_the_barrier_waits_for_who_is_inside_and_names_him_in_the_end(
    trips: Company, control: RealControlPort, barrier: barriers.Barrier
) -> None:
    with session(trips) as writer:
        rows(writer, "INSERT INTO trips (status) VALUES ('inside')")
        assert control.close(FIRST, FIRST.closing("x"))

        assert not barrier.take()

        assert f"pid {writer.info.backend_pid} (no name, idle in transaction, for " in barrier.in_the_way
        assert not barrier.is_held
        writer.commit()
    assert barrier.take()
    assert barrier.in_the_way == ""
    assert held(trips) == 1
    assert not is_writable(trips)
    barrier.release()
    assert held(trips) == 0


def test_the_barrier_lets_no_writer_wait_behind_an_old_one(
    trips: Company, barrier: barriers.Barrier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not even take the door: others come and go."""
    monkeypatch.setattr(barriers, "OLD_SECONDS", 0.0)
    taken: list[str] = []
    monkeypatch.setattr(barrier, "_take", property(taken.append))
    with session(trips) as writer:
        rows(writer, "INSERT INTO trips (status) VALUES ('inside')")

        assert not barrier.take()

        assert f"pid {writer.info.backend_pid} " in barrier.in_the_way
        assert is_writable(trips)


def barrier_sessions(trips: Company) -> set[int]:
    """Sessions that hold the barrier, or may come to hold it."""
    mine = "datname = current_database() AND application_name LIKE '%barrier'"
    return {pid for (pid,) in trips.legacy.sql(f"SELECT pid FROM pg_stat_activity WHERE {mine}")}


def test_a_switcher_is_connected_for_the_barrier_from_before_he_closes_until_it_is_undone(
    trips: Company, control: RealControlPort, barrier: barriers.Barrier
) -> None:
    others = barrier_sessions(trips)  # of threads of other tests
    closing_ = FIRST.closing("x")
    assert control.close(FIRST, closing_)
    (prepared,) = barrier_sessions(trips) - others
    assert not barrier.is_held
    assert not control.decide(closing_, closing_.decided())
    with session(trips) as writer:
        rows(writer, "INSERT INTO trips (status) VALUES ('inside')")
        assert not barrier.take()
    assert barrier.take()
    assert barrier_sessions(trips) - others == {prepared}

    barrier.release()
    with session(trips) as writer:
        rows(writer, "INSERT INTO trips (status) VALUES ('inside')")
        assert not barrier.take()
    assert control.undo(closing_, closing_.undone())
    wait_until("his session is gone", lambda: barrier_sessions(trips) <= others)


def test_who_does_not_get_to_close_needs_no_barrier(trips: Company, control: RealControlPort) -> None:
    others = barrier_sessions(trips)

    assert not control.close(replace(FIRST, epoch=2), FIRST.closing("late"))

    wait_until("his session is gone", lambda: barrier_sessions(trips) <= others)


def test_a_server_that_is_full_costs_no_pause(trips: Company) -> None:
    """No writer waits for a switcher that gets no connection for the barrier."""
    trips.legacy.sql(WEAK.replace("weak", "crowded") + "; ALTER ROLE crowded CONNECTION LIMIT 1")
    url = trips.legacy.url.replace(trips.legacy.url.split("//")[1].split("@")[0], "crowded:crowded")
    with closing(LegacyDatabase(url, PATIENT)) as database:
        control = RealControlPort(database, "trips")
        assert control.authority() == FIRST

        with pytest.raises(LegacyUnavailable):
            control.close(FIRST, FIRST.closing("full"))

        assert control.authority() == FIRST
        assert gate(trips) == gate_of(FIRST)


def test_threads_have_barriers_of_their_own(trips: Company, barrier: barriers.Barrier) -> None:
    assert barrier.take()
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.extend([barrier.is_held, barrier.take(), barrier.in_the_way]))
    thread.start()
    thread.join(30)

    assert found[:2] == [False, False]
    assert "barrier, idle in transaction" in str(found[2])
    assert barrier.is_held


def test_who_has_lost_the_barrier_has_lost_the_hand_over(
    trips: Company, control: RealControlPort, barrier: barriers.Barrier
) -> None:
    closing_ = FIRST.closing("lost")
    assert not control.decide(closing_, closing_.decided())
    assert control.close(FIRST, closing_)
    assert not control.decide(closing_, closing_.decided())
    assert barrier.take()
    trips.legacy.sql(BARRIER_HOLDERS.replace("count(*)", "pg_terminate_backend(pid)"))

    assert not control.decide(closing_, closing_.decided())

    assert control.authority() == closing_
    assert not barrier.is_held


def test_a_decision_whose_answer_was_lost_is_a_decision(
    trips: Company, control: RealControlPort, barrier: barriers.Barrier, monkeypatch: pytest.MonkeyPatch
) -> None:
    closing_ = FIRST.closing("lost")
    assert control.close(FIRST, closing_)
    assert barrier.take()
    broken = authority_sql._WAS + "; SELECT pg_terminate_backend(pg_backend_pid())"
    decide = partial(barrier._row.decide)

    def lost(connection: object, found: Authority, wanted: Authority) -> bool:
        with monkeypatch.context() as patch:
            patch.setattr(authority_sql, "_WAS", broken)
            return decide(connection, found, wanted)  # type: ignore[arg-type]  # handed on as it is

    monkeypatch.setattr(barrier._row, "decide", lost)

    assert control.decide(closing_, closing_.decided())
    assert control.authority() == closing_.decided()


def test_a_decision_under_way_whose_connection_is_lost_is_waited_for(
    trips: Company, control: RealControlPort, barrier: barriers.Barrier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is still at it: it has changed the row, and not committed yet."""
    closing_ = FIRST.closing("lost")
    assert control.close(FIRST, closing_)
    assert barrier.take()
    connection = barrier._connection
    assert connection is not None
    # Shorter than the server takes to look whether its client is still there.
    slow = f"{authority_sql._DECIDE}; SELECT pg_catalog.pg_sleep(0.7)"
    monkeypatch.setattr(authority_sql, "_DECIDE", slow)
    other = socket.socket(fileno=os.dup(connection._connection.fileno()))
    asked = partial(barrier._row.was)
    was_decided: list[bool] = []

    def cut() -> None:
        wait_until("the row is changed, and not committed", lambda: is_changing(trips, connection.pid))
        other.shutdown(socket.SHUT_RDWR)

    def was(again: LegacyConnection, row: Authority) -> bool:
        was_decided.append(control.authority() == row)
        return asked(again, row)

    monkeypatch.setattr(barrier._row, "was", was)
    with closing(other), ThreadPoolExecutor(1) as pool:
        done = pool.submit(cut)
        assert control.decide(closing_, closing_.decided())
        done.result()

    assert was_decided == [False], "else no decision had to wait"
    assert control.authority() == closing_.decided()


def is_changing(trips: Company, pid: int) -> bool:
    """Whether a session sleeps after it has changed the row."""
    found = trips.legacy.sql("SELECT wait_event = 'PgSleep' FROM pg_stat_activity WHERE pid = %s", pid)
    return found == [(True,)]


def test_a_barrier_that_was_undone_decides_nothing_and_goes(
    trips: Company, control: RealControlPort, barrier: barriers.Barrier
) -> None:
    closing_ = FIRST.closing("undone")
    assert control.close(FIRST, closing_)
    assert barrier.take()
    assert control.undo(closing_, closing_.undone())

    assert not control.decide(closing_, closing_.decided())

    assert held(trips) == 0
    assert control.authority() == closing_.undone()
