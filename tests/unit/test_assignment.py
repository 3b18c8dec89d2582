"""The plan: homeless leases first, then few moves, never for a difference of one. Cases of KCL and kazoo among ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemaless_core.triggers.leases.assignment import plan
from schemaless_core.triggers.leases.coordinator import Change, Lease, Survey, WorkerRecord

GROUP = "bill_rider"


def survey(owners: Sequence[str | None] | Sequence[Lease], workers: Mapping[str, Sequence[str]] | str) -> Survey:
    """A lease per owner, shard by shard; workers as letters serve the one group."""
    leases = [
        owner if isinstance(owner, Lease) else Lease(GROUP, shard, owner, None, 5) for shard, owner in enumerate(owners)
    ]
    serving = dict.fromkeys(workers, (GROUP,)) if isinstance(workers, str) else workers
    records = [WorkerRecord(name, "here", 1, tuple(groups), 1) for name, groups in serving.items()]
    return Survey(tuple(records), tuple(leases), {})


def planned(seen: Survey, live: Collection[str] | None = None, moves_max: int = 100, **options: Any) -> list[Change]:
    return plan(
        seen, {record.worker for record in seen.workers} if live is None else live, moves_max=moves_max, **options
    )


def after(seen: Survey, changes: Sequence[Change], *, are_released: bool = False) -> Survey:
    """The survey as it is when the changes were made, and when all who were asked to let go did."""
    by_key = {(change.group, change.shard): change for change in changes}
    leases = []
    for lease in seen.leases:
        change = by_key.get((lease.group, lease.shard))
        if change is not None and change.new_owner:
            lease = lease._replace(owner=change.new_owner, heir=None, fence=lease.fence + 1)
        elif change is not None:
            lease = lease._replace(heir=change.heir)
        if are_released and lease.heir:
            lease = lease._replace(owner=lease.heir, heir=None, fence=lease.fence + 1)
        leases.append(lease)
    return seen._replace(leases=tuple(leases))


def once(seen: Survey, **options: Any) -> Survey:
    """After one round, before anybody let go."""
    return after(seen, planned(seen, **options))


def settled(seen: Survey, live: Collection[str] | None = None, *, moves_max: int = 100) -> Survey:
    """Round after round until nothing changes any more."""
    for _round in range(1_000):
        changes = planned(seen, live, moves_max)
        before, seen = seen, after(seen, changes, are_released=True)
        if seen == before:
            return seen
    raise AssertionError("the plan never comes to rest")


def loads(seen: Survey, group: str = GROUP) -> Counter[str | None]:
    return Counter(lease.owner for lease in seen.leases if lease.group == group)


def shares(seen: Survey) -> list[list[int]]:
    """The shards of each worker, in the order of their names."""
    return [[lease.shard for lease in seen.leases if lease.owner == record.worker] for record in sorted(seen.workers)]


def test_one_worker_gets_everything() -> None:  # kazoo: party_of_one
    assert shares(once(survey([None] * 3, "a"))) == [[0, 1, 2]]


def test_two_workers_share() -> None:  # kazoo: party_of_two
    assert shares(once(survey([None] * 3, "ab"))) == [[0, 2], [1]]


def test_who_comes_later_gets_a_share_of_its_own() -> None:  # kazoo: party_expansion
    alone = settled(survey([None] * 3, "ab"))

    three = settled(alone._replace(workers=survey([], "abc").workers))

    assert sorted(len(share) for share in shares(three)) == [1, 1, 1]
    assert len(planned(alone._replace(workers=survey([], "abc").workers))) == 1  # one moved, the others stayed


def test_more_workers_than_shards_leave_some_without() -> None:  # kazoo: more_members_than_set_items
    assert shares(settled(survey([None], "ab"))) == [[0], []]
    assert loads(settled(survey([None] * 3, "abcde"))).total() == 3
    assert max(loads(settled(survey([None] * 3, "abcde"))).values()) == 1


def test_what_a_vanished_worker_held_goes_to_the_others_at_once() -> None:  # kazoo: party_session_failure
    seen = survey(["a", "b", "a", "b"], "ab")

    changes = planned(seen, live={"b"})

    assert [(change.shard, change.owner, change.fence, change.new_owner) for change in changes] == [
        (0, "a", 5, "b"),
        (2, "a", 5, "b"),
    ]


def test_homeless_leases_are_shared_out_evenly_at_once() -> None:  # KCL: testNonGreedyTake
    assert loads(once(survey([None] * 4, "ab"), moves_max=0)) == {"a": 2, "b": 2}


def test_leases_in_good_hands_stay_there() -> None:  # KCL: testNotTakeUpdatedLease, testTakeOwnLease
    assert planned(survey(["a", "b", "b", "a"], "ab")) == []


def test_nothing_moves_for_a_difference_of_one() -> None:  # KCL: testNoStealWhenOffByOne
    assert planned(survey(["a", "a", "b"], "ab")) == []
    assert planned(survey(["a"], "ab")) == []


def test_a_lease_moves_from_the_most_to_the_least_loaded() -> None:  # KCL: testSteal
    seen = survey(["a", "a", "a", "b", "b", "c"], "abc")

    assert planned(seen) == [Change(GROUP, 2, "a", 5, "c", None)]


def test_nothing_moves_while_there_are_homeless_leases() -> None:  # KCL: testNoStealWhenExpiredLeases
    seen = survey(["a", "a", "a", "a", "gone", "b"], "abc")

    assert planned(seen) == [Change(GROUP, 4, "gone", 5, None, "c")]


def test_unowned_and_lost_leases_come_before_moves() -> None:  # KCL: unAssignedAndExpired…FirstAssigned
    seen = survey(["a", "a", "a", None, "gone"], "ab")

    assert {(change.shard, change.new_owner) for change in planned(seen)} == {(3, "b"), (4, "b")}


def test_a_round_begins_no_more_moves_than_it_may() -> None:
    seen = survey(["a"] * 100, "ab")

    assert len(planned(seen, moves_max=7)) == 7
    assert loads(settled(seen, moves_max=7)) == {"a": 50, "b": 50}
    assert planned(seen, moves_max=0) == []


def test_the_bound_on_moves_counts_all_groups_together() -> None:
    leases = [Lease(group, shard, "a", None, 1) for group in ("g", "h") for shard in range(10)]
    seen = survey(leases, {"a": ["g", "h"], "b": ["g", "h"]})

    assert Counter(change.group for change in planned(seen, moves_max=7)) == {"g": 5, "h": 2}


def test_a_hand_over_under_way_counts_at_its_heir() -> None:
    leases = [Lease(GROUP, shard, "a", "b" if shard < 2 else None, 1) for shard in range(4)]

    assert planned(survey(leases, "ab")) == []


def test_a_lease_in_hand_over_is_not_sent_on() -> None:
    """Everything of b is on its way to it: c has to take from a."""
    leases = [Lease(GROUP, shard, "a", "b" if shard < 4 else None, 1) for shard in range(8)]

    assert {(change.shard, change.heir) for change in planned(survey(leases, "abc"))} == {(7, "c"), (6, "c")}


def test_the_heir_of_a_lost_lease_gets_it() -> None:
    assert planned(survey([Lease(GROUP, 0, "gone", "b", 3)], "ab")) == [Change(GROUP, 0, "gone", 3, None, "b")]


def test_a_dead_heir_is_replaced_or_cleared() -> None:
    replaced = [Lease(GROUP, shard, "a", "gone" if shard == 0 else None, 3) for shard in range(2)]
    cleared = [Lease(GROUP, 0, "a", "gone", 3), Lease(GROUP, 1, "b", None, 3)]

    assert planned(survey(replaced, "ab")) == [
        Change(GROUP, 0, "a", 3, None, None),
        Change(GROUP, 1, "a", 3, "b", None),
    ]
    assert planned(survey(cleared, "ab")) == [Change(GROUP, 0, "a", 3, None, None)]


def test_an_overdue_hand_over_is_forced() -> None:  # KCL: AssignLeaseIsCalledBecauseTimeoutReached
    leases = [Lease(GROUP, shard, "a", "b", 3) for shard in range(2)] + [Lease(GROUP, 2, "a", None, 3)]

    assert planned(survey(leases, "ab"), overdue={(GROUP, 1)}) == [Change(GROUP, 1, "a", 3, None, "b")]


def test_a_hand_over_whose_heir_died_is_not_forced() -> None:
    leases = [Lease(GROUP, 0, "a", "gone", 3)]

    assert planned(survey(leases, "ab"), overdue={(GROUP, 0)}) == [Change(GROUP, 0, "a", 3, None, None)]


def test_something_overdue_that_was_released_meanwhile_is_ignored() -> None:
    assert planned(survey(["a", "b"], "ab"), overdue={(GROUP, 0), (GROUP, 9), ("another", 0)}) == []


def test_who_does_not_serve_a_group_gets_none_of_its_leases() -> None:
    leases = [Lease(group, shard, None, None, 0) for group in ("g", "h") for shard in range(4)]
    seen = survey(leases, {"a": ["g"], "b": ["g", "h"], "c": []})

    done = settled(seen)

    assert loads(done, "h") == {"b": 4}
    assert loads(done, "g") == {"a": 2, "b": 2}


def test_a_group_without_a_worker_is_left_alone() -> None:
    leases = [Lease("index:by_driver:v1", shard, owner, None, 2) for shard, owner in enumerate([None, "gone", "a"])]

    assert planned(survey(leases, {"a": [GROUP]})) == []
    assert planned(survey([None], ""), live=()) == []


def test_an_owner_that_no_longer_serves_the_group_loses_its_leases() -> None:
    assert planned(survey([Lease("g", 0, "a", None, 2)], {"a": [], "b": ["g"]})) == [Change("g", 0, "a", 2, None, "b")]


def test_small_groups_do_not_all_end_at_the_same_worker() -> None:
    leases = [Lease(f"g{n}", 0, None, None, 0) for n in range(6)]
    seen = survey(leases, {name: [f"g{n}" for n in range(6)] for name in "abc"})

    done = once(seen)

    assert Counter(lease.owner for lease in done.leases) == {"a": 2, "b": 2, "c": 2}


@pytest.mark.parametrize("workers", [2, 7, 40])
def test_thousands_of_leases_are_levelled_to_within_one(workers: int) -> None:
    names = [f"w{n:02}" for n in range(workers)]
    seen = survey([None] * 4096, dict.fromkeys(names, (GROUP,)))

    counts = loads(once(seen)).values()

    assert max(counts) - min(counts) <= 1


NAMES = st.sampled_from([None, "a", "b", "c", "d", "gone"])


@given(
    owners=st.lists(st.tuples(NAMES, NAMES), max_size=30),
    live=st.sets(st.sampled_from("abcd")),
    moves_max=st.integers(1, 5),
)
def test_whatever_is_found_the_plan_comes_to_a_rest_that_is_level(
    owners: list[tuple[str | None, str | None]], live: set[str], moves_max: int
) -> None:
    leases = [Lease(GROUP, shard, owner, heir, 1) for shard, (owner, heir) in enumerate(owners)]
    seen = survey(leases, "abcd")

    changes = planned(seen, live, moves_max)
    rest = settled(seen, live, moves_max=moves_max)

    assert len({change.shard for change in changes}) == len(changes)
    if not live:
        assert changes == []
        return
    begun = [change for change in changes if change.heir is not None]
    homeless = {lease.shard for lease in leases if lease.owner not in live}
    assert len(begun) <= moves_max
    assert not (homeless and begun)
    assert homeless <= {change.shard for change in changes if change.new_owner in live}
    assert {change.shard for change in changes if change.is_given} == homeless
    counts = [loads(rest)[worker] for worker in live]
    assert sum(counts) == len(leases)
    assert max(counts) - min(counts) <= 1
