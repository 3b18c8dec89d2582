"""The gate: who may write the mapped tables while it is open, closing, closed; what the barrier waits for (I9)."""

from __future__ import annotations

import pytest
from psycopg2 import errors

from tests.integration.gate.gates import (
    ISOLATIONS,
    UUID_0,
    WRITES,
    K,
    session,
    set_to,
    switcher,
    without_statement_gates,
)
from tests.legacy import Blocked, Legacy, layout, refused
from tripstore.backends.postgres import sqlstates
from tripstore.backends.postgres.capture import verify
from tripstore.backends.postgres.capture.functions.gate import (
    BARRIER,
    GateReading,
    GateState,
    admission,
    lock_class,
    read_gate,
)
from tripstore.backends.postgres.wire.connections import rows


def test_a_new_gate_is_open(legacy: Legacy) -> None:
    with legacy.ours() as connection:
        assert read_gate(connection) == GateReading(0, GateState.OPEN)


@pytest.mark.parametrize("write", WRITES)
def test_a_closed_gate_refuses_every_kind_of_write(legacy: Legacy, write: str) -> None:
    set_to(legacy, GateState.CLOSED)
    before = legacy.sql("SELECT * FROM trips"), legacy.sql("SELECT * FROM notes")
    with session(legacy) as connection, refused(sqlstates.GATE_SHUT):
        rows(connection, WRITES[write])

    assert (legacy.sql("SELECT * FROM trips"), legacy.sql("SELECT * FROM notes")) == before


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_a_snapshot_that_is_older_than_the_gate_is_refused(legacy: Legacy, isolation: str) -> None:
    with session(legacy, isolation) as connection:
        rows(connection, "SELECT count(*) FROM trips")
        set_to(legacy, GateState.CLOSED)
        with refused(sqlstates.GATE_SHUT):
            rows(connection, WRITES["update"])


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_who_has_written_goes_on_while_the_gate_is_closing_and_the_barrier_waits_for_him(
    legacy: Legacy, isolation: str
) -> None:
    with session(legacy, isolation) as writer, switcher(legacy) as switch:
        rows(writer, "UPDATE trips SET status = 'a'")
        set_to(legacy, GateState.CLOSING)
        barrier = Blocked(legacy, switch, f"SELECT pg_advisory_xact_lock({K}, {BARRIER})")
        barrier.wait_until_it_waits()
        rows(writer, "UPDATE trips SET status = 'b'")
        rows(writer, "INSERT INTO notes (trip_id, n, text) SELECT id, 9, 'new' FROM trips")
        writer.commit()
        barrier.result()

    assert legacy.sql("SELECT status FROM trips") == [("b",)]


def test_a_put_of_a_transaction_that_has_written_passes_the_door_while_the_gate_is_closing(legacy: Legacy) -> None:
    """The switcher holds the door and waits for the barrier, which this writer has: neither would go on."""
    with session(legacy) as writer, switcher(legacy) as switch:
        rows(writer, "UPDATE trips SET status = 'a'")
        set_to(legacy, GateState.CLOSING)
        barrier = Blocked(legacy, switch, f"SELECT pg_advisory_xact_lock({K}, {BARRIER})")
        barrier.wait_until_it_waits()

        assert rows(writer, "SELECT tripstore.enter(0)") == [(True,)]
        with refused(sqlstates.GATE_SHUT):  # I9: at its own epoch alone
            rows(writer, "SELECT tripstore.enter(1)")

        writer.rollback()
        barrier.result()


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_who_comes_while_the_gate_is_closing_goes_in_and_the_barrier_waits_for_him(
    legacy: Legacy, isolation: str
) -> None:
    """I8, I9: the writer has the lock, so no switcher shuts the gate before he is through."""
    set_to(legacy, GateState.CLOSING)
    with session(legacy, isolation) as writer, session(legacy) as switch:
        rows(writer, "UPDATE trips SET status = 'a'")
        barrier = Blocked(legacy, switch, f"SELECT pg_advisory_xact_lock({K}, {BARRIER})")
        barrier.wait_until_it_waits()
        rows(writer, "UPDATE trips SET status = 'b'")
        writer.commit()
        barrier.result()

    assert legacy.sql("SELECT status FROM trips") == [("b",)]


@pytest.mark.parametrize("write", sorted(WRITES.keys() - {"replica"}))
def test_every_kind_of_write_goes_in_while_the_gate_is_closing(legacy: Legacy, write: str) -> None:
    set_to(legacy, GateState.CLOSING)
    with session(legacy) as connection:
        rows(connection, WRITES[write])


