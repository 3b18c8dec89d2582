"""`Copying`: what a backfill copies, from where and to where. The engine knows chunks, not what is in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from schemaless_core.cell.canonical import Json
from schemaless_core.control.jobs.records import Finding

#: What is to be copied, in the words of the source: predicate, columns, keys.
Spec = Mapping[str, Json]


class Copied(msgspec.Struct, frozen=True):
    """What became of one chunk."""

    #: Rows that were read.
    rows: int
    #: Cells that were found present and equal after writing, by whichever writer.
    cells_equal: int
    #: Where the next chunk of the part begins.
    checkpoint: Json
    #: Whether the part is done.
    is_end: bool
    #: Some of it could not be stored now, and why: nothing is counted, the chunk is to be copied again.
    is_again: bool = False
    why: str = ""
    #: Cells under whose key something else stands; each is among the findings, too.
    conflicts: int = 0
    #: Rows and cells that could not be copied.
    quarantined: tuple[Finding, ...] = ()
    #: Findings of earlier jobs about these rows: this copy answers them, by success or by a finding of its own.
    solved: tuple[int, ...] = ()
    #: Cells that were read once more and compared.
    verified: int = 0
    read_seconds: float = 0.0
    #: Of reading: for so long the source was at work, and for so long it rested in between.
    source_seconds: float = 0.0
    rested_seconds: float = 0.0
    write_seconds: float = 0.0
    #: Blocks that the source read for it and did not have in memory; 0 where it was not to count them.
    blocks_read: int = 0
    #: Rows of any kind that were read, where only some of them are counted: throttles and chunks go by these.
    looked_at: int = 0

    @property
    def pace_rows(self) -> int:
        """How many rows the source had to read, so far as is known."""
        return max(self.rows, self.looked_at)

    @property
    def set_aside(self) -> int:
        """Rows and cells in quarantine, conflicts apart. A finding may stand for many: its `rows` says how many."""
        counted = (each.body.get("rows", 1) for each in self.quarantined)
        return sum(each for each in counted if isinstance(each, int)) - self.conflicts


class Copying(Protocol):
    """Reads a portion of the past and writes it as a copier. A chunk may be copied again, by several at once (I4)."""

    def plan(self, spec: Spec, parts: int) -> Sequence[Json]:
        """Cut what is to be copied into about so many parts; their bounds."""
        ...

    def estimate(self, spec: Spec) -> int:
        """About how many rows that is. An estimate: statistics of a database may be far off."""
        ...

    def copy(self, bounds: Json, checkpoint: Json, rows: int, verify_share: float, source_share: float = 1.0) -> Copied:
        """Copy about so many rows after the checkpoint, and compare this share of them once more.

        While it is read the source is to be at work for no more than its share of the time; how long it was is said.

        `MustWait`: not now. `CannotCopy`: not before an operator changes something.
        """
        ...
