"""The coordinator's contract: in memory, and over control databases of every engine. Races and accidents over these.

Cases of KCL's lease tests among ours: their conditional update is our owner and fence.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from schemaless_core import ControlUnavailable, DocumentConflict, InvalidRequest
from schemaless_core.config import parse_config
from schemaless_core.control import changes, lease_changes
from schemaless_core.control.audit import AuditLog
from schemaless_core.control.changes import make_change
from schemaless_core.control.database import MIGRATIONS, ControlDatabase, newest_version
from schemaless_core.control.documents import Document, Documents
from schemaless_core.control.leases import Leases
from schemaless_core.triggers.coordinator import (
    Change,
    Coordinator,
    GroupState,
    LeaderRecord,
    LeadershipLost,
    Lease,
    LeaseConfig,
    WorkerRecord,
)
from schemaless_core.triggers.leader import Leader
from tests.stores import ServerEngine, Stores
from tests.unit.clock import FakeClock
from tests.unit.coordinators import MemoryCoordinator

GROUP = "bill_rider"
Opener = Callable[[], ControlDatabase]


def opener(engine: str, stores: Stores) -> Opener:
    """Opens the control database of a datastore that nobody else uses, as often as it is asked."""
    config = parse_config(stores.config(engine), Path())
    return lambda: ControlDatabase(config.control, config.datastore, config.tls, config.deadlines.connect_seconds)


@pytest.fixture
def open_control(datastore_engine: str, stores: Stores) -> Opener:
    return opener(datastore_engine, stores)


@pytest.fixture
def control(open_control: Opener) -> Iterator[ControlDatabase]:
    with closing(open_control()) as opened:
        opened.migrate()
        yield opened


@pytest.fixture
def leases(control: ControlDatabase) -> Leases:
    return Leases(control)


@pytest.fixture
def coordinator(store_engine: str, stores: Stores) -> Iterator[Coordinator]:
    if store_engine == "memory":
        yield MemoryCoordinator()
        return
    with closing(opener(store_engine, stores)()) as control:
        control.migrate()
        yield Leases(control)


def a_group(coordinator: Coordinator, *owners: str | None, name: str = GROUP) -> None:
    """A group with a lease per owner, given by a leader of its own."""
    coordinator.register_group(name, "now", len(owners), allowed=100)
    give = [Change(name, shard, None, 0, None, owner) for shard, owner in enumerate(owners) if owner]
    coordinator.assign("leader", lead(coordinator), give)


def lead(coordinator: Coordinator, worker: str = "leader") -> int:
    """Make a worker the leader, whoever leads."""
    seen = coordinator.lead(worker, None)
    if seen is not None and seen.owner == worker:
        return seen.term
    term = coordinator.take_lead(worker, seen)
    assert term is not None
    return term


def stored(coordinator: Coordinator, group: str = GROUP) -> list[Lease]:
    return [lease for lease in coordinator.survey().leases if lease.group == group]


def version(coordinator: Coordinator, group: str = GROUP) -> int:
    found = coordinator.find_group(group)
    assert found is not None
    return found.version


def test_a_group_is_registered_once_with_a_lease_per_shard(coordinator: Coordinator) -> None:
    first = coordinator.register_group(GROUP, "beginning", 3, allowed=100)
    again = coordinator.register_group(GROUP, "now", 3, allowed=7)

    assert first == again == coordinator.find_group(GROUP)
    assert (first.state, first.reason, first.start, first.parked_allowed) == (GroupState.RUNNING, "", "beginning", 100)
    assert coordinator.groups() == {GROUP: first}
    assert stored(coordinator) == [Lease(GROUP, shard, None, None, 0) for shard in range(3)]


def test_a_group_that_was_removed_is_gone_and_may_come_back(coordinator: Coordinator) -> None:
    a_group(coordinator, "a", None)
    before = version(coordinator)

    coordinator.remove_group(GROUP)
    coordinator.remove_group(GROUP)

    assert (coordinator.find_group(GROUP), coordinator.groups(), stored(coordinator)) == (None, {}, [])
    assert coordinator.beat("a", [GROUP], {GROUP: before}) == ((), {})
    coordinator.register_group(GROUP, "now", 1, allowed=100)
    assert version(coordinator) != before
    assert stored(coordinator) == [Lease(GROUP, 0, None, None, 0)]


def test_a_worker_hears_what_it_owns_and_inherits(coordinator: Coordinator) -> None:
    a_group(coordinator, "a", "b", None)
    coordinator.assign("leader", lead(coordinator), [Change(GROUP, 1, "b", 1, "a", None)])

    held = coordinator.beat("a", [GROUP, "unknown"], {})

    assert held.leases == (Lease(GROUP, 0, "a", None, 1), Lease(GROUP, 1, "b", "a", 1))
    assert held.groups == coordinator.groups()


def test_a_quiet_beat_tells_no_leases(coordinator: Coordinator) -> None:
    a_group(coordinator, "a")
    a_group(coordinator, "a", name="another")
    known = {name: record.version for name, record in coordinator.beat("a", [GROUP, "another"], {}).groups.items()}

    quiet = coordinator.beat("a", [GROUP, "another"], known)
    coordinator.release("a", [Lease("another", 0, "a", None, 1)])
    lively = coordinator.beat("a", [GROUP, "another"], known | {"another": known["another"]})

    assert quiet.leases == ()
    assert {name: record.version for name, record in quiet.groups.items()} == known
    assert lively.leases == ()
    assert lively.groups["another"].version > known["another"]
    assert lively.groups[GROUP].version == known[GROUP]


def test_each_beat_counts_and_announces(coordinator: Coordinator) -> None:
    coordinator.beat("a", ["y", "x"], {})
    coordinator.beat("a", ["x"], {})
    coordinator.beat("b", [], {})

    records = coordinator.survey().workers

    assert [(record.worker, record.groups, record.counter) for record in records] == [("a", ("x",), 2), ("b", (), 1)]


def test_a_released_lease_is_its_heirs_or_nobodys(coordinator: Coordinator) -> None:
    a_group(coordinator, "a", "a", "a", "b")
    coordinator.assign("leader", lead(coordinator), [Change(GROUP, 1, "a", 1, "b", None)])

    coordinator.release("a", [lease for lease in stored(coordinator) if lease.shard != 2])

    assert stored(coordinator) == [
        Lease(GROUP, 0, None, None, 2),
        Lease(GROUP, 1, "b", None, 2),
        Lease(GROUP, 2, "a", None, 1),
        Lease(GROUP, 3, "b", None, 1),
    ]


def test_a_lease_that_was_lost_cannot_be_released(coordinator: Coordinator) -> None:  # KCL: testUpdateLostLease
    a_group(coordinator, "a")
    old = stored(coordinator)[0]
    coordinator.assign("leader", lead(coordinator), [Change(GROUP, 0, "a", 1, None, "b")])
    before = version(coordinator)

    coordinator.release("a", [old])

    assert stored(coordinator) == [Lease(GROUP, 0, "b", None, 2)]
    assert version(coordinator) == before


def test_a_lease_that_was_regained_is_not_released_by_its_past(coordinator: Coordinator) -> None:
    # KCL: testUpdateRegainedLease, testUpdateOldLease
    a_group(coordinator, "a")
    old = stored(coordinator)[0]
    term = lead(coordinator)
    coordinator.assign("leader", term, [Change(GROUP, 0, "a", 1, None, "b")])
    coordinator.assign("leader", term, [Change(GROUP, 0, "b", 2, None, "a")])

    coordinator.release("a", [old])

    assert stored(coordinator) == [Lease(GROUP, 0, "a", None, 3)]


def test_revoked_shards_are_nobodys_under_a_fence_above_the_one_that_was_seen(coordinator: Coordinator) -> None:
    a_group(coordinator, "a", "a", "b")
    before = version(coordinator)

    coordinator.revoke(GROUP, {0: 2, 1: 40, 2: 1})  # the last one's lease is as high already
    coordinator.revoke("unknown", {0: 7})

    assert stored(coordinator) == [
        Lease(GROUP, 0, None, None, 3),
        Lease(GROUP, 1, None, None, 41),
        Lease(GROUP, 2, "b", None, 1),
    ]
    assert version(coordinator) > before


def test_leases_of_unknown_groups_and_shards_are_released_in_silence(coordinator: Coordinator) -> None:
    a_group(coordinator, "a")

    coordinator.release("a", [Lease("unknown", 0, "a", None, 1), Lease(GROUP, 9, "a", None, 1)])
    coordinator.release("a", [])

    assert stored(coordinator) == [Lease(GROUP, 0, "a", None, 1)]


def test_who_leaves_lets_go_of_everything(coordinator: Coordinator) -> None:  # kazoo: party_session_failure
    a_group(coordinator, "a", "b", "a")
    a_group(coordinator, "a", name="another")
    coordinator.assign("leader", term := lead(coordinator), [Change(GROUP, 2, "a", 1, "b", None)])
    coordinator.beat("a", [GROUP], {})
    coordinator.beat("b", [GROUP], {})

    coordinator.leave("a")
    coordinator.leave("a")

    assert [(lease.owner, lease.fence) for lease in stored(coordinator)] == [(None, 2), ("b", 1), ("b", 2)]
    assert stored(coordinator, "another") == [Lease("another", 0, None, None, 2)]
    assert [record.worker for record in coordinator.survey().workers] == ["b"]
    assert coordinator.assign("leader", term, []) == 0  # somebody else's leadership is not touched


def test_a_leader_that_leaves_leads_no_more(coordinator: Coordinator) -> None:
    term = lead(coordinator, "a")

    coordinator.leave("a")
    seen = coordinator.lead("b", None)

    assert seen is not None
    assert (seen.owner, seen.term) == (None, term)
    assert coordinator.take_lead("b", seen) == term + 1
    with pytest.raises(LeadershipLost):
        coordinator.assign("a", term, [])


def test_leadership_is_taken_renewed_and_taken_over(coordinator: Coordinator) -> None:
    # KCL: testTakeUpdatedLease, testHoldUpdatedLease; kazoo: overtake, overtake_refuse_first
    assert coordinator.lead("a", None) is None
    assert coordinator.take_lead("a", None) == 1
    assert coordinator.take_lead("b", None) is None
    taken = coordinator.lead("b", None)
    assert taken == LeaderRecord("a", 1, 1)
    renewed = coordinator.lead("a", 1)
    assert renewed == LeaderRecord("a", 1, 2)

    assert coordinator.take_lead("b", taken) is None  # it was renewed since
    assert coordinator.take_lead("b", renewed) == 2
    assert coordinator.take_lead("c", renewed) is None
    assert coordinator.lead("a", 1) == LeaderRecord("b", 2, 3)
    assert coordinator.lead("b", 1) == LeaderRecord("b", 2, 3)  # the name alone renews nothing


def test_only_the_leader_of_the_term_assigns(coordinator: Coordinator) -> None:
    coordinator.register_group(GROUP, "now", 1, allowed=100)
    give = [Change(GROUP, 0, None, 0, None, "a")]
    coordinator.beat("w", [GROUP], {})
    with pytest.raises(LeadershipLost):
        coordinator.assign("leader", 1, give)
    term = lead(coordinator)
    before = version(coordinator)

    for worker, its_term in (("leader", term + 1), ("leader", term - 1), ("another", term)):
        with pytest.raises(LeadershipLost) as lost:
            coordinator.assign(worker, its_term, give, coordinator.survey().workers)
        assert (lost.value.worker, lost.value.term) == (worker, its_term)

    assert stored(coordinator) == [Lease(GROUP, 0, None, None, 0)]
    assert (version(coordinator), len(coordinator.survey().workers)) == (before, 1)
    assert coordinator.assign("leader", term, give) == 1


def test_changes_of_every_kind_are_made_at_once_and_counted(coordinator: Coordinator) -> None:
    a_group(coordinator, "a", "a", "a", None)
    a_group(coordinator, "a", name="another")
    term = lead(coordinator)
    coordinator.assign("leader", term, [Change(GROUP, 2, "a", 1, "c", None)])
    before = version(coordinator), version(coordinator, "another")

    changed = coordinator.assign(
        "leader",
        term,
        [
            Change(GROUP, 0, "a", 1, None, "b"),
            Change(GROUP, 1, "a", 1, "b", None),
            Change(GROUP, 2, "a", 1, None, None),
            Change(GROUP, 3, None, 0, None, "c"),
            Change("another", 0, "a", 1, None, "b"),
        ],
    )

    assert changed == 5
    assert stored(coordinator) == [
        Lease(GROUP, 0, "b", None, 2),
        Lease(GROUP, 1, "a", "b", 1),
        Lease(GROUP, 2, "a", None, 1),
        Lease(GROUP, 3, "c", None, 1),
    ]
    assert stored(coordinator, "another") == [Lease("another", 0, "b", None, 2)]
    assert version(coordinator) > before[0]
    assert version(coordinator, "another") > before[1]


def test_a_change_of_what_changed_meanwhile_is_not_made(coordinator: Coordinator) -> None:  # KCL: testEvictChangedLease
    a_group(coordinator, "a", "b")
    coordinator.release("b", [Lease(GROUP, 1, "b", None, 1)])
    before = version(coordinator)
    stale = [
        Change(GROUP, 0, "b", 1, None, "c"),
        Change(GROUP, 0, "a", 0, None, "c"),
        Change(GROUP, 1, "b", 1, "c", None),
        Change(GROUP, 0, "a", 1, None, None),  # as it is
        Change("unknown", 0, None, 0, None, "c"),
        Change(GROUP, 9, None, 0, None, "c"),
    ]

    assert coordinator.assign("leader", lead(coordinator), stale) == 0
    assert stored(coordinator) == [Lease(GROUP, 0, "a", None, 1), Lease(GROUP, 1, None, None, 2)]
    assert version(coordinator) == before


def test_the_dead_are_forgotten_unless_they_have_risen(coordinator: Coordinator) -> None:
    a_group(coordinator, "a", "b", "gone")
    for worker in "ab":
        coordinator.beat(worker, [GROUP], {})
    dead = [*coordinator.survey().workers, WorkerRecord("gone", "here", 1, (GROUP,), 3)]
    coordinator.beat("a", [GROUP], {})
    rob = [Change(GROUP, shard, owner, 1, None, "c") for shard, owner in enumerate(["a", "b", "gone"])]

    assert coordinator.assign("leader", lead(coordinator), rob, dead) == 2

    assert [lease.owner for lease in stored(coordinator)] == ["a", "c", "c"]
    assert [record.worker for record in coordinator.survey().workers] == ["a"]


def test_a_halted_group_stays_so_until_somebody_resumes_it(coordinator: Coordinator) -> None:
    a_group(coordinator, "a")
    before = version(coordinator)

    coordinator.halt(GROUP, "101 cells are parked")
    coordinator.halt(GROUP, "another reason")
    coordinator.halt("unknown", "no matter")
    halted = coordinator.find_group(GROUP)
    coordinator.resume(GROUP, 201)
    resumed = coordinator.find_group(GROUP)

    assert halted is not None
    assert resumed is not None
    assert (halted.state, halted.reason, halted.parked_allowed) == (GroupState.HALTED, "101 cells are parked", 100)
    assert (resumed.state, resumed.reason, resumed.parked_allowed) == (GroupState.RUNNING, "", 201)
    assert before < halted.version < resumed.version
    assert stored(coordinator) == [Lease(GROUP, 0, "a", None, 1)]
    with pytest.raises(InvalidRequest, match="no trigger group 'unknown'") as refused:
        coordinator.resume("unknown", 1)
    assert refused.value.hint


def test_a_survey_after_each_change_is_as_if_it_were_the_first(coordinator: Coordinator) -> None:
    """Leases of groups that did not change are remembered."""
    a_group(coordinator, "a", "b")
    a_group(coordinator, "a", name="another")
    assert len(coordinator.survey().leases) == 3

    coordinator.release("b", [Lease(GROUP, 1, "b", None, 1)])
    assert stored(coordinator)[1].owner is None
    coordinator.remove_group("another")
    coordinator.register_group("another", "now", 2, allowed=1)

    survey = coordinator.survey()
    assert [lease[1:3] for lease in survey.leases if lease.group == "another"] == [(0, None), (1, None)]
    assert survey.groups == coordinator.groups()


def test_a_worker_says_where_it_runs(leases: Leases) -> None:
    leases.beat("a", [], {})

    (record,) = leases.survey().workers

    assert (record.host, record.pid) == (socket.gethostname(), os.getpid())


def test_what_people_decide_is_in_the_audit_log_once(control: ControlDatabase, leases: Leases) -> None:
    leases.register_group(GROUP, "now", 1, allowed=100)
    leases.register_group(GROUP, "now", 1, allowed=100)
    leases.halt(GROUP, "101 cells are parked")
    leases.halt(GROUP, "102 cells are parked")
    leases.resume(GROUP, 201)
    leases.remove_group(GROUP)
    leases.remove_group(GROUP)

    entries = [(entry.action, json.loads(entry.detail)) for entry in reversed(AuditLog(control).newest())]

    assert entries == [
        ("triggers.register", {"group": GROUP, "start": "now"}),
        ("triggers.halt", {"group": GROUP, "reason": "101 cells are parked"}),
        ("triggers.resume", {"group": GROUP, "allowed": 201}),
        ("triggers.remove", {"group": GROUP}),
    ]


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
    """Every change of owner raises the fence by one, whoever makes it and whoever waits for whom."""
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
                time.sleep(0.003)  # SQLite lets in whoever asks at the right moment, and nobody waits in a line
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

        monkeypatch.setattr("schemaless_core.control.leases.reach", stop)
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


def test_a_document_changes_only_from_the_version_that_was_seen(control: ControlDatabase) -> None:
    documents = Documents(control)
    put = {"action": "index.create", "detail": {"index": "by_driver"}}
    assert documents.find("indexes") is None

    first = documents.put("indexes", {"alias": 1, "name": "Ærø"}, expected_version=0, **put)  # type: ignore[arg-type]
    second = documents.put("indexes", {"alias": 2}, expected_version=1, **put)  # type: ignore[arg-type]  # the keywords of both puts

    assert first == Document("indexes", 1, {"alias": 1, "name": "Ærø"})
    assert documents.find("indexes") == second == Document("indexes", 2, {"alias": 2})
    for stale in (0, 1, 3):
        with pytest.raises(DocumentConflict) as conflict:
            documents.put("indexes", {"alias": 9}, expected_version=stale, **put)  # type: ignore[arg-type]
        assert (conflict.value.name, conflict.value.expected_version) == ("indexes", stale)
    assert documents.find("indexes") == second
    assert [entry.action for entry in AuditLog(control).newest()] == ["index.create"] * 2


def test_documents_are_listed_by_the_beginning_of_their_names(control: ControlDatabase) -> None:
    documents = Documents(control)
    for name in ("index:b", "index:a", "Index:c", "index%", "other"):
        documents.put(name, {}, expected_version=0, action="test", detail={})

    assert [document.name for document in documents.all("index:")] == ["index:a", "index:b"]
    assert len(documents.all("")) == 5


def test_a_large_document_is_kept_whole(control: ControlDatabase) -> None:
    body = {"digests": "x" * 300_000}

    Documents(control).put("large", body, expected_version=0, action="test", detail={})  # type: ignore[arg-type]

    found = Documents(control).find("large")
    assert found is not None
    assert found.body == body


def test_of_many_that_change_a_document_at_once_one_does(open_control: Opener, control: ControlDatabase) -> None:
    def put(number: int) -> bool:
        with closing(open_control()) as own:
            try:
                Documents(own).put("raced", {"by": number}, expected_version=expected, action="test", detail={})
            except DocumentConflict:
                return False
            return True

    for expected in (0, 1):
        with ThreadPoolExecutor(6) as executor:
            outcomes = list(executor.map(put, range(6)))
        found = Documents(control).find("raced")
        assert found is not None
        assert (found.version, outcomes.count(True), outcomes.index(True)) == (expected + 1, 1, found.body["by"])