def test_writers_wait_at_the_door_while_a_switcher_waits_for_the_barrier(legacy: Legacy) -> None:
    """He may have tried in vain, or it is undone: they go on. Or they have come too late."""
    for left, epoch in ((GateState.CLOSING, 1), (GateState.OPEN, 2), (GateState.CLOSED, 2)):
        with session(legacy) as writer, switcher(legacy) as switch:
            set_to(legacy, GateState.CLOSING)
            waiting = Blocked(legacy, writer, "UPDATE trips SET status = 'late'")
            waiting.wait_until_it_waits()
            set_to(legacy, left, epoch)
            switch.close()
            if left is GateState.CLOSED:
                with refused(sqlstates.GATE_SHUT):
                    waiting.result()
            else:
                waiting.result()


def test_a_savepoint_that_is_taken_back_gives_the_lock_back(legacy: Legacy) -> None:
    """Such a writer is a new one: he waits at the door."""
    with session(legacy) as writer, switcher(legacy):
        rows(writer, "SAVEPOINT s; UPDATE trips SET status = 'a'; ROLLBACK TO SAVEPOINT s")
        set_to(legacy, GateState.CLOSING)
        rows(writer, "SET LOCAL lock_timeout = '50ms'")
        with pytest.raises(errors.LockNotAvailable):
            rows(writer, "UPDATE trips SET status = 'b'")


#: What a company may lock by itself: another class, another object, and one number that has our two in its halves.
LOOKALIKES = {
    "class": f"{K + 1}, {BARRIER}",
    "object": f"{K}, 77",
    "number": f"('x' || '{(K & 0xFFFFFFFF) << 32 | BARRIER:016x}')::bit(64)::bigint",
}


@pytest.mark.parametrize("lock", [*LOOKALIKES, "another writer's"])
def test_a_lock_that_is_not_the_writers_own_opens_no_door(legacy: Legacy, lock: str) -> None:
    with session(legacy) as other, session(legacy) as writer, switcher(legacy):
        if lock in LOOKALIKES:
            rows(writer, f"SELECT pg_advisory_xact_lock_shared({LOOKALIKES[lock]})")
        else:
            rows(other, WRITES["no row"])
        set_to(legacy, GateState.CLOSING)
        rows(writer, "SET LOCAL lock_timeout = '50ms'")
        with pytest.raises(errors.LockNotAvailable):
            rows(writer, WRITES["update"])


def test_no_writer_passes_the_barrier(legacy: Legacy) -> None:
    """The barrier is held, the gate says open still: the lock keeps writers at the door."""
    with session(legacy) as writer, switcher(legacy) as switch:
        rows(switch, f"SELECT pg_advisory_lock({K}, {BARRIER})")
        waiting = Blocked(legacy, writer, "UPDATE trips SET status = 'late'")
        waiting.wait_until_it_waits()
        set_to(legacy, GateState.CLOSED)
        switch.close()
        with refused(sqlstates.GATE_SHUT):
            waiting.result()

    assert legacy.sql("SELECT status FROM trips") == [("before",)]


def test_i8_a_put_waits_for_the_barrier_while_the_gate_says_closing_still(legacy: Legacy) -> None:
    """The process that holds the barrier may be shutting the gate."""
    with session(legacy) as writer, session(legacy) as switch:
        rows(switch, f"SELECT pg_advisory_lock({K}, {BARRIER})")
        set_to(legacy, GateState.CLOSING)
        waiting = Blocked(legacy, writer, admission("trips").replace("$1", "0"))
        waiting.wait_until_it_waits()
        set_to(legacy, GateState.CLOSED)
        switch.close()
        with refused(sqlstates.GATE_SHUT):
            waiting.result()


@pytest.mark.parametrize("origin", ["", "reverse"], ids=["a service", "the reverse mirror"])
def test_a_statement_waits_for_the_barrier_also_where_the_door_is_free(legacy: Legacy, origin: str) -> None:
    """Row capture would refuse it at once. Afterwards it goes by what the gate says then."""
    with session(legacy) as writer, session(legacy) as switch:
        rows(switch, f"SELECT pg_advisory_lock({K}, {BARRIER})")
        rows(writer, f"SET LOCAL tripstore.origin = '{origin}'")
        set_to(legacy, GateState.CLOSED if origin else GateState.OPEN)
        waiting = Blocked(legacy, writer, "UPDATE trips SET status = 'late'")
        waiting.wait_until_it_waits()
        switch.close()
        waiting.result()
        writer.commit()

    assert legacy.sql("SELECT status FROM trips") == [("late",)]


