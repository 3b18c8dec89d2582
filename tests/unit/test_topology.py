"""Which cluster owns which shard: the first spread, and what is kept in the control database."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemaless_core.servers.topology import Placement, Topology, from_document, spread, to_document


@given(st.integers(1, 5_000), st.integers(1, 40))
def test_a_spread_gives_every_shard_one_owner_and_clusters_equal_shares(shards: int, clusters: int) -> None:
    names = [f"c{n}" for n in range(clusters)]

    topology = spread(shards, names)

    assert [shard for shard, _placement in topology] == list(range(shards))
    shares = [len(topology.shards_of(name)) for name in names]
    assert max(shares) - min(shares) <= 1
    assert {placement.epoch for placement in topology.placements} == {1}


def test_clusters_take_their_runs_in_order() -> None:
    topology = spread(8, ["b", "a"])

    assert topology.placements == (Placement(0, 3, "b", 1), Placement(4, 7, "a", 1))
    assert topology.clusters == ["b", "a"]
    assert topology.shards_of("a") == [4, 5, 6, 7]
    assert topology.version == 1


def test_clusters_that_get_no_shard_are_not_in_the_topology() -> None:
    topology = spread(2, ["a", "b", "c", "d", "e"])

    assert len(topology.placements) == 2
    assert sum(len(topology.shards_of(name)) for name in "abcde") == 2


def test_a_cluster_with_several_runs_is_named_once() -> None:
    topology = Topology(2, 6, (Placement(0, 1, "a", 1), Placement(2, 3, "b", 2), Placement(4, 5, "a", 1)))

    assert topology.clusters == ["a", "b"]
    assert topology.shards_of("a") == [0, 1, 4, 5]


@given(st.integers(1, 5_000), st.integers(1, 40), st.integers(1, 1_000))
def test_a_topology_comes_back_from_its_document_as_it_was(shards: int, clusters: int, version: int) -> None:
    first = spread(shards, [f"c{n}" for n in range(clusters)])
    topology = Topology(version, first.shards, first.placements)

    assert from_document(version, to_document(topology)) == topology


def test_the_document_says_its_words_in_full() -> None:
    assert to_document(spread(2, ["a"])) == '{"shards":2,"placements":[[0,1,"a",1]]}'


def test_a_topology_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        spread(2, ["a"]).version = 2  # type: ignore[misc]  # that it is refused is the point
