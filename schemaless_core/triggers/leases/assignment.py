"""The plan: which worker gets which lease. Pure, so that every rule is a test.

Sticky: a lease stays where it is unless there is a reason. Leases without a living owner are given away at once.
Only when a group has none of those, a bounded number of hand-overs levels it, never for a difference of one.
Balance is counted per group; between workers equally loaded with a group, the one with fewer leases overall is next.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence

from schemaless_core.triggers.leases.coordinator import Change, Lease, Survey, WorkerRecord


def plan(
    survey: Survey, live: Collection[str], *, moves_max: int, overdue: Collection[tuple[str, int]] = ()
) -> list[Change]:
    """Return the changes of one round, in the order of groups and shards; at most `moves_max` begin a hand-over.

    `overdue` names the hand-overs (group, shard) whose owner lives but does not let go: their heirs get the lease.
    """
    members = _members(survey.workers, live)
    leases = defaultdict[str, list[Lease]](list)
    for lease in survey.leases:
        leases[lease.group].append(lease)
    total = Counter(end for lease in survey.leases if (end := lease.heir or lease.owner))
    changes: list[Change] = []
    for group in sorted(leases):
        if group not in members:
            continue  # no worker serves it: one that comes back finds its leases as they were
        share = _Share(sorted(leases[group]), members[group], total)
        share.force({shard for name, shard in overdue if name == group})
        if not share.give_homeless():
            moves_max -= share.level(moves_max)
        changes += share.changes()
    return changes


def _members(workers: Sequence[WorkerRecord], live: Collection[str]) -> dict[str, list[str]]:
    """The living workers of each group, in the order of their names."""
    members = defaultdict[str, list[str]](list)
    for record in sorted(workers):
        if record.worker in live:
            for group in record.groups:
                members[group].append(record.worker)
    return members


class _Share:
    """One group's leases, shared out among its members; a hand-over under way counts at its heir."""

    def __init__(self, leases: Sequence[Lease], members: Sequence[str], total: Counter[str]) -> None:
        self._leases = leases
        self._total = total
        self._load = dict.fromkeys(members, 0)
        self._owner: dict[int, str | None] = {}
        self._heir: dict[int, str | None] = {}
        for lease in leases:
            owner = lease.owner if lease.owner in self._load else None
            heir = lease.heir if lease.heir in self._load and lease.heir != owner else None
            self._owner[lease.shard], self._heir[lease.shard] = owner, heir
            if end := heir or owner:
                self._load[end] += 1

    def force(self, overdue: Collection[int]) -> None:
        """The owner had its time: what it was to hand over is its heir's."""
        for shard in overdue:
            if self._owner.get(shard) and self._heir[shard]:
                self._owner[shard], self._heir[shard] = self._heir[shard], None

    def give_homeless(self) -> int:
        """Give away what no member owns: to its heir if there is one, else to the least loaded. How many these were."""
        homeless = [shard for shard, owner in self._owner.items() if owner is None]
        queue = [self._rank(member) for member in self._load]
        heapq.heapify(queue)
        for shard in homeless:
            if self._heir[shard]:  # it is counted there already
                self._owner[shard], self._heir[shard] = self._heir[shard], None
                continue
            member = queue[0][-1]
            self._owner[shard] = member
            self._count(member, 1)
            heapq.heapreplace(queue, self._rank(member))
        return len(homeless)

    def level(self, moves_max: int) -> int:
        """Begin hand-overs from the most to the least loaded. How many."""
        settled: dict[str, list[int]] = {member: [] for member in self._load}
        for shard, owner in self._owner.items():
            if owner and not self._heir[shard]:
                settled[owner].append(shard)
        for moves in range(moves_max):
            least = min(self._load, key=self._rank)
            most = max((member for member in self._load if settled[member]), key=self._rank, default=least)
            if self._load[most] - self._load[least] <= 1:
                return moves
            self._heir[settled[most].pop()] = least
            self._count(most, -1)
            self._count(least, 1)
        return moves_max

    def changes(self) -> list[Change]:
        """What differs from the leases as they are."""
        return [
            Change(lease.group, lease.shard, lease.owner, lease.fence, self._heir[lease.shard], new_owner)
            for lease in self._leases
            if (new_owner := self._new_owner(lease)) or self._heir[lease.shard] != lease.heir
        ]

    def _new_owner(self, lease: Lease) -> str | None:
        owner = self._owner[lease.shard]
        return owner if owner != lease.owner else None

    def _rank(self, member: str) -> tuple[int, int, str]:
        return self._load[member], self._total[member], member

    def _count(self, member: str, leases: int) -> None:
        self._load[member] += leases
        self._total[member] += leases
