"""What a server offers to those that copy a shard to it, and have it own the shard then; whatever its engine.

A copy is a shard whose row is MOVED: no call reads it, no hand-over and no promotion counts it. The row says how far
the copy is, and the epoch of the log that it was made from. Every verb may be repeated.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from schemaless_core.cell.answers import Scalar
from schemaless_core.cell.stored import StoredCell
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import IndexTable, LogSlice
from schemaless_core.engine.primacy import Opening

Row = tuple[Any, ...]
Rows = Sequence[Row]


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


class CellRecord(NamedTuple):
    """A cell whose time is text, as servers write and read it: `2026-11-29 12:00:00.123456`, in UTC."""

    added_id: int
    row_key: bytes
    column_name: bytes
    ref_key: int
    body: bytes
    created_at: bytes


class RecordPart(NamedTuple):
    """Cells and purged ids up to an added id. Purged ones behind the last cell are a part of their own."""

    last: int
    cells: int
    #: The cells as `row_values` made them.
    values: Sequence[bytes]
    purged: frozenset[int]


class LogRecords(NamedTuple):
    """A part of a log as records of a backup, and what the shard's row said after that. In no order."""

    seen: CopySeen
    cells: int
    #: None: there is more than a server puts into one answer.
    records: bytes | None
    #: Added ids at which no cell stood any more a moment later.
    purged: tuple[int, ...]


class Beside(NamedTuple):
    """What a server has beside a shard's log, but for the entries of indexes. Tables by name, columns as they are."""

    authority_epoch: int
    last_created_at: Any
    tables: Mapping[str, Rows]
    #: Lines of the audit table behind a mark, and the highest line.
    mended: Rows
    mark: int


class MendedLines(NamedTuple):
    """A page of the audit table of repair, as `Beside` has its lines, but without bodies."""

    lines: Rows
    #: The number up to which the table was looked through, and whether that is its end.
    mark: int
    is_end: bool


class BesideSum(NamedTuple):
    """Numbers and sums of what stands beside a shard's log, without what a copy is never given."""

    #: Offsets, histories, parked cells.
    few: tuple[int, ...] = ()
    purged_keys: tuple[int, int] = (0, 0)
    #: Of the audit table.
    lines: tuple[int, int] = (0, 0)
    #: The number of its first line there.
    first_line: int = 0

    def is_that_of(self, other: BesideSum) -> bool:
        """Whether two servers have the same; they number lines by themselves."""
        return self._replace(first_line=0) == other._replace(first_line=0)


