"""`LeaseBook`: the leases of one group as one document, and every change that a worker or a leader may make to it.

A document for a group is what its row in the control database is: a writer of an old version of it writes nothing.
With 65,536 shards, half of them under way to other workers, it has two thirds of the megabyte that ZooKeeper allows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Self

import msgspec

from schemaless_core.triggers.leases.coordinator import Change, Lease


class _Document(msgspec.Struct, frozen=True):
    """How a book is written: workers by their numbers, counted from one, and fences as what they have above `fence`."""

    version: int
    fence: int
    workers: list[str]
    owners: list[int]
    heirs: dict[int, int]
    fences: list[int]


_decoder = msgspec.json.Decoder(_Document)


class LeaseBook:
    """The leases of a group at one version; what changes them returns how many became different."""

    def __init__(self, group: str, version: int, leases: Sequence[Lease]) -> None:
        self.group = group
        #: Grows with each change. It begins at the clock, so that one made anew has none that a worker knows.
        self.version = version
        self._leases = list(leases)

    @classmethod
    def new(cls, group: str, shards: int, fence: int) -> Self:
        """Leases without owners."""
        return cls(group, now_milliseconds(), [Lease(group, shard, None, None, fence) for shard in range(shards)])

    @classmethod
    def decode(cls, group: str, data: bytes) -> Self:
        """Read what `encode` wrote."""
        found = _decoder.decode(data)
        workers = [None, *found.workers]
        leases = [
            Lease(group, shard, workers[owner], workers[found.heirs.get(shard, 0)], found.fence + above)
            for shard, (owner, above) in enumerate(zip(found.owners, found.fences, strict=True))
        ]
        return cls(group, found.version, leases)

    def encode(self) -> bytes:
        """The document, as the next version if it was changed."""
        names = {lease.owner for lease in self} | {lease.heir for lease in self}
        workers = sorted(name for name in names if name is not None)
        numbers: dict[str | None, int] = {None: 0, **{name: number for number, name in enumerate(workers, 1)}}
        fence = min((lease.fence for lease in self), default=0)
        owners = [numbers[lease.owner] for lease in self]
        heirs = {lease.shard: numbers[lease.heir] for lease in self if lease.heir is not None}
        fences = [lease.fence - fence for lease in self]
        return msgspec.json.encode(_Document(self.version, fence, workers, owners, heirs, fences))

    def __iter__(self) -> Iterator[Lease]:
        return iter(self._leases)

    def held_by(self, worker: str) -> list[Lease]:
        """Those that a worker owns or inherits."""
        return [lease for lease in self if worker in (lease.owner, lease.heir)]

    def release(self, worker: str, leases: Collection[Lease]) -> int:
        """Give leases that are still the worker's at the same fence to their heirs, where they have one."""
        wanted = {(lease.shard, lease.fence) for lease in leases}
        return self._replace(
            lambda now: (
                now._replace(owner=now.heir, heir=None, fence=now.fence + 1)
                if now.owner == worker and (now.shard, now.fence) in wanted
                else now
            )
        )

    def revoke(self, fences: Mapping[int, int]) -> int:
        """Take shards from their owners, under a fence above these, unless theirs is as high already."""
        return self._replace(
            lambda now: (
                now._replace(owner=None, heir=None, fence=fence + 1)
                if (fence := fences.get(now.shard)) is not None and now.fence < fence
                else now
            )
        )

    def rise(self, fence: int) -> int:
        """Begin anew, under this fence, with each lease whose own is lower."""
        return self._replace(lambda now: now._replace(owner=None, heir=None, fence=fence) if now.fence < fence else now)

    def change(self, changes: Sequence[Change]) -> int:
        """Make the changes whose owner and fence are still as they were."""
        wanted = {(change.shard, change.owner, change.fence): change for change in changes}
        return self._replace(
            lambda now: (
                now if (change := wanted.get((now.shard, now.owner, now.fence))) is None else _changed(now, change)
            )
        )

    def _replace(self, step: Callable[[Lease], Lease]) -> int:
        before, self._leases = self._leases, [step(lease) for lease in self._leases]
        different = sum(one is not other for one, other in zip(before, self._leases, strict=True))
        self.version += bool(different)
        return different


def now_milliseconds() -> int:
    """The clock, where a number is wanted that is above all that were given before."""
    return time.time_ns() // 1_000_000


def _changed(now: Lease, change: Change) -> Lease:
    if change.new_owner is not None:
        return now._replace(owner=change.new_owner, heir=None, fence=now.fence + 1)
    return now if change.heir == now.heir else now._replace(heir=change.heir)
