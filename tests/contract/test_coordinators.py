"""The coordinator's contract: in memory, over control databases of every engine, and over ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from schemaless_core import InvalidRequest
from schemaless_core.triggers.leases.coordinator import (
    Change,
    Coordinator,
    GroupState,
    LeaderRecord,
    LeadershipLost,
    Lease,
    WorkerRecord,
)
from schemaless_core.triggers.leases.leases import Leases
from tests.integration.leases.groups import GROUP, a_group, lead, opener, stored
from tests.stores import STORE_ENGINES, Stores
from tests.unit.coordinators import MemoryCoordinator
from tests.zookeepers import ZOOKEEPER, leases_in, zookeeper_of


@pytest.fixture(params=[*STORE_ENGINES, ZOOKEEPER])
def coordinator(request: pytest.FixtureRequest, stores: Stores) -> Iterator[Coordinator]:
    if request.param == "memory":
        yield MemoryCoordinator()
        return
    is_zookeeper = request.param == ZOOKEEPER
    with closing(opener("sqlite" if is_zookeeper else request.param, stores)()) as control:
        if is_zookeeper:
            with leases_in(zookeeper_of(request), control) as leases:
                yield leases
        else:
            yield Leases(control)


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


def test_one_that_registers_a_known_group_later_takes_no_lease_from_its_workers(coordinator: Coordinator) -> None:
    """Processes that begin at once find no group, and register it one after another, each by its own clock."""
    a_group(coordinator, "a")

    coordinator.register_group(GROUP, "now", 1, allowed=100, fence=50)

    assert stored(coordinator) == [Lease(GROUP, 0, "a", None, 1)]


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


def test_a_released_lease_is_its_heirs_or_free(coordinator: Coordinator) -> None:
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


def test_revoked_shards_are_free_under_a_fence_above_the_one_that_was_seen(coordinator: Coordinator) -> None:
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
    assert coordinator.assign("leader", term, []) == 0  # another worker's leadership is not touched


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


def test_a_halted_group_stays_so_until_an_operator_resumes_it(coordinator: Coordinator) -> None:
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
