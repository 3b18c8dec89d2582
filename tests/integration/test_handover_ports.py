"""The steps of a hand-over on real Postgres and SQLite: killed, stopped, and through crashes (I1, I8, I9)."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg2
import pytest

from schemaless_core import BatchFailed, Cell, CellConflict, CellKey, CellStore, Datastore, PutResult, ShardStatus
from schemaless_core.control.ledgers.ledgers import Ledgers
from schemaless_core.errors import SchemalessError, StaleEpoch
from schemaless_core.failpoints import use_folder
from tests.chaos.actors import wait_until
from tests.handovers import gate, refreshed
from tests.legacy import FLAVOURS, layout, legacy_server
from tests.legacy_backends import SHARDS, Company, company, status
from tests.legacy_databases import PATIENT
from tests.serving import serve
from tests.stores import Stores
from tripstore.backends.postgres.backend import PostgresBackend
from tripstore.backends.postgres.capture.functions.gate import GateReading, GateState
from tripstore.backends.postgres.errors import ChangesParked, UnreadableRow
from tripstore.backends.postgres.handover import queue as queue_sql
from tripstore.backends.postgres.handover.authority import gate_of
from tripstore.backends.postgres.wire.connections import rows
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.backends.schemaless.shards import REVERSE_GROUP
from tripstore.handover import relay, settle, switch
from tripstore.handover.authority import Authority, Backend
from tripstore.handover.call import call
from tripstore.handover.ports import REFUSED, Chunk, Ports
from tripstore.handover.steps import Step, Steps, run
from tripstore.local.postgres import PostgresServer
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers
from tripstore.migration.mirror.rehearsal_ledger import RehearsalLedger
from tripstore.migration.mirror.reverse import ReverseMirror
from tripstore.migration.mirror.row_ids import RowIds
from tripstore.ports.control import RealControlPort
from tripstore.ports.legacy import RealLegacyPort
from tripstore.ports.store import SchemalessPort


@dataclass(frozen=True)
class Duo:
    """Both stores of a company, and the ports on them."""

    trips: Company
    store: Datastore
    config: dict[str, Any]
    ports: Ports

    def missing(self) -> list[CellKey]:
        """What capture wrote and Schemaless does not have as Postgres has it."""
        keys = [CellKey(*change[:3]) for change in self.trips.legacy.changes()]
        theirs, ours = self.trips.store.get_cells(keys), self.store.as_copier().get_cells(keys)
        return [key for key, there, here in zip(keys, theirs, ours, strict=True) if there != here]


def ports_on(legacy: PostgresBackend, store: Datastore, max_pause_seconds: float = 30.0) -> Ports:
    control = RealControlPort(legacy.database, "trips", max_pause_seconds)
    return Ports(RealLegacyPort(legacy), SchemalessPort(store, lambda cell, error: None), control)


@pytest.fixture(params=FLAVOURS, scope="module")
def shared(request: pytest.FixtureRequest, servers: LocalServers) -> Iterator[Company]:
    flavour: Flavour = request.param
    with company(legacy_server(servers, flavour)) as made:
        yield made


def opened(trips: Company, stores: Stores, exits: ExitStack) -> Duo:
    config = stores.config("sqlite", shards=SHARDS)
    store = exits.enter_context(Datastore.open(config))
    store.create_schema(status=ShardStatus.COPY)
    store.triggers.register_group(REVERSE_GROUP, "now")
    ports = ports_on(trips.store, store)
    exits.callback(ports.legacy.close)  # type: ignore[attr-defined]  # of the real one
    return Duo(trips, store, config, ports)


@pytest.fixture
def duo(shared: Company, stores: Stores) -> Iterator[Duo]:
    with ExitStack() as exits:
        yield opened(refreshed(shared), stores, exits)


def is_writable(trips: Company) -> bool:
    """Whether a service's own SQL is let in; one that has to wait is not."""
    try:
        trips.legacy.sql("SET lock_timeout = '50ms'; INSERT INTO trips (status) VALUES ('x')")
    except psycopg2.Error:
        return False
    return True


def is_taken(duo: Duo, backend: Backend, epoch: int) -> bool:
    """Whether a backend takes an owner's put."""

    def put(store: CellStore) -> PutResult:
        return store.put_cell(uuid4(), "FREE", 1, "x")

    port = duo.ports.legacy if backend is Backend.LEGACY else duo.ports.store
    return port.call(put, epoch) is not REFUSED


