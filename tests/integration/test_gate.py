"""The gate: who may write the mapped tables while it is open, closing, closed; what the barrier waits for (I9)."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg2
import pytest
from psycopg2 import errors
from psycopg2.extensions import connection as Connection  # noqa: N812

from tests.chaos.actors import wait_until
from tests.facades import Migration, migration
from tests.legacy import FLAVOURS, Blocked, Legacy, captured, layout, legacy_server, refused
from tests.stores import Stores
from tripstore.backends.postgres import sqlstates
from tripstore.backends.postgres.capture import verify
from tripstore.backends.postgres.capture.functions.gate import (
    BARRIER,
    DOOR,
    GateReading,
    GateState,
    admission,
    lock_class,
    read_gate,
    set_gate,
)
from tripstore.backends.postgres.capture.install import GateFunctions
from tripstore.backends.postgres.capture.names import GATE_FUNCTION
from tripstore.backends.postgres.wire.connections import rows
from tripstore.handover import switch
from tripstore.handover.steps import Step, run
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

K = lock_class("trips")
UUID_0 = "00000000-0000-0000-0000-000000000000"
ISOLATIONS = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]
WRITES = {
    "insert": "INSERT INTO trips (status) VALUES ('x')",
    "no row": "UPDATE trips SET status = 'x' WHERE false",
    "update": "UPDATE trips SET status = 'x'",
    "delete": "DELETE FROM trips",
    "upsert": "INSERT INTO trips (id, status) VALUES (1, 'x') ON CONFLICT (id) DO UPDATE SET status = 'x'",
    "nothing": "INSERT INTO trips (id, status) VALUES (1, 'x') ON CONFLICT DO NOTHING",
    "cte": "WITH w AS (UPDATE trips SET status = 'x' RETURNING 1) SELECT * FROM w",
    "merge": "MERGE INTO trips t USING users u ON t.id = u.id WHEN MATCHED THEN UPDATE SET status = 'x'",
    "partition": "UPDATE notes_0 SET text = 'x'",
    "child": "DELETE FROM attempts",
    "replica": "SET LOCAL session_replication_role = replica; UPDATE trips SET status = 'x'",
}


@pytest.fixture(params=FLAVOURS)
def legacy(request: pytest.FixtureRequest, servers: LocalServers) -> Legacy:
    flavour: Flavour = request.param
    made = captured(legacy_server(servers, flavour))
    id_, _ = made.trip("before")
    made.sql("INSERT INTO notes (trip_id, n, text) VALUES (%s, 1, 'before')", id_)
    return made


@pytest.fixture
def warned(legacy: Legacy) -> Legacy:
    """Direct writers are only warned."""
    with legacy.ours() as connection:
        GateFunctions(layout(), warns=True).apply(connection, lambda _done, _total: None)
        assert [each for each in verify(connection, layout(), warns=True) if each.is_error] == []
        assert [each for each in verify(connection, layout()) if each.is_error] != []
    return legacy


@contextmanager
def session(legacy: Legacy, isolation: str | None = None) -> Iterator[Connection]:
    connection = legacy.connect(isolation=isolation)
    try:
        yield connection
    finally:
        connection.close()


@contextmanager
def switcher(legacy: Legacy) -> Iterator[Connection]:
    """Holds the door; sets the gate on a connection of its own, as the switch does."""
    with session(legacy) as connection:
        rows(connection, f"SELECT pg_advisory_lock({K}, {DOOR})")
        yield connection


def set_to(legacy: Legacy, state: GateState, epoch: int = 1) -> None:
    with legacy.ours() as connection:
        set_gate(connection, GateReading(epoch, state))
        assert read_gate(connection) == GateReading(epoch, state)


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


def without_statement_gates(legacy: Legacy) -> None:
    """As for rows that logical apply writes, and for partitions made since."""
    for table in ("trips", "notes", "notes_0", "notes_1", "attempts"):
        legacy.sql(f'ALTER TABLE {table} DISABLE TRIGGER "0_tripstore_gate"')


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


# --- direct writers are warned ---


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


# --- a whole switch, and the company writes all the time ---


class Writers:
    """Some of the company's services: short transactions, one after the other, whatever becomes of them."""

    def __init__(self, legacy: Legacy) -> None:
        self._legacy = legacy
        self._stop = threading.Event()
        self.commits = list[float]()
        self.refusals = list[float]()

    @contextmanager
    def writing(self) -> Iterator[None]:
        with ThreadPoolExecutor(3) as pool:
            running = [pool.submit(self._write) for _ in range(3)]
            try:
                self.wait_for_more()
                yield
            finally:
                self._stop.set()
        for each in running:
            each.result()

    def wait_for_more(self) -> None:
        """Until they have been answered for a while."""
        before = len(self.commits) + len(self.refusals)
        wait_until("they were answered", lambda: len(self.commits) + len(self.refusals) > before + 20)

    def _write(self) -> None:
        with session(self._legacy) as connection:
            while not self._stop.is_set():
                try:
                    rows(connection, "INSERT INTO trips (status) VALUES ('a')")
                    rows(connection, "UPDATE trips SET status = 'b' WHERE id = currval('trips_id_seq')")
                    connection.commit()
                    self.commits.append(time.monotonic())
                except psycopg2.Error as error:
                    if error.pgcode != sqlstates.GATE_SHUT:
                        raise
                    self.refusals.append(time.monotonic())
                    connection.rollback()


@pytest.fixture(params=["postgres", "postgres18"])
def migrated(request: pytest.FixtureRequest, servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    with migration(servers, stores, postgres=request.param) as made:
        yield made


def switched(migrated: Migration, writers: Writers) -> tuple[switch.HandoverOutcome, float]:
    """A switch whose tries are far enough apart for many to come in between; and when it came to shut the gate."""
    shut_at = [math.inf]

    def hear(step: Step) -> None:
        if step is switch.BARRIER:
            writers.wait_for_more()
        if step is switch.SHUT:
            shut_at[0] = time.monotonic()

    outcome = run(switch.switch(migrated.duo.ports, "x", tries=2), hear)
    return outcome, shut_at[0]


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
