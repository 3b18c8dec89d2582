"""Direct writers who are only warned: they go in while the gate is closed, and not before a switch is decided."""

from __future__ import annotations

import pytest

from tests.integration.gate.gates import WRITES, K, session, set_to, switcher, without_statement_gates
from tests.legacy import Blocked, Legacy, refused
from tripstore.backends.postgres import sqlstates
from tripstore.backends.postgres.capture.functions.gate import (
    BARRIER,
    GateState,
)
from tripstore.backends.postgres.wire.connections import rows


@pytest.mark.parametrize("write", WRITES)
def test_after_a_switch_direct_writers_are_warned_and_capture_logs_nothing(warned: Legacy, write: str) -> None:
    """What they write is in the log, since it is history, but never in the queue."""
    before = warned.sql("SELECT row_key, ref_key FROM tripstore.queue ORDER BY 1, 2")
    logged = warned.sql("SELECT count(*) FROM tripstore.log")[0][0]
    set_to(warned, GateState.CLOSED, epoch=2)
    with session(warned) as connection:
        rows(connection, WRITES[write])
        warnings = list(connection.notices)
        connection.commit()

    assert any("not seen by anybody" in warning for warning in warnings)
    assert warned.sql("SELECT row_key, ref_key FROM tripstore.queue ORDER BY 1, 2") == before
    is_idle = write in ("no row", "nothing", "child")
    assert (warned.sql("SELECT count(*) FROM tripstore.log")[0][0] == logged) == is_idle


def test_while_the_switch_is_undecided_they_are_refused_all_the_same(warned: Legacy) -> None:
    """I8: if the switch is undone, what they wrote would have to be mirrored."""
    set_to(warned, GateState.CLOSED, epoch=3)
    with session(warned) as connection, refused(sqlstates.GATE_SHUT):
        rows(connection, WRITES["update"])


def test_what_they_write_while_the_gate_is_closing_is_mirrored(warned: Legacy) -> None:
    """I8."""
    set_to(warned, GateState.CLOSING, epoch=3)
    with session(warned) as connection:
        rows(connection, WRITES["insert"])
        assert connection.notices == []
        connection.commit()

    assert warned.sql("SELECT count(*) FROM tripstore.queue WHERE epoch = 2") == [(1,)]


def test_a_partition_without_gate_refuses_them_too_while_the_switch_is_undecided(warned: Legacy) -> None:
    without_statement_gates(warned)
    for state, epoch in ((GateState.CLOSED, 3), (GateState.CLOSED, 2)):
        set_to(warned, state, epoch)
        with session(warned) as connection:
            if epoch == 3:
                with refused(sqlstates.GATE_SHUT):
                    rows(connection, WRITES["update"])
            else:
                rows(connection, WRITES["update"])
                connection.commit()

    assert warned.sql("SELECT status FROM trips") == [("x",)]


def test_a_partition_without_gate_refuses_them_while_the_barrier_is_held(warned: Legacy) -> None:
    """It may be about to open: a row that is only warned of would be missing in the mirror. Control: it is free."""
    without_statement_gates(warned)
    set_to(warned, GateState.CLOSED, epoch=2)
    with session(warned) as writer, session(warned) as switch:
        rows(switch, f"SELECT pg_advisory_lock({K}, {BARRIER})")
        with refused(sqlstates.GATE_SHUT):
            rows(writer, WRITES["update"])
        writer.rollback()
        # Of a session that is closed the server keeps it for a moment longer.
        rows(switch, f"SELECT pg_advisory_unlock({K}, {BARRIER})")
        rows(writer, WRITES["update"])


def test_they_wait_for_the_barrier(warned: Legacy) -> None:
    with session(warned) as writer, switcher(warned) as switch:
        rows(switch, f"SELECT pg_advisory_lock({K}, {BARRIER})")
        set_to(warned, GateState.CLOSED, epoch=2)
        waiting = Blocked(warned, writer, "UPDATE trips SET status = 'late'")
        waiting.wait_until_it_waits()
        switch.close()
        waiting.result()


@pytest.mark.parametrize(
    "statement",
    [
        "SET LOCAL tripstore.origin = 'facade'; UPDATE trips SET status = 'x'",
        "INSERT INTO tripstore.cell (row_key, column_name, ref_key, body) VALUES (gen_random_uuid(), 'F', 1, '1')",
    ],
)
def test_our_own_writers_are_refused_all_the_same(warned: Legacy, statement: str) -> None:
    """I9: they know where to go."""
    set_to(warned, GateState.CLOSED, epoch=2)
    with session(warned) as connection, refused(sqlstates.GATE_SHUT):
        rows(connection, statement)