def drain_reverse(duo: Duo) -> None:
    legacy, store, control = duo.trips.store, duo.store, duo.ports.control
    row_ids = RowIds(control.authority, legacy.legacy_ids, store, lambda refused: SchemalessPort(store, refused))
    rehearsal = RehearsalLedger(Ledgers(store.control))
    serve(store, ReverseMirror(control, lambda: False, legacy.as_mirror(), legacy.layout, row_ids, rehearsal))


def check_settled(duo: Duo) -> Authority:
    """I9: one store is open, by what it says of itself, and that is the one that the row names."""
    row = duo.ports.control.authority()
    assert row.is_open
    assert gate(duo.trips) == gate_of(row)
    wait_until("no session holds the barrier", lambda: is_writable(duo.trips) == (row.backend is Backend.LEGACY))
    for epoch in range(max(row.epoch - 2, 0), row.epoch + 2):
        for backend in Backend:
            assert is_taken(duo, backend, epoch) == (row.is_open_for(backend) and epoch == row.epoch), (backend, epoch)
    epochs = duo.trips.legacy.sql("SELECT epoch FROM tripstore.authority_history ORDER BY epoch")
    assert [epoch for (epoch,) in epochs] == list(range(row.epoch + 1))
    return row


# --------------------------------------------------------------------------------------------------- a whole hand-over


def test_there_and_back_again(duo: Duo) -> None:
    row_key = duo.trips.base(1, 2, 3)
    duo.trips.legacy.sql("UPDATE trips SET status = 'raw' WHERE trip_uuid = %s", str(row_key))
    told: list[Step] = []

    outcome = run(switch.switch(duo.ports, "there"), told.append)

    assert outcome == switch.HandoverOutcome(True, Authority(2, Backend.STORE, None, "there"))
    assert set(told) == set(switch.FORWARD)
    assert duo.missing() == []
    assert check_settled(duo) == outcome.authority

    known = outcome.authority
    put = run(call(duo.ports, known, lambda store: store.put_cell(row_key, "BASE", 9, status("back"))))
    assert put.value.status == "CREATED"
    drain_reverse(duo)
    outcome = run(switch.reverse(duo.ports, "back"))

    assert outcome == switch.HandoverOutcome(True, Authority(4, Backend.LEGACY, None, "back"))
    assert check_settled(duo) == outcome.authority
    assert duo.trips.versions(row_key) == [9, 4, 3, 2, 1]
    assert duo.trips.legacy.sql("SELECT status FROM trips WHERE trip_uuid = %s", str(row_key)) == [("back",)]
    assert duo.trips.queued(row_key) == [1, 2, 3, 4, 9]
    assert duo.trips.legacy.sql("SELECT epoch, origin FROM tripstore.log WHERE ref_key = 9") == [(2, "reverse")]


def test_a_caller_hears_nothing_of_a_hand_over(duo: Duo) -> None:
    row_key = duo.trips.base(1)
    run(switch.switch(duo.ports, "there"))
    known = Authority(0, Backend.LEGACY)

    answer = run(call(duo.ports, known, lambda store: store.get_cell_latest(row_key, "BASE")))

    assert answer.authority.epoch == 2
    assert answer.value == Cell(row_key, "BASE", 1, status(1))
    assert duo.ports.legacy.call(lambda store: store.put_cells([Cell(uuid4(), "FREE", 1, 1)] * 2), 0) is REFUSED


@pytest.mark.parametrize("is_other", [False, True])
def test_a_batch_is_refused_as_a_whole_or_says_of_each_cell_what_became_of_it(duo: Duo, is_other: bool) -> None:
    cell = Cell(uuid4(), "FREE", 1, 1)
    stale = StaleEpoch(-1, "CLOSED", "it is shut")

    def operation(_store: CellStore) -> None:
        raise BatchFailed([stale, CellConflict(cell, None) if is_other else stale])

    if is_other:
        with pytest.raises(BatchFailed):
            duo.ports.legacy.call(operation, 0)
    else:
        assert duo.ports.legacy.call(operation, 0) is REFUSED


def test_a_change_that_is_parked_stops_a_hand_over(duo: Duo) -> None:
    row_key = uuid4()
    duo.trips.legacy.sql(
        "INSERT INTO trips (trip_uuid, status, base_extra) VALUES (%s, 'x', %s)", str(row_key), '{"n": 1e999}'
    )
    with pytest.raises(ChangesParked):
        run(switch.switch(duo.ports, "parked"))
    row = run(settle.mend(duo.ports))

    assert row == Authority(2, Backend.LEGACY, None, "parked")
    assert check_settled(duo) == row
    with pytest.raises(UnreadableRow):
        duo.trips.store.get_cell_latest(row_key, "BASE")
    duo.trips.legacy.sql("DELETE FROM trips WHERE trip_uuid = %s", str(row_key))