@pytest.mark.parametrize("write", ["insert", "update", "delete", "partition"])
def test_row_capture_refuses_by_itself(legacy: Legacy, write: str) -> None:
    without_statement_gates(legacy)
    set_to(legacy, GateState.CLOSED)
    with session(legacy) as connection, refused(sqlstates.GATE_SHUT):
        rows(connection, WRITES["update" if write == "partition" else write])


def test_row_capture_never_waits(legacy: Legacy) -> None:
    without_statement_gates(legacy)
    with session(legacy) as writer, switcher(legacy) as switch:
        rows(switch, f"SELECT pg_advisory_lock({K}, {BARRIER})")
        rows(writer, "SET LOCAL lock_timeout = '1ms'")
        with refused(sqlstates.GATE_SHUT):
            rows(writer, "UPDATE trips SET status = 'late'")


def test_control_without_gate_and_row_capture_a_closed_store_is_written(legacy: Legacy) -> None:
    without_statement_gates(legacy)
    legacy.sql("ALTER TABLE trips DISABLE TRIGGER ALL")
    set_to(legacy, GateState.CLOSED)
    legacy.sql("UPDATE trips SET status = 'written'")

    assert legacy.sql("SELECT status FROM trips") == [("written",)]


def test_a_partition_made_later_is_behind_the_gate(legacy: Legacy) -> None:
    """Its row triggers are there from the first on; without the event trigger it has no gate of its own at first."""
    legacy.sql(
        "DROP EVENT TRIGGER tripstore_partitions; ALTER TABLE notes DETACH PARTITION notes_1; DROP TABLE notes_1;"
        "CREATE TABLE notes_x PARTITION OF notes FOR VALUES WITH (MODULUS 2, REMAINDER 1)"
    )
    trips = [legacy.trip()[0] for _ in range(20)]
    set_to(legacy, GateState.CLOSED)
    codes = set()
    for id_ in trips:
        with session(legacy) as connection, pytest.raises(errors.Error) as caught:
            rows(connection, "INSERT INTO notes_x (trip_id, n, text) VALUES (%s, 5, 'x')", (id_,))
        codes.add(caught.value.pgcode)

    elsewhere = {"23514", "0A000"}  # the row belongs to another partition
    assert sqlstates.GATE_SHUT in codes
    assert codes <= {sqlstates.GATE_SHUT} | elsewhere
    assert legacy.sql("SELECT count(*) FROM notes_x") == [(0,)]


def test_the_functions_of_the_gate_are_looked_after(legacy: Legacy) -> None:
    legacy.sql("ALTER FUNCTION tripstore.enter(bigint) RESET ALL")
    with legacy.ours() as connection:
        faults = [each.reason for each in verify(connection, layout()) if each.is_error]
    legacy.install(layout())

    assert faults == ["function enter is not what this layout and version make of it"]


@pytest.mark.parametrize("how", ["DROP TRIGGER {} ON tripstore.cell", "ALTER TABLE tripstore.cell DISABLE TRIGGER {}"])
def test_our_own_cells_are_behind_the_gate_and_verify_looks(legacy: Legacy, how: str) -> None:
    legacy.sql(how.format('"0_tripstore_gate"'))
    with legacy.ours() as connection:
        faults = [each for each in verify(connection, layout()) if each.is_error]
    legacy.install(layout())
    set_to(legacy, GateState.CLOSED)

    assert [str(fault.where) for fault in faults] == ["tripstore.cell"]
    with refused(sqlstates.GATE_SHUT):
        legacy.sql("INSERT INTO tripstore.cell (row_key, column_name, ref_key, body) VALUES (%s, 'F', 1, '1')", UUID_0)


def test_the_lock_of_a_datastore_is_its_own() -> None:
    classes: set[int] = {lock_class(name) for name in ("trips", "riders", "")}

    assert len(classes) == 3
    assert all(-(1 << 31) <= each < 1 << 31 for each in classes)


def test_databases_of_one_server_have_gates_of_their_own(legacy: Legacy) -> None:
    other = Legacy(legacy.server)
    other.install(layout())
    with switcher(legacy) as switch:
        rows(switch, f"SELECT pg_advisory_lock({K}, {BARRIER})")
        set_to(legacy, GateState.CLOSED)
        _, key = other.trip("free")

    assert other.versions(key) == [(1, "free")]