class NumberedLines(NamedTuple):
    """A page of the audit table of some shards: each line, without bodies, behind its number."""

    lines: Rows
    #: The number up to which the table was looked through, and whether that is its end.
    mark: int
    is_end: bool


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

    def drop(self, shard: int, claim: int, deadline: Deadline) -> bool:
        """Drop the tables of a copy; its row stays, as that of an empty one of no epoch. False: it is no copy.

        Purged keys and audit lines stay as well: the lines are stripped with those of the shard.
        """
        ...

    def claims(self, shard: int, claim: int, deadline: Deadline) -> bool:
        """Return whether there is a copy, and this claim writes it."""
        ...

    def write(
        self, shard: int, claim: int, after: int, epoch: int, page: LogSlice, deadline: Deadline
    ) -> CopySeen | None:
        """Add a page to a copy of this epoch that ends at `after`; else nothing. Return the row then."""
        ...

    def row_values(self, cells: Sequence[CellRecord]) -> list[bytes]:
        """Return the cells as statements of this engine have them, in portions. It asks no server."""
        ...

    def write_records(
        self, shard: int, claim: int, after: int, epoch: int, part: RecordPart, deadline: Deadline
    ) -> CopySeen | None:
        """The same with records of a backup."""
        ...

    def cut(
        self,
        shard: int,
        claim: int,
        before: CopySeen,
        epoch: int,
        last: int,
        deadline: Deadline,
        history: Rows = (),
    ) -> CopySeen | None:
        """Take what is above an added id from a copy that is as it was seen; it goes on at this epoch.

        `history`: of the log, in the place of the copy's; none: it comes with what stands beside the log.
        """
        ...

    def replace(self, shard: int, claim: int, first: int, page: LogSlice, last: int, deadline: Deadline) -> None:
        """Put a page of the log in the place of what a copy has from `first` to `last`."""
        ...

    def sum(self, shard: int, first: int, last: int, deadline: Deadline) -> LogSum:
        """Return the sum of a part of the log."""
        ...

    def records(self, shard: int, first: int, last: int, deadline: Deadline) -> LogRecords:
        """Return the cells from one added id to another, each a head as `backups/records.py` says, name and body."""
        ...

    def waiting(self, shard: int, after: int, deadline: Deadline) -> list[StoredCell]:
        """Return the next cells that wait here for a shard of another cluster, by number; none: none is behind it."""
        ...

    def conflicts(self, after: int, deadline: Deadline) -> list[StoredCell]:
        """The same of the ledger of conflicts, of all shards."""
        ...

    def beside(self, shard: int, mark: int, deadline: Deadline) -> Beside:
        """Return what stands beside the log but for purged keys, and the lines of the audit table behind a mark.

        Added ids that are purged come with the log, and with its parts that the lines name.
        """
        ...

    def newest_line(self, deadline: Deadline) -> int:
        """Return the number of the newest line of the audit table, of whichever shard."""
        ...

    def key_sums(self, shard: int, deadline: Deadline) -> dict[int, tuple[int, int]]:
        """Return number and sum of the purged keys by bucket of rows."""
        ...

    def keys(self, shard: int, buckets: Collection[int], deadline: Deadline) -> Rows:
        """Return the purged keys of these buckets, columns as they are."""
        ...

    def few_beside(self, shard: int, deadline: Deadline) -> Beside:
        """Return purged keys, and the rest but for what may be much: parked cells, failures of indexes, the lines."""
        ...

    def sums_beside(self, deadline: Deadline) -> dict[int, BesideSum]:
        """Return what tells of each shard whether what stands beside its log is as elsewhere, by one statement."""
        ...

    def few_of(self, shards: Collection[int], purged: Collection[int], deadline: Deadline) -> dict[int, Beside]:
        """`few_beside` of many shards, by as many statements as for one. Purged keys are of those of `purged` alone."""
        ...

    def parked_of(self, shards: Collection[int], after: Row | None, limit: int, deadline: Deadline) -> Rows:
        """Return parked cells of many shards behind one, by group, shard and added id; None: from the first on."""
        ...

    def lines_of(self, shards: Collection[int], mark: int, limit: int, deadline: Deadline) -> NumberedLines:
        """Look through so many lines of the audit table behind a number, and return those of these shards."""
        ...

    def known_lines(self, tokens: Collection[bytes], deadline: Deadline) -> set[bytes]:
        """Return which of these lines the audit table has, by their tokens."""
        ...

    def pass_over(self, shard: int, claim: int, added_ids: Collection[int], deadline: Deadline) -> bool:
        """Delete cells from a copy, and have readers of its log pass their added ids. False: it is no copy of it."""
        ...

    def parked_after(self, shard: int, after: Row | None, limit: int, deadline: Deadline) -> Rows:
        """Return parked cells behind one, by group and added id; None: from the first on."""
        ...

    def lines_after(self, shard: int, mark: int, limit: int, deadline: Deadline) -> MendedLines:
        """Look through so many lines of the audit table, those of other shards too, and return the shard's."""
        ...

    def put_lines(self, shard: int, claim: int, lines: Rows, deadline: Deadline) -> bool:
        """Give a copy lines of the audit table that it lacks. False: it is no copy that this claim writes."""
        ...

    def put_beside(
        self, shard: int, claim: int, beside: Beside, epoch: int, deadline: Deadline, since: int = 0
    ) -> bool:
        """Have a copy be as this says. `epoch`: at which it may arrive; 0: at none. False: it is no copy.

        `since`: the audit lines behind this number are compared with the purged keys, and stripped of bodies.
        """
        ...

    def put_late(self, shard: int, offsets: Rows, deadline: Deadline) -> None:
        """Give a shard the offsets of groups that it knows nothing of."""
        ...

    def forget_beside(self, shard: int, epoch: int, deadline: Deadline) -> None:
        """Take offsets and parked cells from a copy that was the shard up to this epoch."""
        ...

    def make_index(self, shard: int, table: IndexTable, deadline: Deadline) -> None:
        """Make the table of an index version for a copy, if it is not there."""
        ...

    def entry_sums(self, shard: int, table: IndexTable, deadline: Deadline) -> dict[int, tuple[int, int]]:
        """Return number and sum of the entries of an index version by bucket."""
        ...

    def entries(self, shard: int, table: IndexTable, buckets: Collection[int], deadline: Deadline) -> Rows:
        """Return the entries of these buckets, columns as they are."""
        ...

    def entries_after(self, shard: int, table: IndexTable, after: Row | None, limit: int, deadline: Deadline) -> Rows:
        """Return entries behind one, by shard field and row; None: from the first on."""
        ...

    def put_entries_after(
        self,
        shard: int,
        claim: int,
        table: IndexTable,
        after: Row | None,
        page: Rows,
        end: Row | None,
        deadline: Deadline,
    ) -> bool:
        """Put a page in the place of what a copy has behind one entry, up to another. False: this claim has no copy."""
        ...

    def put_entries(
        self, shard: int, claim: int, table: IndexTable, buckets: Collection[int], rows: Rows, deadline: Deadline
    ) -> None:
        """Put entries in the place of those that a copy has in these buckets."""
        ...

    def there(self, deadline: Deadline) -> list[int]:
        """Return the shards of which this server has a copy, by number."""
        ...

    def forget_entries(
        self, shard: int, table: IndexTable, keys: Sequence[tuple[Scalar, bytes]], deadline: Deadline
    ) -> None:
        """Delete from a copy, whichever claim writes it, the entries under these shard values and row keys."""
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
