"""Which shards are proposed to be moved, and which half of a cluster's shards a split moves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemaless_core.moves.balance import BalanceLook, ShardLoad, measure
from schemaless_core.moves.splits import half_of


def look_at(cells: dict[str, list[int]], rates: dict[int, float] | None = None) -> BalanceLook:
    """Shards by cluster, numbered in their order."""
    pairs = [(name, each) for name, shards in cells.items() for each in shards]
    loads = [ShardLoad(n, name, each, (rates or {}).get(n, 0.0)) for n, (name, each) in enumerate(pairs)]
    return BalanceLook(tuple(cells), tuple(loads))


def test_a_cluster_that_has_nothing_gets_its_part() -> None:
    plan = look_at({"a": [10, 10, 10, 10], "b": []}).plan(0.1, 64)

    assert [(each.load.shard, each.to) for each in plan.proposals] == [(0, "b"), (1, "b")]
    assert [each.share for each in plan.after] == [pytest.approx(0.5), pytest.approx(0.5)]


def test_clusters_that_have_about_the_same_are_left() -> None:
    assert look_at({"a": [10, 10], "b": [10, 9]}).plan(0.1, 64).proposals == ()


def test_a_shard_that_is_put_into_weighs_more_than_one_that_rests() -> None:
    plan = look_at({"a": [10, 10], "b": [10, 10]}, {0: 100.0, 1: 100.0}).plan(0.1, 1)

    assert [each.load.shard for each in plan.proposals] == [0]


def test_one_shard_that_is_larger_than_all_others_stays() -> None:
    """Elsewhere it would weigh as much."""
    assert look_at({"a": [1000], "b": [1]}).plan(0.1, 64).proposals == ()


def test_no_more_moves_are_proposed_than_were_asked_for() -> None:
    assert len(look_at({"a": [1] * 50, "b": []}).plan(0.01, 3).proposals) == 3


def test_a_datastore_without_a_cell_is_left() -> None:
    assert look_at({"a": [0, 0], "b": []}).plan(0.1, 64).proposals == ()


@given(st.lists(st.lists(st.integers(0, 1000), max_size=8), min_size=1, max_size=4))
def test_what_is_proposed_never_makes_the_fullest_cluster_fuller(sizes: list[list[int]]) -> None:
    plan = look_at({str(n): each for n, each in enumerate(sizes)}).plan(0.05, 64)

    assert max(each.share for each in plan.after) <= max(each.share for each in plan.before) + 1e-9
    assert sum(each.shards for each in plan.after) == sum(map(len, sizes))
    assert len({each.load.shard for each in plan.proposals}) == len(plan.proposals)


def test_a_rate_is_what_came_between_two_looks_at_the_same_cluster() -> None:
    looks = iter([{"a": {0: 10, 1: 5}, "b": {}}, {"a": {0: 30}, "b": {1: 7}}])

    found = measure(lambda: next(looks), 0.01, lambda seconds: None)

    assert [(load.shard, load.cluster, load.cells) for load in found.loads] == [(0, "a", 30), (1, "b", 7)]
    assert found.loads[0].cells_per_second > 0
    assert found.loads[1].cells_per_second == 0


@given(st.dictionaries(st.integers(0, 4095), st.integers(0, 10_000)))
def test_a_half_is_half_of_the_shards_and_neither_half_has_much_more_cells(sizes: dict[int, int]) -> None:
    goes = half_of(sizes)

    assert len(goes) == len(sizes) // 2
    assert set(goes) <= set(sizes)
    difference = sum(sizes[shard] for shard in sizes.keys() - set(goes)) - sum(sizes[shard] for shard in goes)
    assert abs(difference) <= max(sizes.values(), default=0)