def test_writers_who_stay_inside_stop_a_hand_over(duo: Duo) -> None:
    with closing(duo.trips.legacy.connect()) as writer:
        rows(writer, "INSERT INTO trips (status) VALUES ('inside')")

        outcome = run(switch.switch(duo.ports, "inside", tries=1))

        assert (outcome.is_decided, outcome.reason) == (False, "writers stay inside")
        assert f"pid {writer.info.backend_pid} " in duo.ports.legacy.in_the_way  # type: ignore[attr-defined]
    assert check_settled(duo).is_open_for(Backend.LEGACY)


#: Other companies of the server may have a barrier as well.
END_BARRIER = """
SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
WHERE datname = current_database() AND application_name LIKE '% barrier' AND state = 'idle in transaction'
"""


def test_who_loses_the_barrier_before_the_decision_lets_everybody_in_again(duo: Duo) -> None:
    """No other process is there to do it."""

    def lose(step: Step) -> None:
        if step is switch.DECIDE:
            ended = duo.trips.legacy.sql(END_BARRIER)
            assert ended == [(True,)]

    outcome = run(switch.switch(duo.ports, "lost"), lose)

    assert outcome == switch.HandoverOutcome(False, Authority(2, Backend.LEGACY, None, "lost"), "the barrier was lost")
    assert check_settled(duo) == outcome.authority


def test_a_chunk_is_copied_as_it_stands(duo: Duo) -> None:
    row_keys = [duo.trips.base(1, 2) for _ in range(5)]

    past = duo.ports.legacy.read_chunk(Chunk(rows=10_000))

    versions = {UUID(bytes=cell.row_key): cell.ref_key for cell in past.cells if cell.column_name == b"BASE"}
    assert {row_key: versions[row_key] for row_key in row_keys} == dict.fromkeys(row_keys, 2)
    assert (past.epoch, past.after) == (0, None)


# ----------------------------------------------------------------------------------------------------------- accidents


def in_child(duo: Duo, failpoints: Path, procedure: Callable[[Ports], Steps[Any]]) -> int:
    """A process with connections of its own that goes through the steps."""
    pid = os.fork()
    if not pid:
        try:
            use_folder(failpoints)
            legacy = PostgresBackend(LegacyDatabase(duo.trips.legacy.url, PATIENT), layout(), shards=SHARDS)
            run(procedure(ports_on(legacy, Datastore.open(duo.config))))
            os._exit(0)
        finally:
            os._exit(1)
    return pid


def hand_over(duo: Duo, to: Backend, switch_id: str) -> None:
    """Make this backend the authority, if it is not."""
    row = run(settle.mend(duo.ports))
    if row.backend is not to:
        drain_reverse(duo)
        procedure = switch.switch if to is Backend.STORE else switch.reverse
        assert run(procedure(duo.ports, switch_id)).is_decided


@pytest.mark.parametrize("action", ["kill", "stop"])
@pytest.mark.parametrize("to", list(Backend))
def test_a_switcher_may_be_killed_or_stopped_before_any_step(
    duo: Duo, failpoints: Path, to: Backend, action: str
) -> None:
    """The next process undoes or finishes it; a switcher that goes on later does no harm (I1, I8, I9)."""
    steps, procedure = (switch.FORWARD, switch.switch) if to is Backend.STORE else (switch.BACK, switch.reverse)
    decided = switch.DECIDE if to is Backend.STORE else switch.BACK_DECIDE
    for number, step in enumerate(dict.fromkeys(steps)):
        hand_over(duo, to.other, f"before {number}")
        if to is Backend.STORE:
            duo.trips.base(1, 2)
        else:
            drain_reverse(duo)
        (failpoints / step.name).write_text(action)
        pid = in_child(duo, failpoints, lambda ports, name=f"{action} {number}": procedure(ports, name))  # type: ignore[misc]
        _, ended = os.waitpid(pid, os.WUNTRACED)
        assert os.WIFSTOPPED(ended) if action == "stop" else os.WIFSIGNALED(ended), (step, ended)

        row = run(settle.mend(duo.ports))

        is_later = steps.index(step) > steps.index(decided)
        assert row.backend is (to if is_later else to.other), step
        assert check_settled(duo) == row
        if row.backend is Backend.STORE:
            assert duo.missing() == []
        if action == "stop":
            if row.backend is Backend.STORE:
                drain_reverse(duo)  # he would wait for that without end
            os.kill(pid, signal.SIGCONT)
            assert os.waitpid(pid, 0)[1] == 0, step
            # One that had changed nothing yet begins only now, and gets through.
            has_begun = steps.index(step) > 1
            assert check_settled(duo).backend is (row.backend if has_begun else to), step


