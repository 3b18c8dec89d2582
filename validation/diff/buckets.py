"""`Digests`: a store as sums per bucket, and as keys with hashes; and which of them two stores do not share.

A store that can sum where its cells are, or many shards in one pass, has a `Digests` of its own; of any other
`PlainDigests` makes one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from schemaless_core.cell.answers import Bucket
from schemaless_core.cell.canonical import canonical_bytes
from schemaless_core.cell.cell import Cell
from schemaless_core.cell.children import NO_CHILDREN, Children, latest_of
from schemaless_core.cell.sharding import BUCKETS_PER_SHARD, bucket_of, cell_hash
from schemaless_core.datastore import Datastore
from schemaless_core.store import CellStore
from tripstore.engines.validation.diff.latest import whole_history

ROWS_PER_PAGE = 1000
#: Shards that are summed at once, each by its server.
THREADS = 4


class BucketPlace(NamedTuple):
    """A bucket of a shard."""

    shard: int
    number: int


class CellDigest(NamedTuple):
    """The latest cell of a child, or of a column that is one row, by its key, with a hash for its bytes."""

    row_key: bytes
    column_name: str
    ref_key: int
    hash: int
    #: Why there are no bytes to be hashed; "": there are.
    unreadable: str = ""


class TableRows(NamedTuple):
    """A table of the company's: how many rows it has, and how many of them are in the sums."""

    rows: int
    compared: int


@dataclass(frozen=True, slots=True)
class Sums:
    """The buckets of some shards."""

    buckets: Mapping[BucketPlace, Bucket]
    #: Where something could not be read: such a bucket equals no other.
    doubtful: frozenset[BucketPlace] = frozenset()
    #: By column; of a store that has no tables none.
    tables: Mapping[str, TableRows] = field(default_factory=dict)


class Digests(Protocol):
    """What a comparison asks of a store before it asks for cells."""

    def checksums(self, shards: range, columns: Collection[str] | None) -> Sums:
        """All buckets of these shards."""
        ...

    def digests(self, places: Collection[BucketPlace], columns: Collection[str] | None) -> Iterable[CellDigest]:
        """Every latest cell of these buckets."""
        ...


class PlainDigests:
    """Of a store that shows no more than the cell store's own calls."""

    def __init__(self, store: CellStore, children: Children = NO_CHILDREN) -> None:
        self._store = store
        self._children = children

    def checksums(self, shards: range, columns: Collection[str] | None) -> Sums:
        found = (bucket for shard in shards for bucket in self._store.checksum(shard, columns, self._children))
        return Sums({BucketPlace(bucket.shard, bucket.number): bucket for bucket in found})

    def digests(self, places: Collection[BucketPlace], columns: Collection[str] | None) -> Iterator[CellDigest]:
        wanted = set(places)
        for shard in sorted({place.shard for place in wanted}):
            after = None
            while True:
                page = self._store.scan_rows(shard, after, ROWS_PER_PAGE, columns)
                for row in page.rows:
                    key = row.row_key.bytes
                    if BucketPlace(shard, bucket_of(key)) in wanted:
                        for cell in row.cells.values():
                            yield from self._of_column(cell)
                if page.after is None:
                    break
                after = page.after

    def _of_column(self, latest: Cell) -> Iterator[CellDigest]:
        name = latest.column_name
        cells = {latest.ref_key: latest}
        if name in self._children:
            cells = {cell.ref_key: cell for cell in whole_history(self._store, latest.row_key, name)}
        tombstones = [ref_key for ref_key, cell in cells.items() if cell.is_tombstone]
        key = latest.row_key.bytes
        for ref_key in latest_of(cells, tombstones, self._children.get(name)):
            value = cell_hash(key, name.encode(), ref_key, canonical_bytes(cells[ref_key].body))
            yield CellDigest(key, name, ref_key, value)


class ShardedDigests:
    """Of Schemaless, whose servers sum and hash: several shards at once."""

    def __init__(
        self, datastore: Datastore, seconds: float, children: Children = NO_CHILDREN, threads: int = THREADS
    ) -> None:
        self._datastore = datastore.using(deadline=seconds)
        self._children = children
        self._threads = threads

    def checksums(self, shards: range, columns: Collection[str] | None) -> Sums:
        with ThreadPoolExecutor(self._threads, thread_name_prefix="sums") as pool:
            found = pool.map(lambda shard: self._datastore.checksum(shard, columns, self._children), shards)
            return Sums({BucketPlace(bucket.shard, bucket.number): bucket for each in found for bucket in each})

    def digests(self, places: Collection[BucketPlace], columns: Collection[str] | None) -> Iterator[CellDigest]:
        wanted: defaultdict[int, list[int]] = defaultdict(list)
        for place in places:
            wanted[place.shard].append(place.number)
        with ThreadPoolExecutor(self._threads, thread_name_prefix="sums") as pool:
            found = pool.map(
                lambda shard: self._datastore.digests(shard, wanted[shard], columns, self._children), sorted(wanted)
            )
            for each in found:
                for row_key, name, ref_key, hashed in each:
                    yield CellDigest(row_key, name.decode(), ref_key, hashed)


def differing(ours: Sums, theirs: Sums) -> dict[BucketPlace, int]:
    """The buckets that are not known to be equal, and how many cells the fuller side has in each."""
    doubtful = ours.doubtful | theirs.doubtful
    return {
        place: max(bucket.count, theirs.buckets[place].count)
        for place, bucket in ours.buckets.items()
        if place in doubtful or bucket != theirs.buckets[place]
    }


def cells_equal(sums: Sums, differing: Collection[BucketPlace]) -> int:
    """How many cells the buckets hold that are equal."""
    return sum(bucket.count for place, bucket in sums.buckets.items() if place not in differing)


class BucketsLeft(NamedTuple):
    """Buckets of a shard that are still to be looked into: a bit for each, and how many cells they hold."""

    shard: int
    bits: int
    cells: int

    @property
    def places(self) -> list[BucketPlace]:
        return [BucketPlace(self.shard, number) for number in range(BUCKETS_PER_SHARD) if self.bits >> number & 1]


def left_of(found: Mapping[BucketPlace, int]) -> list[BucketsLeft]:
    """Differing buckets, as they stand in a checkpoint: few numbers for each shard."""
    bits, cells = Counter[int](), Counter[int]()
    for place, count in found.items():
        bits[place.shard] |= 1 << place.number
        cells[place.shard] += count
    return [BucketsLeft(shard, bits[shard], cells[shard]) for shard in sorted(bits)]


def cut(left: Sequence[BucketsLeft], cells_max: int) -> tuple[list[BucketsLeft], list[BucketsLeft]]:
    """The first buckets that hold no more than about so many cells together, one at least; and the others."""
    total = 0
    for number, each in enumerate(left):
        total += each.cells
        if number and total > cells_max:
            return list(left[:number]), list(left[number:])
        if total > cells_max:
            some, rest = _split(each, cells_max)
            return [some], [*([rest] if rest.bits else []), *left[1:]]
    return list(left), []


def _split(left: BucketsLeft, cells_max: int) -> tuple[BucketsLeft, BucketsLeft]:
    """A shard that is too large, bucket by bucket: md5 fills them evenly."""
    places = left.places
    number = max(1, len(places) * cells_max // left.cells)
    bits = sum(1 << place.number for place in places[:number])
    cells = left.cells * number // len(places)
    return BucketsLeft(left.shard, bits, cells), BucketsLeft(left.shard, left.bits & ~bits, left.cells - cells)
