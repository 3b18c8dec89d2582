"""`EntryCopies`: entries of a shard's indexes, from its cluster to another one.

They change in place and have no log: what differs is found by sums of buckets of rows. A table of which much differs is
first copied by pages in the order of its key, as slowly as the servers bear.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from schemaless_core.engine.base import IndexTable
from schemaless_core.engine.copies import Row
from schemaless_core.logcopy.ends import CALL_SECONDS, ClusterEnd
from schemaless_core.logcopy.throttle import CopyThrottle

ENTRIES_PER_PAGE = 2_000
#: A table of which more than this differs is copied by pages: it is new, or an old copy.
WHOLE_SHARE = 0.5
#: Entries that are copied by one transaction, where buckets differ.
ROWS_PER_PORTION = 50_000
#: The sums of a table are added within that, and what differs after its pages is written.
TABLE_SECONDS = 60.0


class BucketSums(NamedTuple):
    """Buckets of rows that differ, with the entries that each has; and how many there are in all."""

    differing: Mapping[int, int]
    entries: int

    @property
    def is_to_be_copied_whole(self) -> bool:
        """A few rows that have changed make few buckets differ."""
        return sum(self.differing.values()) > max(ENTRIES_PER_PAGE, WHOLE_SHARE * self.entries)

    def portions(self, rows: int) -> Iterator[list[int]]:
        """So many entries at a time, or one bucket: each takes both servers a look at the whole table."""
        portion: list[int] = []
        count = 0
        for bucket, entries in sorted(self.differing.items()):
            if portion and count + entries > rows:
                yield portion
                portion, count = [], 0
            portion.append(bucket)
            count += entries
        if portion:
            yield portion


class EntryCopies:
    """Of one shard, written by one claim."""

    def __init__(self, shard: int, claim: int, throttle: CopyThrottle) -> None:
        self._shard = shard
        self._claim = claim
        self._throttle = throttle
        #: Tables that were made for the copy, by their names.
        self._made = set[str]()
        #: Is told before each page; may end the copy by raising.
        self.hear_page: Callable[[], None] = lambda: None

    def hears_by(self, hear: Callable[[], None]) -> None:
        self.hear_page = self._throttle.hear = hear

    def copy(self, table: IndexTable, here: ClusterEnd, there: ClusterEnd, *, by_pages: bool) -> None:
        """Make the entries of the copy those of the shard. `by_pages`: while the shard takes writes."""
        self._make(table, there)
        sums = self._sums(table, here, there)
        if by_pages and sums.is_to_be_copied_whole:
            self._copy_pages(table, here, there)
            sums = self._sums(table, here, there)
        for buckets in sums.portions(ROWS_PER_PORTION) if by_pages else [sums.differing] if sums.differing else []:
            if by_pages:
                self.hear_page()
            self._copy_buckets(table, here, there, set(buckets))

    def forget(self) -> None:
        """Another server leads, which may lack what was made."""
        self._made.clear()

    def _make(self, table: IndexTable, there: ClusterEnd) -> None:
        """Once, while the shard takes writes."""
        if table.name not in self._made:
            there.ask(lambda copies: copies.make_index(self._shard, table, there.deadline(TABLE_SECONDS)))
            self._made.add(table.name)

    def _sums(self, table: IndexTable, here: ClusterEnd, there: ClusterEnd) -> BucketSums:
        wanted, found = (
            end.ask(lambda copies: copies.entry_sums(self._shard, table, end.deadline(TABLE_SECONDS)))  # noqa: B023  # called at once
            for end in (here, there)
        )
        nothing = (0, 0)
        sums = {each: (wanted.get(each, nothing), found.get(each, nothing)) for each in wanted.keys() | found.keys()}
        differing = {each: max(one[0], other[0]) for each, (one, other) in sums.items() if one != other}
        return BucketSums(differing, sum(max(one[0], other[0]) for one, other in sums.values()))

    def _copy_pages(self, table: IndexTable, here: ClusterEnd, there: ClusterEnd) -> None:
        last: Row | None = None
        is_under_way = True
        while is_under_way:
            self.hear_page()
            last = self._copy_page(table, here, there, last)
            is_under_way = last is not None

    def _copy_page(self, table: IndexTable, here: ClusterEnd, there: ClusterEnd, after: Row | None) -> Row | None:
        """Return the last entry of the page; None: it was the last page, or the copy is another process's."""
        shard, begun = self._shard, time.monotonic()
        page = here.ask(
            lambda copies: copies.entries_after(shard, table, after, ENTRIES_PER_PAGE, here.deadline(CALL_SECONDS))
        )
        read_seconds = time.monotonic() - begun
        end = page[-1] if len(page) == ENTRIES_PER_PAGE else None
        deadline = there.deadline(CALL_SECONDS)
        is_put = there.ask(
            lambda copies: copies.put_entries_after(shard, self._claim, table, after, page, end, deadline)
        )
        self._throttle.rest(len(page), read_seconds, time.monotonic() - begun)
        return end if is_put else None

    def _copy_buckets(self, table: IndexTable, here: ClusterEnd, there: ClusterEnd, buckets: set[int]) -> None:
        shard, deadline = self._shard, here.deadline(TABLE_SECONDS)
        rows = here.ask(lambda copies: copies.entries(shard, table, buckets, deadline))
        deadline = there.deadline(TABLE_SECONDS)
        there.ask(lambda copies: copies.put_entries(shard, self._claim, table, buckets, rows, deadline))
