"""Which cluster owns which shard, versioned. A value: it changes by making the next version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

#: In the place of a cluster: another datastore has the shards. No cluster can be named like this.
ELSEWHERE = "@elsewhere"


class Placement(NamedTuple):
    """A run of shards on one cluster, all at one epoch."""

    first: int
    last: int
    cluster: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Topology:
    """The owner of every shard."""

    version: int
    shards: int
    placements: tuple[Placement, ...]

    def __iter__(self) -> Iterator[tuple[int, Placement]]:
        for placement in self.placements:
            for shard in range(placement.first, placement.last + 1):
                yield shard, placement

    @property
    def clusters(self) -> list[str]:
        return list(dict.fromkeys(placement.cluster for placement in self.placements))

    @property
    def is_elsewhere(self) -> bool:
        """Whether another datastore leads, and this one has no shard."""
        return self.clusters == [ELSEWHERE]

    def shards_of(self, cluster: str) -> list[int]:
        return [shard for shard, placement in self if placement.cluster == cluster]


def with_place(topology: Topology, shard: int, cluster: str, epoch: int) -> Topology:
    """The next version, in which a shard is at a cluster at an epoch."""
    places = {each: (at.cluster, at.epoch) for each, at in topology} | {shard: (cluster, epoch)}
    return at_places(topology.version + 1, places)


def at_places(version: int, places: Mapping[int, tuple[str, int]]) -> Topology:
    """A topology of shards by their clusters and epochs."""
    runs: list[Placement] = []
    for shard, place in sorted(places.items()):
        if runs and runs[-1][1:] == (shard - 1, *place):
            runs[-1] = runs[-1]._replace(last=shard)
        else:
            runs.append(Placement(shard, shard, *place))
    return Topology(version, len(places), tuple(runs))


def spread(shards: int, clusters: Sequence[str]) -> Topology:
    """The first topology: equal runs of shards over the clusters, in their order."""
    bounds = [-(-shards * n // len(clusters)) for n in range(len(clusters) + 1)]
    placements = (
        Placement(first, end - 1, cluster, 1)
        for cluster, first, end in zip(clusters, bounds, bounds[1:], strict=False)
        if end > first
    )
    return Topology(1, shards, tuple(placements))


def elsewhere(version: int, shards: int, epoch: int) -> Topology:
    """A topology without a shard. `epoch`: the latest at which one was led, as far as is known."""
    return Topology(version, shards, (Placement(0, shards - 1, ELSEWHERE, epoch),))


class _Document(msgspec.Struct):
    shards: int
    placements: list[Placement]


def to_document(topology: Topology) -> str:
    """The text kept in the control database."""
    return msgspec.json.encode(_Document(topology.shards, list(topology.placements))).decode()


def from_document(version: int, text: str) -> Topology:
    document = msgspec.json.decode(text, type=_Document)
    return Topology(version, document.shards, tuple(document.placements))