def test_the_claims_of_a_relay_that_was_killed_are_carried_by_another(duo: Duo, failpoints: Path) -> None:
    """I8."""
    duo.trips.base(1, 2, 3)
    (failpoints / relay.SEND.name).write_text("kill")
    pid = in_child(duo, failpoints, relay.deliver)
    assert os.WIFSIGNALED(os.waitpid(pid, 0)[1])
    assert duo.trips.legacy.sql("SELECT DISTINCT claimed_by LIKE %s FROM tripstore.queue", f"%/{pid}.%") == [(True,)]
    assert run(relay.deliver(duo.ports)) == (0, 0)

    duo.trips.legacy.sql("UPDATE tripstore.queue SET claimed_until = now() - interval '1 s'")

    assert run(relay.deliver(duo.ports)) == (4, 4)
    assert duo.ports.legacy.queued() == 0
    assert duo.missing() == []


# ------------------------------------------------------------------------------------------------------------- crashes


@pytest.fixture(params=FLAVOURS, scope="module")
def fragile_server(request: pytest.FixtureRequest, servers: LocalServers) -> Iterator[PostgresServer]:
    """A server for crashes, which no other test uses."""
    flavour: Flavour = request.param
    server = servers.postgres(f"fragile-{flavour}", flavour=flavour)
    yield server
    server.kill()


@pytest.fixture
def fragile(fragile_server: PostgresServer) -> Iterator[tuple[PostgresServer, Company]]:
    with company(fragile_server) as trips:
        yield fragile_server, trips


def stop_wal_writer(server: PostgresServer) -> None:
    """From then on nothing that was committed asynchronously is written by itself."""
    found = server.query("SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'")
    os.kill(int(str(found[0]["pid"])), signal.SIGSTOP)


def crash(server: PostgresServer) -> None:
    server.kill()
    server.start()


def written_asynchronously(trips: Company, number: int) -> None:
    with closing(trips.legacy.connect(autocommit=True)) as writer:
        for _ in range(number):
            rows(writer, "SET synchronous_commit = off; INSERT INTO trips (status) VALUES ('x')")


def lost(server: PostgresServer, trips: Company) -> list[Cell]:
    """What was claimed, and therefore sent, and is gone after a crash."""
    stop_wal_writer(server)
    written_asynchronously(trips, 5)
    cells = RealLegacyPort(trips.store).claim(100).cells
    assert len(cells) == 10
    crash(server)
    return [cell for cell in cells if trips.store.get_cell(*cell.key) != cell]


def test_no_crash_takes_back_what_was_claimed(fragile: tuple[PostgresServer, Company]) -> None:
    """I8: the mirror never has what Postgres lost."""
    assert lost(*fragile) == []


def test_control_a_claim_that_is_not_durable_is_taken_back(
    fragile: tuple[PostgresServer, Company], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_sql, "_CLAIM_BEGINS", "SET LOCAL synchronous_commit = off; ")

    assert len(lost(*fragile)) == 10


def test_after_a_crash_gate_and_row_agree_again_and_no_writer_got_in_before(
    fragile: tuple[PostgresServer, Company],
) -> None:
    """I9: what was decided stays decided, and the gate is not open even before a process obeys."""
    server, trips = fragile
    control, legacy = RealControlPort(trips.store.database, "trips"), RealLegacyPort(trips.store)
    first = control.authority()
    closing_ = first.closing("a")
    stop_wal_writer(server)
    with closing(trips.legacy.connect()) as blocker, ThreadPoolExecutor(1) as pool:
        rows(blocker, "LOCK TABLE tripstore.authority_history IN ACCESS EXCLUSIVE MODE")
        closed = pool.submit(control.close, first, closing_)
        wait_until("the gate moves", lambda: gate(trips) == GateReading(1, GateState.CLOSING))
        crash(server)
        try:
            assert closed.result()  # it was sent again
        except SchemalessError:
            control.close(first, closing_)
    run(settle.mend(Ports(legacy, None, control)))  # type: ignore[arg-type]  # Schemaless is not asked
    first = control.authority()
    assert gate(trips) == gate_of(first) == GateReading(2, GateState.OPEN)

    closing_ = first.closing("b")
    stop_wal_writer(server)
    assert control.close(first, closing_)
    assert legacy.take_barrier()
    assert control.shut_gate(closing_)
    assert control.decide(closing_, closing_.decided())
    crash(server)

    assert control.authority() == closing_.decided()
    assert gate(trips).state is GateState.CLOSED
    assert not is_writable(trips)
    assert control.obey() == closing_.decided()
    assert gate(trips) == gate_of(closing_.decided())
