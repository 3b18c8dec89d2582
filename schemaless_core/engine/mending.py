"""What a server offers to repair: the only verbs that change or delete a row of `cell`, and put one below the head.

Each is one transaction that holds the shard's counter row, for any number of the shard's cells. It leaves a line for
each in the audit table of the same server, with the bytes before and after it, and changes no cell that is not exactly
what its caller has seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple, Protocol

from schemaless_core.cell.standing import Gate, Kind, ShardState, ShardStatus
from schemaless_core.cell.stored import NewCell, StoredCell
from schemaless_core.deadline import Deadline
from schemaless_core.errors import StaleEpoch

#: Added ids looked at in one statement; holes and purged ids in one answer.
IDS_PER_LOOK = 50_000
PURGED_PER_LOOK = 10_000


class Mended(StrEnum):
    """What was done to a place in a shard's log."""

    PUT = "put"  #: A cell that was lost, while the log had a hole.
    MEND = "mend"  #: The bytes of a cell were replaced.
    PURGE = "purge"  #: A cell was deleted; readers of the log pass its added id.
    CLOSE = "close"  #: The cell of a hole cannot be known; readers of the log pass it.


class MendNote(NamedTuple):
    """On whose behalf: for the audit table."""

    job: str
    who: str
    host: str


class MendLine(NamedTuple):
    """A line of the audit table. No bytes: before (put), after (purge), nor a key (close)."""

    shard: int
    added_id: int
    action: Mended
    row_key: bytes | None
    column_name: bytes | None
    ref_key: int | None
    old_body: bytes | None
    new_body: bytes | None
    note: MendNote
    at: datetime


class Lack(NamedTuple):
    """A cell that a shard lacks, and the hole of its log that is closed with it."""

    cell: NewCell
    hole: int


class BodyChange(NamedTuple):
    """A cell as its caller has seen it, and the bytes that it is to have; None: it is to be deleted."""

    stored: StoredCell
    body: bytes | None

    @property
    def action(self) -> Mended:
        return Mended.PURGE if self.body is None else Mended.MEND


class Filled(NamedTuple):
    """What became of a put: the added id it has now, and whether it was created here."""

    is_created: bool
    cell: StoredCell


class Mending(Protocol):
    """The verbs of one server. The gate is a copier's where Schemaless is the mirror, an owner's at the authority."""

    def holes(self, shard: int, after: int, limit: int, deadline: Deadline) -> list[int]:
        """Return added ids up to the head at which nothing stands and nothing was purged, ascending.

        Looks at a bounded part of the log; an empty answer says that there are none in `IDS_PER_LOOK` ids after it.
        """
        ...

    def put_beside(self, gate: Gate, lacks: Sequence[Lack], note: MendNote, deadline: Deadline) -> list[Filled | None]:
        """Put cells that the shard lacks behind the head, or find them, and close a hole for each that is put.

        No key and no hole is there twice. Together or not at all, so every reader meets the cells. None: the hole was
        none any more, or the key was purged. `StaleEpoch` when fenced.
        """
        ...

    def change(self, gate: Gate, changes: Sequence[BodyChange], note: MendNote, deadline: Deadline) -> list[bool]:
        """Give cells other bytes, or delete them: all the same of both, and no cell twice.

        False: it is not there like this any more. `StaleEpoch` when fenced.
        """
        ...

    def close_hole(self, gate: Gate, hole: int, note: MendNote, deadline: Deadline) -> bool:
        """Let readers of the log pass a hole; False: it is none any more. `StaleEpoch` when fenced."""
        ...

    def raise_counter(self, gate: Gate, head: int, deadline: Deadline) -> None:
        """Raise the counter and the shard's latest time above the cells above a head; `StaleEpoch` when fenced."""
        ...

    def raise_time(self, gate: Gate, cell: StoredCell, moment: datetime, deadline: Deadline) -> None:
        """Let a cell, if it is there like this, be of a moment; `StaleEpoch` when fenced."""
        ...

    def of_row(self, shard: int, row_key: bytes, deadline: Deadline) -> list[MendLine]:
        """Return the lines of a row's cells, oldest first."""
        ...

    def purged(self, row_keys: Sequence[bytes], deadline: Deadline) -> list[tuple[bytes, bytes, int]]:
        """Return the keys of the cells of these rows that were ever purged here, in the order of their lines."""
        ...

    def touched(self, row_keys: Sequence[bytes], deadline: Deadline) -> set[bytes]:
        """Return those of the rows whose cells were mended or purged here."""
        ...

    def lines(self, job: str | None, limit: int, deadline: Deadline) -> list[MendLine]:
        """Return the newest lines of the audit table, of one job or of all."""
        ...


def check_mend(gate: Gate, state: ShardState) -> None:
    """Raise `StaleEpoch` unless the shard lets this one change its cells.

    A repair of the mirror is a copier. Once the shard is open to owners it is no mirror: its cells are the truth.
    """
    gate.check_write(state)
    if gate.kind is Kind.COPIER and state.status != ShardStatus.COPY.value:
        reason = f"it is {state.status}: its cells are the authority's, and no mirror's to be repaired"
        raise StaleEpoch(
            gate.shard,
            state.status,
            reason,
            hint="Repair the other store, or say that this one is meant.",
            is_of_authority=True,
        )


def gaps(ids: Sequence[int], start: int, end: int) -> list[int]:
    """The numbers in (start, end] that are not among these ascending ones."""
    found: list[int] = []
    expected = start + 1
    for each in [*ids, end + 1]:
        found += range(expected, each)
        expected = each + 1
    return found
