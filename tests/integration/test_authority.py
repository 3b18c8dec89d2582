"""The row that decides, the gate that follows it, and the barrier, on real Postgres (I9)."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from itertools import repeat

import psycopg2
import pytest
from alembic import command
from psycopg2.extensions import connection as Connection  # noqa: N812

from schemaless_core.errors import InvalidServer, SchemalessError
from tests.chaos.actors import wait_until
from tests.handovers import gate, refreshed
from tests.legacy import FLAVOURS, Blocked, captured, legacy_server
from tests.legacy_backends import Company, company
from tests.legacy_databases import PATIENT
from tripstore.backends.postgres.capture.gate import BARRIER, Gate, GateState, lock_class
from tripstore.backends.postgres.capture.migrate import _handed_in, migrate
from tripstore.backends.postgres.errors import LegacyUnavailable
from tripstore.backends.postgres.handover import authority as authority_sql
from tripstore.backends.postgres.handover import barrier as barriers
from tripstore.backends.postgres.handover.authority import gate_of
from tripstore.backends.postgres.wire.connections import rows
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.backends.postgres.wire.wire import LegacyConnection
from tripstore.handover.authority import Authority, Backend
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers
from tripstore.ports.control import RealControlPort

K = lock_class("trips")
FIRST = Authority(0, Backend.LEGACY)
BARRIER_HOLDERS = f"""
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock' AND granted
AND classid = {K & 0xFFFFFFFF}::oid AND objid = {BARRIER}
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""

#: A role that may change the row and the gate. Roles are of the server: another test's may be there.
WEAK = """
DO $$ BEGIN CREATE ROLE weak LOGIN PASSWORD 'weak'; EXCEPTION WHEN duplicate_object THEN NULL; END $$;
GRANT ALL ON ALL TABLES IN SCHEMA tripstore TO weak; GRANT ALL ON SEQUENCE tripstore.gate TO weak"""


@pytest.fixture(params=FLAVOURS, scope="module")
def shared(request: pytest.FixtureRequest, servers: LocalServers) -> Iterator[Company]:
    flavour: Flavour = request.param
    with company(legacy_server(servers, flavour)) as made:
        yield made


@pytest.fixture
def trips(shared: Company) -> Iterator[Company]:
    yield refreshed(shared)
    barriers.barrier_of(shared.store.database, "trips").release()


@pytest.fixture
def control(trips: Company) -> RealControlPort:
    return RealControlPort(trips.store.database, "trips")


@pytest.fixture
def barrier(trips: Company, control: RealControlPort) -> barriers.Barrier:
    """Of this thread; the port decides on it."""
    return barriers.barrier_of(trips.store.database, "trips")


def history(trips: Company) -> list[tuple[int, str, str | None, str]]:
    found = trips.legacy.sql("SELECT epoch, backend, target, switch_id FROM tripstore.authority_history ORDER BY epoch")
    return [(epoch, backend, target, switch_id) for epoch, backend, target, switch_id in found]


def held(trips: Company) -> int:
    """How many hold the barrier."""
    return int(trips.legacy.sql(BARRIER_HOLDERS)[0][0])


def is_writable(trips: Company) -> bool:
    """Whether somebody's own SQL is let in; one who has to wait is not."""
    try:
        trips.legacy.sql("SET lock_timeout = '50ms'; INSERT INTO trips (status) VALUES ('x')")
    except psycopg2.Error:
        return False
    return True


@contextmanager
def session(trips: Company) -> Iterator[Connection]:
    with closing(trips.legacy.connect()) as connection:
        yield connection


def in_child(work: Callable[[], object]) -> int:
    """A process that does this and ends."""
    pid = os.fork()
    if not pid:
        try:
            work()
        finally:
            os._exit(1)
    return pid


