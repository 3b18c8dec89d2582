"""The leader: taken, renewed, lost and given up by the own clock; who is silent loses its leases, who beats keeps them.

Cases of KCL, whose clock and counter these are, and of kazoo's election and lease among ours.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from schemaless_core.triggers.leases.coordinator import HeldLeases, LeaseConfig
from schemaless_core.triggers.leases.leader import FAILURES_MAX, Leader, Stillness
from tests.unit.clock import FakeClock
from tests.unit.coordinators import MemoryCoordinator

GROUP = "bill_rider"
CONFIG = LeaseConfig(lease_seconds=6.0, handover_seconds=12.0, moves_max=3)


class Cluster:
    """Workers on one clock, each with its part in the leadership; a test says who beats and who steps."""

    def __init__(self, workers: str = "ab", shards: int = 4) -> None:
        self.clock = FakeClock()
        self.coordinator = MemoryCoordinator()
        self.coordinator.register_group(GROUP, "now", shards, allowed=100)
        self.leaders = {worker: self.new_leader(worker) for worker in workers}

    def new_leader(self, worker: str) -> Leader:
        return Leader(self.coordinator, worker, CONFIG, self.clock)

    def beat(self, workers: Sequence[str]) -> dict[str, HeldLeases]:
        return {worker: self.coordinator.beat(worker, [GROUP], {}) for worker in workers}

    def run(self, beats: int, *, beating: str, stepping: str) -> None:
        """So many beats go by: some workers beat, some step."""
        for _beat in range(beats):
            self.clock.advance(CONFIG.beat_seconds)
            self.beat(beating)
            for worker in stepping:
                self.leaders[worker].step()

    @property
    def leading(self) -> list[str]:
        return [worker for worker, leader in self.leaders.items() if leader.is_leading]

    def owners(self) -> list[str | None]:
        return list(self.coordinator.owners(GROUP).values())

    def release_all(self) -> None:
        for worker in self.leaders:
            held = self.coordinator.beat(worker, [GROUP], {}).leases
            self.coordinator.release(worker, [lease for lease in held if lease.owner == worker and lease.heir])


def test_a_free_leadership_is_taken_at_once() -> None:  # KCL: testSimpleLeaseTake
    cluster = Cluster()
    cluster.beat("ab")

    cluster.leaders["a"].step()

    assert cluster.leading == ["a"]
    assert cluster.owners() == ["a", "b", "a", "b"]


def test_a_leader_that_renews_keeps_the_leadership() -> None:  # KCL: testSimpleRenew; kazoo: renew_no_overtake
    cluster = Cluster()

    cluster.run(20, beating="ab", stepping="ab")

    assert cluster.leading == ["a"]
    assert cluster.coordinator.leader is not None
    assert cluster.coordinator.leader.term == 1


def test_a_silent_leader_is_followed_after_the_lease_and_not_before() -> None:  # kazoo: overtake
    cluster = Cluster()
    cluster.run(1, beating="ab", stepping="ab")

    cluster.run(2, beating="ab", stepping="b")
    assert cluster.leading == ["a"]
    cluster.run(1, beating="ab", stepping="b")

    assert cluster.coordinator.leader is not None
    assert (cluster.coordinator.leader.owner, cluster.coordinator.leader.term) == ("b", 2)


def test_a_leader_that_was_followed_notices_and_assigns_nothing() -> None:  # KCL: testUpdateLostLease
    cluster = Cluster()
    cluster.run(1, beating="ab", stepping="ab")
    cluster.run(3, beating="ab", stepping="b")

    cluster.run(1, beating="ab", stepping="ab")

    assert cluster.leading == ["b"]


def test_leadership_lost_between_survey_and_assignment_changes_no_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    survey = cluster.coordinator.survey

    def another_is_faster() -> object:
        cluster.coordinator.take_lead("b", cluster.coordinator.leader)
        return survey()

    cluster.beat("ab")
    monkeypatch.setattr(cluster.coordinator, "survey", another_is_faster)
    cluster.leaders["a"].step()

    assert cluster.leading == []
    assert cluster.owners() == [None] * 4


def test_the_first_sight_of_a_leader_counts_as_fresh() -> None:  # KCL: testNotTakeNewOwnedLease
    cluster = Cluster()
    cluster.leaders["a"].step()
    cluster.clock.advance(1_000)
    late = cluster.leaders["c"] = cluster.new_leader("c")

    late.step()
    assert not late.is_leading
    cluster.run(3, beating="", stepping="c")

    assert late.is_leading


def test_a_leadership_that_was_left_is_taken_at_once() -> None:  # kazoo: test_election
    cluster = Cluster()
    cluster.run(1, beating="ab", stepping="ab")

    cluster.coordinator.leave("a")
    cluster.leaders["b"].step()

    assert cluster.leading == ["a", "b"]  # a has not looked since; what it decides does not count
    assert cluster.owners() == ["b"] * 4
    cluster.leaders["a"].step()
    assert cluster.leading == ["b"]


def test_of_two_that_stand_at_once_one_is_elected(monkeypatch: pytest.MonkeyPatch) -> None:  # kazoo: race_condition
    cluster = Cluster()
    take_lead = cluster.coordinator.take_lead

    def b_is_faster(worker: str, seen: None) -> int | None:
        monkeypatch.undo()
        cluster.leaders["b"].step()
        return take_lead(worker, seen)

    monkeypatch.setattr(cluster.coordinator, "take_lead", b_is_faster)
    cluster.leaders["a"].step()

    assert cluster.leading == ["b"]


def test_a_leadership_taken_without_hearing_of_it_comes_back_after_the_lease() -> None:  # kazoo: fail_first_call
    cluster = Cluster("a")
    cluster.coordinator.is_lossy = True
    cluster.leaders["a"].step()
    assert cluster.leading == []
    cluster.coordinator.is_lossy = False

    cluster.run(3, beating="a", stepping="a")
    assert cluster.leading == []
    cluster.run(1, beating="a", stepping="a")

    assert cluster.leading == ["a"]


def test_a_leader_whose_rounds_fail_gives_up() -> None:  # KCL: continuousFailure_assertLeadershipRelease
    cluster = Cluster()
    cluster.run(1, beating="ab", stepping="ab")
    cluster.coordinator.is_down = True

    cluster.run(FAILURES_MAX - 1, beating="", stepping="a")
    assert cluster.leading == ["a"]
    cluster.run(1, beating="", stepping="a")
    assert cluster.leading == []
    cluster.coordinator.is_down = False
    cluster.run(1, beating="ab", stepping="a")

    assert cluster.leading == []  # its own record is a rival's now


def test_a_round_that_works_makes_up_for_those_that_failed() -> None:
    cluster = Cluster()
    cluster.run(1, beating="ab", stepping="ab")

    for _time in range(3):
        cluster.coordinator.is_down = True
        cluster.run(FAILURES_MAX - 1, beating="", stepping="a")
        cluster.coordinator.is_down = False
        cluster.run(1, beating="ab", stepping="a")

    assert cluster.leading == ["a"]


def test_a_silent_worker_loses_its_leases_after_the_lease_and_is_forgotten() -> None:  # KCL: testLeaseTimeout
    cluster = Cluster()
    cluster.run(1, beating="ab", stepping="a")

    cluster.run(2, beating="a", stepping="a")
    assert cluster.owners() == ["a", "b", "a", "b"]
    cluster.run(1, beating="a", stepping="a")

    assert cluster.owners() == ["a"] * 4
    assert [lease.fence for lease in cluster.coordinator.survey().leases] == [1, 2, 1, 2]
    assert [record.worker for record in cluster.coordinator.survey().workers] == ["a"]


def test_a_worker_that_beats_now_and_then_keeps_its_leases() -> None:  # KCL: testNotTakeUpdatedLease
    cluster = Cluster()
    cluster.run(1, beating="ab", stepping="a")

    for _time in range(5):
        cluster.run(2, beating="a", stepping="a")
        cluster.run(1, beating="ab", stepping="a")

    assert cluster.owners() == ["a", "b", "a", "b"]


def test_a_worker_that_beats_at_the_last_moment_keeps_its_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the leader's survey and its assignment."""
    cluster = Cluster()
    cluster.run(1, beating="ab", stepping="a")
    assign = cluster.coordinator.assign

    def b_wakes_up(*arguments: object) -> int:
        cluster.beat("b")
        return assign(*arguments)  # type: ignore[arg-type]  # handed on as they are

    monkeypatch.setattr(cluster.coordinator, "assign", b_wakes_up)
    cluster.run(4, beating="a", stepping="a")

    assert cluster.owners() == ["a", "b", "a", "b"]


