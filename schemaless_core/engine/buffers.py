"""`BufferTables`: what a server does with cells that it keeps for shards of others, whatever its engine."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple, Protocol

from schemaless_core.cell.standing import Gate
from schemaless_core.cell.stored import NewCell
from schemaless_core.deadline import Deadline

#: Row key, column name, ref key.
CellKeyBytes = tuple[bytes, bytes, int]


class Offered(NamedTuple):
    """A cell for a shard of another server."""

    shard: int
    cell: NewCell


class BufferedCell(NamedTuple):
    """A cell that waits. No other cell of its buffer ever has its number; a higher one arrived later."""

    number: int
    shard: int
    cell: NewCell
    kept_at: datetime
    #: Whether it waits until each replica of its own cluster has it: its caller asked for two copies.
    is_second: bool = False


class BufferConflict(NamedTuple):
    """A cell that waited, and the body that its shard had under its key."""

    waiting: BufferedCell
    stored: bytes
    found_at: datetime


class BufferSize(NamedTuple):
    """What a buffer holds."""

    cells: int
    bytes: int
    #: None: nothing waits.
    oldest_at: datetime | None
    conflicts: int
    #: Second copies of the last minute: while all is well they are where they belong.
    young: int = 0

    @property
    def waiting(self) -> int:
        """Those that stand there for another reason."""
        return self.cells - self.young


class BufferedPage(NamedTuple):
    """Versions of one column that wait, newest first."""

    cells: list[NewCell]
    #: More of them wait than a page has room for: what is older than this is behind it; None: it has all.
    cut_at: int | None = None


#: No cell is left out.
NOT_PASSED: Mapping[int, int] = MappingProxyType({})
#: A second copy that is older counts as a cell that waits.
SECOND_SECONDS = 60


class BufferTables(Protocol):
    """The buffer of one server, and its ledger of conflicts."""

    def keep(
        self, gate: Gate, cells: Sequence[Offered], deadline: Deadline, *, are_second: bool = False
    ) -> list[bytes | None]:
        """Keep cells, all with different keys, by one transaction; of each the other body under its key, or None.

        The gate is that of a shard of this server, whichever: `StaleEpoch` unless that takes the caller's writes. An
        equal cell that waits already is kept.
        """
        ...

    def waiting(
        self,
        shards: Collection[int] | None,
        limit: int,
        body_bytes: int,
        deadline: Deadline,
        after: Mapping[int, int] = NOT_PASSED,
    ) -> list[BufferedCell]:
        """Return the first cells to arrive, at most so many of each of these shards; None: so many of all.

        `after`: of a shard those of higher numbers alone.

        It ends with the cell that brings their bodies to the bytes.
        """
        ...

    def find(self, keys: Collection[CellKeyBytes], deadline: Deadline) -> list[NewCell]:
        """Return those of these cells that wait, in the order of arrival."""
        ...

    def latest(self, row_keys: Collection[bytes], deadline: Deadline) -> list[NewCell]:
        """Return of each column of these rows the cell with the highest ref key that waits."""
        ...

    def history(
        self, row_key: bytes, column_name: bytes, before: int | None, limit: int, deadline: Deadline
    ) -> BufferedPage:
        """Return the newest cells of a column that wait, with ref keys below `before`: a page of them at most."""
        ...

    def settle(
        self,
        there: Sequence[int],
        conflicts: Mapping[int, bytes],
        deadline: Deadline,
        *,
        second: Collection[int] = (),
    ) -> None:
        """Remove cells by number, and move others, each with the body that is stored, to the ledger: all or nothing.

        Those that are gone already are no error. One that has become a second copy since it was read stays, unless it
        is among the `second`.
        """
        ...

    def shards(self, deadline: Deadline) -> list[int]:
        """Return the shards of which it has cells."""
        ...

    def columns(self, deadline: Deadline) -> set[str]:
        """Return the names of the columns of which it has cells."""
        ...

    def size(self, deadline: Deadline) -> BufferSize:
        """Return how much it holds."""
        ...

    def conflicts(self, limit: int, deadline: Deadline) -> list[BufferConflict]:
        """Return the first of the ledger."""
        ...

    def close_conflicts(self, numbers: Sequence[int], deadline: Deadline) -> int:
        """Take these out of the ledger; return how many were there."""
        ...
