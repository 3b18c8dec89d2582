"""Processes that obey the row: what they end, what they wait for, and who waits for them."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from schemaless_core.errors import InvalidServer
from tests.chaos.actors import wait_until
from tests.handovers import gate
from tests.integration.authority.trips import FIRST, WEAK, held, in_child, is_writable, killed, session
from tests.legacy import Blocked
from tests.legacy_backends import Company
from tests.legacy_databases import PATIENT
from tripstore.backends.postgres.capture.functions.gate import GateReading, GateState
from tripstore.backends.postgres.handover import barrier as barriers
from tripstore.backends.postgres.wire.connections import rows
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.ports.control import RealControlPort


def test_a_process_that_obeys_an_open_row_ends_a_stopped_holder_of_the_barrier(
    trips: Company, control: RealControlPort
) -> None:
    """The decided row, and the undone one: a stopped switcher must not hold up writers or the reverse mirror."""
    url = trips.legacy.url
    closing_ = FIRST.closing("stopped")
    assert control.close(FIRST, closing_)

    def hold() -> None:
        mine = barriers.Barrier(LegacyDatabase(url, PATIENT), "trips")
        assert mine.take()
        os.kill(os.getpid(), signal.SIGSTOP)

    pid = in_child(hold)
    try:
        wait_until("the barrier is held", lambda: held(trips) == 1)
        assert control.obey() == closing_  # a hand-over goes on: no session is ended
        assert held(trips) == 1
        assert control.undo(closing_, closing_.undone())
        assert not is_writable(trips)

        assert control.obey() == closing_.undone()

        wait_until("the barrier is gone", lambda: held(trips) == 0)
        assert is_writable(trips)
    finally:
        killed(pid)


def test_the_server_ends_a_holder_who_does_nothing_for_too_long(
    trips: Company, control: RealControlPort, barrier: barriers.Barrier, monkeypatch: pytest.MonkeyPatch
) -> None:
    closing_ = FIRST.closing("idle")
    barrier.max_pause_seconds = 0.1 - PATIENT.idle_transaction_seconds
    assert control.close(FIRST, closing_)
    assert barrier.take()

    wait_until("the barrier is gone", lambda: held(trips) == 0)

    assert not control.decide(closing_, closing_.decided())


def test_a_forked_child_leaves_the_barrier_to_its_parent(
    trips: Company, control: RealControlPort, barrier: barriers.Barrier
) -> None:
    closing_ = FIRST.closing("fork")
    assert control.close(FIRST, closing_)
    assert barrier.take()

    def child() -> None:
        assert not control.decide(closing_, closing_.decided())
        barrier.release()
        os._exit(0)

    assert os.waitpid(in_child(child), 0)[1] == 0
    assert held(trips) == 1
    assert control.decide(closing_, closing_.decided())


def test_a_user_who_may_not_end_the_holder_hears_which_right_is_missing(
    trips: Company, control: RealControlPort, barrier: barriers.Barrier
) -> None:
    trips.legacy.sql(WEAK)
    assert barrier.take()
    url = trips.legacy.url.replace(trips.legacy.url.split("//")[1].split("@")[0], "weak:weak")
    weak = RealControlPort(LegacyDatabase(url, PATIENT), "trips")

    with pytest.raises(InvalidServer, match=r"cannot be ended .*pg_signal_backend"):
        weak.obey()

    assert held(trips) == 1


def test_obeying_what_is_so_already_locks_nothing(trips: Company, control: RealControlPort) -> None:
    with session(trips) as locker:
        rows(locker, "SELECT 1 FROM tripstore.authority FOR UPDATE")

        started = time.monotonic()
        assert control.obey() == FIRST
        assert time.monotonic() - started < 0.9


def test_a_process_that_sets_the_gate_waits_for_one_that_changes_the_row(
    trips: Company, control: RealControlPort
) -> None:
    """Else it would open what closes just then."""
    with session(trips) as other:
        rows(other, "SELECT 1 FROM tripstore.authority FOR UPDATE")
        rows(other, "SELECT setval('tripstore.gate', 6)")
        with ThreadPoolExecutor(1) as pool:
            obeyed = pool.submit(control.obey)
            waits = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND locktype IN ('transactionid', 'tuple'))"
            wait_until("it waits", lambda: trips.legacy.sql(waits) == [(True,)])
            rows(other, "UPDATE tripstore.authority SET epoch = 1, target = 'schemaless', switch_id = 'other'")
            other.commit()

            assert obeyed.result() == FIRST.closing("other")
    assert gate(trips) == GateReading(1, GateState.CLOSING)


def test_writers_who_wait_at_the_door_go_on_when_it_is_undone(
    trips: Company, control: RealControlPort, barrier: barriers.Barrier
) -> None:
    closing_ = FIRST.closing("undone")
    assert control.close(FIRST, closing_)
    assert barrier.take()
    with session(trips) as writer:
        waiting = Blocked(trips.legacy, writer, "INSERT INTO trips (status) VALUES ('waits') RETURNING status")
        waiting.wait_until_it_waits()
        assert control.shut_gate(closing_)
        assert control.undo(closing_, closing_.undone())
        assert control.obey() == closing_.undone()

        assert waiting.result() == [("waits",)]
        writer.commit()