def test_a_worker_that_comes_back_is_served_again() -> None:  # KCL: testUpdateRegainedLease
    cluster = Cluster()
    cluster.run(1, beating="ab", stepping="a")
    (before,) = [held.leases for worker, held in cluster.beat("ab").items() if worker == "b"]
    cluster.run(4, beating="a", stepping="a")

    assert cluster.owners() == ["a"] * 4
    cluster.run(1, beating="ab", stepping="a")
    cluster.release_all()
    cluster.coordinator.release("b", before)  # what it held before it fell silent is not what it holds now

    assert sorted(map(str, cluster.owners())) == ["a", "a", "b", "b"]


def test_a_new_leader_gives_everybody_the_time_of_a_lease() -> None:
    cluster = Cluster("abc", shards=6)
    cluster.run(1, beating="abc", stepping="ab")

    cluster.run(3, beating="b", stepping="b")
    assert cluster.leaders["b"].is_leading
    assert set(cluster.owners()) == {"a", "b", "c"}
    cluster.run(3, beating="b", stepping="b")

    assert cluster.owners() == ["b"] * 6


def test_after_an_outage_of_the_control_database_no_worker_is_called_dead() -> None:
    cluster = Cluster()
    cluster.run(1, beating="ab", stepping="ab")
    cluster.coordinator.is_down = True
    cluster.clock.advance(600)
    cluster.leaders["a"].step()
    cluster.coordinator.is_down = False

    cluster.leaders["a"].step()  # before anybody had the chance to beat
    cluster.leaders["b"].step()
    cluster.run(5, beating="ab", stepping="ab")

    assert cluster.leading == ["a"]
    assert [lease.fence for lease in cluster.coordinator.survey().leases] == [1] * 4


