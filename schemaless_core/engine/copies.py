"""What a server offers to those that copy a shard to it, and have it own the shard then; whatever its engine.

A copy is a shard whose row is MOVED: no call reads it, no hand-over and no promotion counts it. The row says how far
the copy is, and the epoch of the log that it was made from. Every verb may be repeated.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import IndexTable, LogSlice
from schemaless_core.engine.primacy import Opening

Rows = Sequence[tuple[Any, ...]]


class CopySeen(NamedTuple):
    """What a server says of a shard in its own row."""

    epoch: int
    state: str
    #: The last added id of its log.
    head: int


class LogSum(NamedTuple):
    """Number and sum of the hashes of the cells of a part of a log, their added ids and times included."""

    cells: int
    total: int
    purged: int


class Beside(NamedTuple):
    """What a server has beside a shard's log, but for the entries of indexes. Tables by name, columns as they are."""

    authority_epoch: int
    last_created_at: Any
    tables: Mapping[str, Rows]
    #: Lines of the audit table behind a mark, and the highest line.
    mended: Rows
    mark: int


class CopyTables(Protocol):
    """The verbs of one server."""

    def look(self, shard: int, deadline: Deadline) -> CopySeen | None:
        """Return the shard's row."""
        ...

    def prepare(self, shard: int, claim: int, epoch: int, deadline: Deadline) -> None:
        """Make tables for a copy, and a row that is MOVED, if there are none; have it written by this claim alone.

        Not one that may arrive at a later epoch than this one. Verbs that write to a copy whose claim is another one
        do nothing.
        """
        ...

    def write(
        self, shard: int, claim: int, after: int, epoch: int, page: LogSlice, deadline: Deadline
    ) -> CopySeen | None:
        """Add a page to a copy of this epoch that ends at `after`; else nothing. Return the row then."""
        ...

    def cut(
        self, shard: int, claim: int, before: CopySeen, epoch: int, last: int, deadline: Deadline
    ) -> CopySeen | None:
        """Take what is above an added id from a copy that is as it was seen; it goes on at this epoch."""
        ...

    def replace(self, shard: int, claim: int, first: int, page: LogSlice, last: int, deadline: Deadline) -> None:
        """Put a page of the log in the place of what a copy has from `first` to `last`."""
        ...

    def sum(self, shard: int, first: int, last: int, deadline: Deadline) -> LogSum:
        """Return the sum of a part of the log."""
        ...

    def beside(self, shard: int, mark: int, deadline: Deadline) -> Beside:
        """Return what stands beside the log, and the lines of the audit table behind a mark."""
        ...

    def put_beside(self, shard: int, claim: int, beside: Beside, epoch: int, deadline: Deadline) -> bool:
        """Have a copy be as this says. `epoch`: at which it may arrive; 0: at none. False: it is no copy."""
        ...

    def put_late(self, shard: int, offsets: Rows, deadline: Deadline) -> None:
        """Give a shard the offsets of groups that it knows nothing of."""
        ...

    def forget_beside(self, shard: int, epoch: int, deadline: Deadline) -> None:
        """Take offsets and parked cells from a copy that was the shard up to this epoch."""
        ...

    def entry_sums(self, shard: int, table: IndexTable, deadline: Deadline) -> dict[int, tuple[int, int]]:
        """Return number and sum of the entries of an index version by bucket."""
        ...

    def entries(self, shard: int, table: IndexTable, buckets: Collection[int], deadline: Deadline) -> Rows:
        """Return the entries of these buckets, columns as they are."""
        ...

    def put_entries(
        self, shard: int, claim: int, table: IndexTable, buckets: Collection[int], rows: Rows, deadline: Deadline
    ) -> None:
        """Put entries in the place of those that a copy has in these buckets."""
        ...

    def leave(self, shard: int, epoch: int, deadline: Deadline) -> CopySeen | None:
        """Take all writes from a shard that is open at this epoch; return the row then."""
        ...

    def arrive(self, shard: int, epoch: int, copied_at: int, last: int, deadline: Deadline) -> CopySeen | None:
        """Make a copy the shard, if it has all of the log, and no promotion has the server in hand."""
        ...

    def close(self, shard: int, epoch: int, deadline: Deadline) -> None:
        """Make a copy of a shard whose epoch is not later than this one."""
        ...

    def open(self, shard: int, epoch: int, opening: Opening | None, why: str, deadline: Deadline) -> CopySeen | None:
        """Open a shard that COMES, or was GOING before this epoch; None of `opening`: as it was before."""
        ...


@runtime_checkable
class HoldsCopies(Protocol):
    """A node whose shards may go to another one: no file."""

    @property
    def copies(self) -> CopyTables:
        """Copies of shards."""
        ...
