"""Packets that change row and gate, broken off or without their client."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from schemaless_core.errors import SchemalessError
from tests.chaos.actors import wait_until
from tests.handovers import gate
from tests.integration.authority.trips import FIRST, in_child, is_writable, killed, session
from tests.legacy_backends import Company
from tests.legacy_databases import PATIENT
from tripstore.backends.postgres.capture.functions.gate import GateReading, GateState
from tripstore.backends.postgres.handover.authority import gate_of
from tripstore.backends.postgres.wire.connections import rows
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.ports.control import RealControlPort


def test_a_packet_that_the_server_breaks_off_leaves_nothing_that_obeying_does_not_mend(
    trips: Company, control: RealControlPort
) -> None:
    """The gate has moved and the row has not: a sequence takes no part in transactions."""
    closing_ = FIRST.closing("broken")
    with session(trips) as blocker, ThreadPoolExecutor(1) as pool:
        rows(blocker, "LOCK TABLE tripstore.authority_history IN ACCESS EXCLUSIVE MODE")
        closed = pool.submit(control.close, FIRST, closing_)
        wait_until("the gate moves", lambda: gate(trips) == GateReading(1, GateState.CLOSING))
        assert control.authority() == FIRST
        waiting = "SELECT pid FROM pg_locks WHERE relation = 'tripstore.authority_history'::regclass AND NOT granted"
        ((pid,),) = trips.legacy.sql(waiting)
        rows(blocker, "SELECT pg_cancel_backend(%s)", (pid,))
        with pytest.raises(SchemalessError):
            closed.result()
        blocker.rollback()

    assert gate(trips) == GateReading(1, GateState.CLOSING)
    assert control.obey() == FIRST
    assert gate(trips) == gate_of(FIRST)
    assert is_writable(trips)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_packet_goes_on_without_its_client_or_was_never_there(
    trips: Company, control: RealControlPort, how: signal.Signals
) -> None:
    """A stopped client holds up no other one: no lock of the row waits for it."""
    closing_ = FIRST.closing("gone")
    url = trips.legacy.url
    with session(trips) as blocker:
        rows(blocker, "LOCK TABLE tripstore.authority_history IN ACCESS EXCLUSIVE MODE")
        pid = in_child(lambda: RealControlPort(LegacyDatabase(url, PATIENT), "trips").close(FIRST, closing_))
        wait_until("the gate moves", lambda: gate(trips) == GateReading(1, GateState.CLOSING))
        os.kill(pid, how)
        blocker.rollback()
    try:
        wait_until(
            "the packet is through",
            lambda: (
                not trips.legacy.sql(
                    "SELECT 1 FROM pg_locks WHERE relation = 'tripstore.authority'::regclass AND mode LIKE 'Row%%'"
                )
            ),
        )
        assert control.authority() == closing_
        assert control.undo(closing_, closing_.undone())
        assert control.obey() == closing_.undone()
        assert gate(trips) == GateReading(2, GateState.OPEN)
    finally:
        killed(pid)
