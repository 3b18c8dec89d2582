"""What the calls of a cell store answer: results of puts, pages of the log and of rows, checksums, index pages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final, Literal
from uuid import UUID

import msgspec

from schemaless_core.cell.cell import Cell

Scalar = str | int | float | bool | Decimal | UUID | datetime
Operator = Literal["=", "!=", "<", "<=", ">", ">=", "in", "between"]
Condition = tuple[str, Operator, Any]


class _Any:
    """The value of `expect_latest` that expects nothing."""

    def __repr__(self) -> str:
        return "ANY"

    def __reduce__(self) -> str:
        return "ANY"  # there is one: what pickle and copy give back is compared with `is`


ANY: Final = _Any()


class PutStatus(StrEnum):
    """What became of a cell that was put."""

    CREATED = "CREATED"  #: The cell is stored and readable; it was not there before.
    EXISTS = "EXISTS"  #: An equal cell was already stored.
    BUFFERED = "BUFFERED"  #: Accepted by another cluster; readable once its own has it.


class PutResult(msgspec.Struct, frozen=True):
    """The outcome of one put; with EXISTS the added id is the stored cell's."""

    status: PutStatus
    readable: bool
    shard: int
    ref_key: int
    epoch: int
    added_id: int | None


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a shard's log that survives restarts and promotions: store it, not the bare added id."""

    store: str
    epoch: int
    added_id: int


Location = int | datetime | Position


@dataclass(frozen=True, slots=True)
class ShardPage:
    """Cells of one shard in added-id order. `head` is the last added id given when the page was read."""

    cells: list[Cell]
    next_location: int
    position: Position
    head: int

    @property
    def start(self) -> int:
        """The added id after which its cells begin. What lies between cells was purged by repair, and is passed."""
        first = self.cells[0].added_id if self.cells else None
        return self.next_location if first is None else first - 1


@dataclass(frozen=True, slots=True)
class Row:
    """The latest cell of each asked column of one row."""

    row_key: UUID
    cells: dict[str, Cell]


@dataclass(frozen=True, slots=True)
class RowPage:
    """Rows in row-key order; `after` is where the next page starts, None when there is no more."""

    rows: list[Row]
    after: UUID | None


@dataclass(frozen=True, slots=True)
class Bucket:
    """Count and 64-bit sum of the hashes of the latest cells of one bucket of a shard."""

    shard: int
    number: int
    count: int
    sum: int


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One row that an index query found."""

    row_key: UUID
    fields: Mapping[str, Scalar | None]
    cells: Mapping[str, Cell] | None = None


@dataclass(frozen=True, slots=True)
class IndexPage:
    """Entries in the order asked for, and the cursor of the next page (None: no more)."""

    entries: list[IndexEntry]
    cursor: str | None