def killed(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


# ------------------------------------------------------------------------------------------------------------ the row


def test_in_the_beginning_postgres_is_the_authority_at_the_epoch_of_the_gate(
    servers: LocalServers, trips: Company, control: RealControlPort
) -> None:
    assert control.authority() == FIRST
    assert control.obey() == FIRST
    assert gate(trips) == gate_of(FIRST) == Gate(0, GateState.OPEN)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_database_of_an_older_revision_keeps_its_changes(servers: LocalServers, flavour: Flavour) -> None:
    """Somebody's open transaction keeps the lock from the migration for a while; nobody waits for long behind it."""
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
    assert gate(trips) == Gate(1, GateState.CLOSING)
    assert barrier.take()
    assert control.shut_gate(forward)
    assert gate(trips) == Gate(1, GateState.CLOSED)
    assert control.decide(forward, forward.decided())
    assert held(trips) == 0
    store = control.obey()
    assert (store, gate(trips)) == (forward.decided(), Gate(2, GateState.CLOSED))
    assert not is_writable(trips)

    back = store.closing("back")
    assert control.close(store, back)
    assert (control.obey(), gate(trips)) == (back, Gate(2, GateState.CLOSED))
    assert control.decide(back, back.decided())
    assert control.obey() == back.decided()
    assert gate(trips) == Gate(4, GateState.OPEN)
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
    """I9: the history has every epoch once, and each change in it was somebody's only one."""
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

            assert gate(trips) == gate_of(ports[0].authority()) == Gate(found.epoch + 2, GateState.OPEN)

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


# ---------------------------------------------------------------------------------------------------------- accidents


def test_a_packet_that_the_server_breaks_off_leaves_nothing_that_obeying_does_not_mend(
    trips: Company, control: RealControlPort
) -> None:
    """The gate has moved and the row has not: a sequence takes no part in transactions."""
    closing_ = FIRST.closing("broken")
    with session(trips) as blocker, ThreadPoolExecutor(1) as pool:
        rows(blocker, "LOCK TABLE tripstore.authority_history IN ACCESS EXCLUSIVE MODE")
        closed = pool.submit(control.close, FIRST, closing_)
        wait_until("the gate moves", lambda: gate(trips) == Gate(1, GateState.CLOSING))
        assert control.authority() == FIRST
        waiting = "SELECT pid FROM pg_locks WHERE relation = 'tripstore.authority_history'::regclass AND NOT granted"
        ((pid,),) = trips.legacy.sql(waiting)
        rows(blocker, "SELECT pg_cancel_backend(%s)", (pid,))
        with pytest.raises(SchemalessError):
            closed.result()
        blocker.rollback()

    assert gate(trips) == Gate(1, GateState.CLOSING)
    assert control.obey() == FIRST
    assert gate(trips) == gate_of(FIRST)
    assert is_writable(trips)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_packet_goes_on_without_its_client_or_was_never_there(
    trips: Company, control: RealControlPort, how: signal.Signals
) -> None:
    """A stopped client holds up nobody: no lock of the row waits for him."""
    closing_ = FIRST.closing("gone")
    url = trips.legacy.url
    with session(trips) as blocker:
        rows(blocker, "LOCK TABLE tripstore.authority_history IN ACCESS EXCLUSIVE MODE")
        pid = in_child(lambda: RealControlPort(LegacyDatabase(url, PATIENT), "trips").close(FIRST, closing_))
        wait_until("the gate moves", lambda: gate(trips) == Gate(1, GateState.CLOSING))
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
        assert gate(trips) == Gate(2, GateState.OPEN)
    finally:
        killed(pid)


# -------------------------------------------------------------------------------------------------------- the barrier


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


def test_the_barrier_lets_nobody_wait_behind_a_writer_who_is_old(
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
    """Nobody waits for a switcher who gets no connection for the barrier."""
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

    assert was_decided == [False], "else nobody had to wait"
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


def test_whoever_obeys_an_open_row_ends_a_stopped_holder_of_the_barrier(
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
        assert control.obey() == closing_  # a hand-over goes on: nobody is ended
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


def test_whoever_sets_the_gate_waits_for_who_is_changing_the_row(trips: Company, control: RealControlPort) -> None:
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
    assert gate(trips) == Gate(1, GateState.CLOSING)


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
