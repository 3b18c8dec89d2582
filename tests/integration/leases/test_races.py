"""Many processes at once, and transactions that the server gives up: no change of a lease is lost."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from schemaless_core import ControlUnavailable
from schemaless_core.control import changes
from schemaless_core.control.audit import AuditLog
from schemaless_core.control.changes import make_change
from schemaless_core.control.database import MIGRATIONS, ControlDatabase, newest_version
from schemaless_core.triggers.leases import changes as lease_changes
from schemaless_core.triggers.leases.coordinator import (
    Change,
    Lease,
    LeaseConfig,
)
from schemaless_core.triggers.leases.leader import Leader
from schemaless_core.triggers.leases.leases import Leases
from tests.integration.leases.groups import GROUP, Opener, a_group, lead, opener, stored
from tests.stores import ServerEngine, Stores
from tests.unit.clock import FakeClock


def test_processes_that_register_a_group_at_once_agree(open_control: Opener, control: ControlDatabase) -> None:
    def register(number: int) -> object:
        with closing(open_control()) as own:
            return Leases(own).register_group(GROUP, f"start {number}", 64, allowed=100)

    with ThreadPoolExecutor(6) as executor:
        records = list(executor.map(register, range(6)))

    assert len(set(records)) == 1
    assert len(stored(Leases(control))) == 64
    assert [entry.action for entry in AuditLog(control).newest()] == ["triggers.register"]


def test_of_many_that_take_the_leadership_at_once_one_has_it(open_control: Opener, control: ControlDatabase) -> None:
    def take(number: int) -> int | None:
        with closing(open_control()) as own:
            return Leases(own).take_lead(f"w{number}", seen)

    for term in (1, 2):
        seen = Leases(control).lead("", None)
        with ThreadPoolExecutor(6) as executor:
            terms = list(executor.map(take, range(6)))
        assert [taken for taken in terms if taken is not None] == [term]


def test_all_leases_of_a_large_group_change_in_few_statements(control: ControlDatabase, leases: Leases) -> None:
    leases.register_group(GROUP, "now", 4096, allowed=100)
    term = lead(leases)
    statements = []
    sa.event.listen(sa.Engine, "before_cursor_execute", count := lambda *call: statements.append(call[2]))
    try:
        give = [Change(GROUP, shard, None, 0, None, "ab"[shard % 2]) for shard in range(4096)]
        assert leases.assign("leader", term, give) == 4096
        move = [Change(GROUP, shard, "a", 1, "b", None) for shard in range(0, 4096, 2)]
        assert leases.assign("leader", term, move) == 2048
        leases.release("a", leases.beat("a", [GROUP], {}).leases)
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", count)

    assert {lease.owner for lease in stored(leases)} == {"b"}
    assert len(statements) < 40


def test_a_lease_is_not_given_away_while_it_is_being_released(
    open_control: Opener, control: ControlDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both found it unchanged, unless the one waits for the other."""
    leases = Leases(control)
    a_group(leases, "a")
    term, write = lead(leases), lease_changes._write
    has_looked, is_assigned = threading.Event(), threading.Event()

    def write_slowly(*arguments: object) -> int:
        if not has_looked.is_set():
            has_looked.set()
            is_assigned.wait(0.5)
        return write(*arguments)  # type: ignore[arg-type]  # handed on as they are

    monkeypatch.setattr(lease_changes, "_write", write_slowly)
    with ThreadPoolExecutor(1) as executor, closing(open_control()) as own:
        released = executor.submit(Leases(own).release, "a", stored(leases))
        assert has_looked.wait(10)
        changed = leases.assign("leader", term, [Change(GROUP, 0, "a", 1, None, "b")])
        is_assigned.set()
        released.result()

    assert changed == 0
    assert stored(leases) == [Lease(GROUP, 0, None, None, 2)]


def test_workers_and_leaders_that_change_leases_at_once_lose_no_change(
    open_control: Opener, control: ControlDatabase
) -> None:
    """Every change of owner raises the fence by one, whichever worker makes it and in whatever order they wait."""
    shards, groups = 40, ["g", "h"]
    coordinator = Leases(control)
    for group in groups:
        coordinator.register_group(group, "now", shards, allowed=100)
    term = lead(coordinator)
    is_over = threading.Event()

    def work(name: str) -> None:
        with closing(open_control()) as own:
            mine, known = Leases(own), dict[str, int]()
            while not is_over.is_set():
                held = mine.beat(name, groups, known)
                known = {group: record.version for group, record in held.groups.items()}
                mine.release(name, [lease for lease in held.leases if lease.owner == name])
                time.sleep(0.003)  # SQLite has no queue of waiters: it lets in one that asks at the right moment
            mine.leave(name)

    with ThreadPoolExecutor(4) as executor:
        workers = [executor.submit(work, name) for name in "abcd"]
        changed, until = 0, time.monotonic() + 2
        try:
            while time.monotonic() < until:
                homeless = [lease for lease in coordinator.survey().leases if lease.owner is None]
                give = [Change(*lease[:3], lease.fence, None, "abcd"[lease.shard % 4]) for lease in homeless]
                changed += coordinator.assign("leader", term, give)
        finally:
            is_over.set()
        for worker in workers:
            worker.result()

    assert changed > 0
    leases = coordinator.survey().leases
    assert [(lease.owner, lease.heir) for lease in leases] == [(None, None)] * 2 * shards
    assert sum(lease.fence for lease in leases) == 2 * changed  # each was given once and let go once


