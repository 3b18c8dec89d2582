"""What becomes of the hashes of a pass over the tables: sums of buckets, or a list."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from struct import Struct
from typing import Protocol

from schemaless_core.cell.answers import Bucket
from schemaless_core.cell.sharding import BUCKETS_PER_SHARD
from tripstore.engines.validation.diff.buckets import BucketPlace, CellDigest, Sums, TableRows

#: Of many md5s.
_first_numbers = Struct(">Q8x").iter_unpack


class Sink(Protocol):
    """Takes cells of one column, each with its bucket (shard · 16 + number) and md5; or why one has none."""

    def add(
        self, name: bytes, places: Sequence[int], keys: Sequence[bytes], ref_keys: Iterable[str], md5s: Iterable[bytes]
    ) -> None: ...

    def refuse(self, name: bytes, place: int, key: bytes, ref_key: str, why: str) -> None: ...


class Summing:
    """Count and sum of every bucket."""

    def __init__(self, shards: int) -> None:
        self._counts = [0] * (shards * BUCKETS_PER_SHARD)
        self._sums = [0] * (shards * BUCKETS_PER_SHARD)
        self._doubtful: set[int] = set()

    def add(
        self, name: bytes, places: Sequence[int], keys: Sequence[bytes], ref_keys: Iterable[str], md5s: Iterable[bytes]
    ) -> None:
        counts, sums = self._counts, self._sums
        for place, (number,) in zip(places, _first_numbers(b"".join(md5s)), strict=True):
            counts[place] += 1
            sums[place] += number

    def refuse(self, name: bytes, place: int, key: bytes, ref_key: str, why: str) -> None:
        self._counts[place] += 1
        self._doubtful.add(place)

    def sums(self, shards: range, tables: Mapping[str, TableRows]) -> Sums:
        """Those of these shards, and how many rows their tables had."""
        found: dict[BucketPlace, Bucket] = {}
        for shard in shards:
            for number in range(BUCKETS_PER_SHARD):
                n = shard * BUCKETS_PER_SHARD + number
                found[BucketPlace(shard, number)] = Bucket(shard, number, self._counts[n], self._sums[n] % 2**64)
        doubtful = frozenset(BucketPlace(*divmod(n, BUCKETS_PER_SHARD)) for n in self._doubtful)
        return Sums(found, doubtful, tables)


class Listing:
    """Every cell by its key."""

    def __init__(self) -> None:
        self.found: list[CellDigest] = []

    def add(
        self, name: bytes, places: Sequence[int], keys: Sequence[bytes], ref_keys: Iterable[str], md5s: Iterable[bytes]
    ) -> None:
        column_name = name.decode()
        for key, ref_key, (number,) in zip(keys, ref_keys, _first_numbers(b"".join(md5s)), strict=True):
            self.found.append(CellDigest(key, column_name, int(ref_key), number))

    def refuse(self, name: bytes, place: int, key: bytes, ref_key: str, why: str) -> None:
        self.found.append(CellDigest(key, name.decode(), int(ref_key), 0, why))
