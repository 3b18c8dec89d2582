"""`Sides`: authority and mirror at one epoch, as repair sees them: what each holds, and what can be done about it.

The mirror is always read before the authority: what it holds rightly the authority then knows. Whatever is changed
carries the epoch; a store that is not the authority's mirror any more refuses.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

from schemaless_core.cell.cell import CellKey, ColumnKey
from schemaless_core.cell.children import ChildKey
from schemaless_core.errors import Conflict, SchemalessError
from tripstore.engines.validation.repair import HeldVersion, Powers, Rendered, RepairStep, Returned, Version
from tripstore.errors import TripstoreError

READ_SECONDS = 20.0


class NoSuchCell(Conflict, TripstoreError):
    """What was to be repaired is another by now; it is looked at again."""


class GaveWay(Conflict, TripstoreError):
    """Transactions of services held a table or a row, and the repair gave way to them. Later it may get its turn."""


class Pair(NamedTuple):
    """What both sides hold of a column."""

    column: ColumnKey
    ours: Version
    theirs: HeldVersion | None

    @property
    def is_plainly_equal(self) -> bool:
        """Whether they are the same bytes. One side rendered them, so they are sound."""
        if isinstance(self.ours, Returned):
            return False
        is_rendered = isinstance(self.ours, Rendered) or isinstance(self.theirs, Rendered)
        return is_rendered and self.ours == self.theirs


class Sides(Protocol):
    """The verbs. A conflict says that something moved; what a store refuses for good it raises."""

    def theirs(self, rows: Sequence[ChildKey]) -> list[HeldVersion | None]:
        """The mirror's latest cells."""
        ...

    def ours(self, rows: Sequence[ChildKey]) -> list[Version]:
        """The authority's latest cells."""
        ...

    def theirs_at(self, keys: Sequence[CellKey]) -> list[HeldVersion | None]:
        """What the mirror has under keys."""
        ...

    def ours_at(self, keys: Sequence[CellKey]) -> list[Version]:
        """What the authority has under keys."""
        ...

    def powers(self, seen: Sequence[Pair]) -> list[Powers]: ...

    def put(self, steps: Sequence[RepairStep]) -> list[SchemalessError | None]:
        """Put cells that the mirror has lost, most likely; of each why it is not there, if it is not."""
        ...

    def put_new(self, steps: Sequence[RepairStep]) -> list[SchemalessError | None]:
        """The same of cells that it never had."""
        ...

    def bury(self, lost: Sequence[tuple[RepairStep, HeldVersion]]) -> list[SchemalessError | None]:
        """Write tombstones for rows that are gone without one; of each why there is none, if there is none."""
        ...

    def lift(self, lifts: Sequence[tuple[RepairStep, HeldVersion]]) -> list[SchemalessError | HeldVersion | None]:
        """Have the authority's cells carried anew under higher ref keys; of each why it is not so, if it is not.

        Else the version that stands there, where it was seen with the lift: the mirror may have it at once.
        """
        ...

    def mend(self, steps: Sequence[RepairStep]) -> list[SchemalessError | None]:
        """Replace bytes where they stand; of each why it is not so, if it is not."""
        ...

    def purge(self, extra: Sequence[tuple[RepairStep, HeldVersion]]) -> list[SchemalessError | None]:
        """Delete cells that are still as they were seen; of each why it is there, if it is."""
        ...

    def settle(self, columns: Collection[ColumnKey]) -> None:
        """What goes with cells that were changed: index entries, and changes that were parked because of them."""
        ...