def test_a_leader_that_was_stopped_itself_calls_no_worker_dead() -> None:
    cluster = Cluster("a")
    cluster.beat("bc")
    cluster.run(1, beating="abc", stepping="a")
    before = cluster.owners()

    cluster.clock.advance(600)  # everything stood still, like a machine that was paused
    cluster.leaders["a"].step()

    assert cluster.owners() == before


def test_a_new_worker_gets_its_share_in_bounded_moves() -> None:
    cluster = Cluster("ab", shards=12)
    cluster.run(1, beating="a", stepping="a")

    cluster.run(1, beating="ab", stepping="a")

    heirs = [lease.heir for lease in cluster.coordinator.survey().leases]
    assert heirs.count("b") == CONFIG.moves_max
    assert cluster.owners() == ["a"] * 12
    for _round in range(4):
        cluster.release_all()
        cluster.run(1, beating="ab", stepping="a")
    assert sorted(map(str, cluster.owners())) == ["a"] * 6 + ["b"] * 6
    assert {lease.heir for lease in cluster.coordinator.survey().leases} == {None}


def test_an_owner_that_does_not_let_go_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    # KCL: AssignLeaseIsCalledBecauseTimeoutReached
    cluster = Cluster("ab", shards=2)
    cluster.run(1, beating="a", stepping="a")

    cluster.run(7, beating="ab", stepping="a")
    assert [cluster.coordinator.lease(GROUP, shard).heir for shard in range(2)] == [None, "b"]
    cluster.run(1, beating="ab", stepping="a")

    assert cluster.owners() == ["a", "b"]
    (forced,) = [record for record in caplog.records if vars(record).get("event") == "leader.handover_forced"]
    assert vars(forced)["shards"] == [1]


def test_a_hand_over_in_time_is_not_forced() -> None:  # KCL: …NotCalledIfCheckpointOwnerIsNotTheSameWorker
    cluster = Cluster("ab", shards=2)
    cluster.run(1, beating="a", stepping="a")
    cluster.run(5, beating="ab", stepping="a")

    cluster.release_all()
    cluster.run(5, beating="ab", stepping="a")

    assert cluster.owners() == ["a", "b"]
    assert [lease.fence for lease in cluster.coordinator.survey().leases] == [1, 2]


def test_a_quiet_leader_plans_nothing_and_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    cluster.run(2, beating="ab", stepping="ab")

    def never(*_arguments: object) -> int:
        raise AssertionError("nothing changed")

    monkeypatch.setattr(cluster.coordinator, "assign", never)
    monkeypatch.setattr("schemaless_core.triggers.leases.leader.plan", never)

    cluster.run(5, beating="ab", stepping="ab")

    assert cluster.leading == ["a"]


def test_a_group_that_is_new_or_served_anew_is_assigned_at_the_next_step() -> None:
    cluster = Cluster("a")
    cluster.run(2, beating="a", stepping="a")

    cluster.coordinator.register_group("another", "now", 2, allowed=100)
    cluster.run(1, beating="a", stepping="a")
    assert set(cluster.coordinator.owners("another").values()) == {None}  # no worker serves it
    cluster.coordinator.beat("b", ["another"], {})
    cluster.leaders["a"].step()

    assert set(cluster.coordinator.owners("another").values()) == {"b"}


def test_an_outage_is_logged_once_and_a_lost_leadership_too(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    cluster = Cluster("a")
    cluster.run(1, beating="a", stepping="a")
    cluster.coordinator.is_down = True

    cluster.run(FAILURES_MAX, beating="", stepping="a")

    assert [vars(record)["event"] for record in caplog.records] == [
        "leader.taken",
        "leader.assigned",
        "leader.round_failed",
        "leader.lost",
    ]


def test_stillness_counts_only_time_between_looks_that_are_close() -> None:
    clock = FakeClock()
    stillness = Stillness[str](clock, gap_seconds=3.0)

    assert stillness.look({"a": 1}) == {"a": 0.0}
    clock.advance(2)
    assert stillness.look({"a": 1, "b": 1}) == {"a": 2.0, "b": 0.0}
    clock.advance(100)
    assert stillness.look({"a": 1, "b": 2}) == {"a": 5.0, "b": 0.0}


def test_stillness_of_what_is_not_seen_is_forgotten() -> None:  # KCL: testIgnoreNoRenewalTimestamp
    clock = FakeClock()
    stillness = Stillness[str](clock, gap_seconds=3.0)
    stillness.look({"a": 1})

    clock.advance(1)
    stillness.look({})
    clock.advance(1)

    assert stillness.look({"a": 1}) == {"a": 0.0}
