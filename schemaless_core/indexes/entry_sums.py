"""`EntrySums`: which entries rows should have and which there are, as sums of hashes.

Each page of rows has several pairs of sums, and a row belongs to one of them. Where nothing is left in the first sum,
its rows have the entries that they should have, with these fields and ref keys, and no others. It takes no room for
each entry: one of many millions must not have them all in memory.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TypeAlias

from schemaless_core.cell.answers import Scalar
from schemaless_core.cell.sharding import shard_of_bytes
from schemaless_core.definitions.values import value_bytes
from schemaless_core.engine.base import EntryWrite, IndexTable, StoredEntry

#: Of an entry: its shard value and row key.
EntryKey: TypeAlias = tuple[Scalar, bytes]


#: Pairs of sums of a page. A row that changes between the two looks makes one of them differ, and no more.
PAIRS = 64
_MASK = 2**64 - 1


class PageSums:
    """Rows of a shard that follow each other, and what their entries come to."""

    def __init__(self, table: IndexTable, shard: int, after: bytes | None, last: bytes | None) -> None:
        self._table = table
        self.shard = shard
        #: The last row before these; None: there is none.
        self.after = after
        #: The last one of these; None: whatever follows.
        self.last = last
        #: Entries that should be there less those that are, and the keys of those that are less those that should be.
        self._entry_sums = array("Q", bytes(8 * PAIRS))
        self._key_sums = array("Q", bytes(8 * PAIRS))

    def want(self, entry: EntryWrite) -> None:
        """This entry should be there."""
        _add(self._entry_sums, entry.row_key, _entry_hash(entry, self._values(entry)))

    def found(self, entry: StoredEntry) -> None:
        """This one is there."""
        values = self._values(entry)
        _add(self._entry_sums, entry.row_key, -_entry_hash(entry, values))
        _add(self._key_sums, entry.row_key, hash((values[0], entry.row_key)))

    def explained(self, key: EntryKey) -> None:
        """The one under this key should be there, whatever it is like."""
        shard_value, row_key = key
        _add(self._key_sums, row_key, -hash((value_bytes(self._table.fields[0].kind, shard_value), row_key)))

    @property
    def is_equal(self) -> bool:
        return not any(self._entry_sums)

    def differs_for(self, row_key: bytes) -> bool:
        """Whether this row is one of those of which something is wrong."""
        return self._entry_sums[_pair_of(row_key)] != 0

    def may_have_others(self, row_key: bytes | None = None) -> bool:
        """Whether this row, or any, is one of those that have an entry which is not explained."""
        pairs = range(PAIRS) if row_key is None else (_pair_of(row_key),)
        return any(self._entry_sums[pair] and self._key_sums[pair] for pair in pairs)

    def _values(self, entry: EntryWrite | StoredEntry) -> list[bytes | None]:
        # Of bytes: numbers that are near each other may have the same hash, -1 and -2 for example.
        kinds = zip(self._table.fields, entry.values, strict=True)
        return [None if value is None else value_bytes(field.kind, value) for field, value in kinds]


def _entry_hash(entry: EntryWrite | StoredEntry, values: list[bytes | None]) -> int:
    return hash((entry.row_key, repr(entry.refs), *values))


def _add(sums: array[int], row_key: bytes, number: int) -> None:
    pair = _pair_of(row_key)
    sums[pair] = sums[pair] + number & _MASK


def _pair_of(row_key: bytes) -> int:
    return hash(row_key) % PAIRS


class EntrySums:
    """Of one version: all its rows, page by page."""

    def __init__(self, table: IndexTable, shards: int) -> None:
        self._table = table
        self._pages: list[list[PageSums]] = [[] for _shard in range(shards)]
        self._lasts: list[list[bytes]] = [[] for _shard in range(shards)]

    def page(self, shard: int, last: bytes | None) -> PageSums:
        """The next page of a shard, up to this row; None: to the end."""
        lasts = self._lasts[shard]
        page = PageSums(self._table, shard, lasts[-1] if lasts else None, last)
        self._pages[shard].append(page)
        if last is not None:
            lasts.append(last)
        return page

    def of(self, row_key: bytes) -> PageSums:
        """The page that a row belongs to, also one that was not there yet."""
        shard = shard_of_bytes(row_key, len(self._pages))
        return self._pages[shard][bisect_left(self._lasts[shard], row_key)]

    def unequal(self) -> Sequence[PageSums]:
        return [page for page in self._all() if not page.is_equal]

    def _all(self) -> Iterator[PageSums]:
        return chain.from_iterable(self._pages)