def test_leaders_over_one_control_database_hand_everything_on(open_control: Opener, control: ControlDatabase) -> None:
    clock, config = FakeClock(), LeaseConfig(lease_seconds=6.0)
    leases = Leases(control)
    leases.register_group(GROUP, "now", 12, allowed=100)
    members = {name: Leases(control) for name in "abc"}
    leaders = {name: Leader(member, name, config, clock) for name, member in members.items()}

    def rounds(count: int, living: str) -> list[int]:
        for _round in range(count):
            clock.advance(config.beat_seconds)
            for name in living:
                held = members[name].beat(name, [GROUP], {}).leases
                members[name].release(name, [lease for lease in held if lease.owner == name and lease.heir])
                leaders[name].step()
        owners = [lease.owner for lease in stored(leases)]
        return [owners.count(name) for name in "abc"]

    assert rounds(1, "a") == [12, 0, 0]
    assert rounds(4, "abc") == [4, 4, 4]
    assert rounds(8, "bc") == [0, 6, 6]  # a led: first its leadership is taken, then its leases
    members["b"].leave("b")
    assert rounds(1, "c") == [0, 0, 12]
    assert [name for name, leader in leaders.items() if leader.is_leading][-1] == "c"


def test_a_transaction_that_the_server_gave_up_is_repeated(server_engine: ServerEngine, stores: Stores) -> None:
    """Two that take the same rows in another order: a deadlock."""
    with closing(opener(server_engine, stores)()) as control:
        control.migrate()
        for group in ("g", "h"):
            Leases(control).register_group(group, "now", 1, allowed=0)
        both_hold_one, tries = threading.Barrier(2), [0, 0]

        def take(number: int) -> None:
            def work(connection: sa.Connection) -> None:
                tries[number] += 1
                first, second = ("g", "h") if number else ("h", "g")
                bump = "UPDATE trigger_group SET version = version + 1 WHERE name = :name"
                connection.execute(sa.text(bump), {"name": first})
                if tries[number] == 1:
                    both_hold_one.wait(10)
                connection.execute(sa.text(bump), {"name": second})

            make_change(control, work)

        before = {name: record.version for name, record in Leases(control).groups().items()}
        with ThreadPoolExecutor(2) as executor:
            list(executor.map(take, range(2)))

        assert sorted(tries) == [1, 2]
        assert {name: record.version - before[name] for name, record in Leases(control).groups().items()} == {
            "g": 2,
            "h": 2,
        }


def test_a_leader_that_stops_in_the_middle_does_not_hold_the_others_for_ever(
    server_engine: ServerEngine, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_control = opener(server_engine, stores)
    monkeypatch.setattr(changes, "BE_BRIEF", "SET SESSION wait_timeout = 1, innodb_lock_wait_timeout = 3")
    with closing(open_control()) as control, closing(open_control()) as others:
        control.migrate()
        a_group(Leases(control), "a")
        term, is_stopped, may_go = lead(Leases(control)), threading.Event(), threading.Event()

        def stop(_point: str) -> None:
            if not is_stopped.is_set():
                is_stopped.set()
                may_go.wait(30)

        monkeypatch.setattr("schemaless_core.triggers.leases.leases.reach", stop)
        with ThreadPoolExecutor(1) as executor:
            stopped = executor.submit(Leases(control).assign, "leader", term, [Change(GROUP, 0, "a", 1, None, "b")])
            assert is_stopped.wait(10)
            seen = Leases(others).lead("c", None)
            assert Leases(others).take_lead("c", seen) == term + 1
            may_go.set()
            with pytest.raises(ControlUnavailable):
                stopped.result()

        assert stored(Leases(others)) == [Lease(GROUP, 0, "a", None, 1)]


def test_the_tables_can_be_taken_back_and_made_again(control: ControlDatabase) -> None:
    Leases(control).register_group(GROUP, "now", 2, allowed=1)
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))

    with control.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "0001")

    assert control.version() == "0001"
    assert [entry.action for entry in AuditLog(control).newest()] == ["triggers.register"]
    control.migrate()
    assert control.version() == newest_version()
    assert Leases(control).groups() == {}
