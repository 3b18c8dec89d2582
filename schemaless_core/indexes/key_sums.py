"""`KeySums`: which living entries there should be and which there are, each as sums of hashes.

Where the sums are equal, the entries stand under the same shard values and row keys. It takes no room for each entry:
one of many millions must not have them all in memory.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TypeAlias

from schemaless_core.cell.answers import Scalar

#: Of an entry: its shard value and row key.
EntryKey: TypeAlias = tuple[Scalar, bytes]

#: About so many sums in all, whatever the number of shards. What is written meanwhile makes some of them differ, and
#: all entries of such a sum are looked at.
SUMS = 65_536


class KeySums:
    """Of one version. Each index shard has several, and an entry belongs to one of them by its hash."""

    def __init__(self, shards: int) -> None:
        self._per_shard = max(1, SUMS // shards)
        self._wanted: defaultdict[int, int] = defaultdict(int)

    def want(self, shard: int, key: EntryKey) -> None:
        """This entry should be there, and is."""
        self._wanted[shard * self._per_shard + self.number_of(key)] += hash(key)

    def of_shard(self, shard: int) -> ShardSums:
        """To be given all entries that stand in an index shard."""
        first = shard * self._per_shard
        return ShardSums(self, {n: self._wanted.get(first + n, 0) for n in range(self._per_shard)})

    def number_of(self, key: EntryKey) -> int:
        """To which of its shard's sums an entry belongs."""
        return hash(key) % self._per_shard


class ShardSums:
    """The sums of one index shard, less what was found."""

    def __init__(self, sums: KeySums, left: dict[int, int]) -> None:
        self._sums = sums
        self._left = left

    def found(self, key: EntryKey) -> None:
        self._left[self._sums.number_of(key)] -= hash(key)

    def unequal(self) -> set[int]:
        """The numbers of those sums whose entries are to be looked at."""
        return {number for number, left in self._left.items() if left}

    def number_of(self, key: EntryKey) -> int:
        return self._sums.number_of(key)
