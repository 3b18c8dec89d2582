"""`SchemalessBackend`: a datastore that knows legacy ids, as its sibling `PostgresBackend` does."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal
from uuid import UUID

import msgspec

from schemaless_core.cell.cell import Cell, CellKey
from schemaless_core.datastore import Datastore
from schemaless_core.deadline import Deadline
from schemaless_core.errors import Unavailable
from schemaless_core.indexes.lookup import VALUES_PER_LOOK
from tripstore.backends.postgres.ids.ids import LEGACY_ID_REF_KEY
from tripstore.backends.postgres.ids.index import ID_FIELD, LEGACY_ID_INDEX
from tripstore.backends.postgres.layout.layout import LEGACY_ID
from tripstore.errors import TripstoreError

#: A pair never changes, so an entry is right; one that is not there yet may be in the log above it.
_LOOKS: tuple[Literal["fast", "verified"], ...] = ("fast", "verified")


class TooManyIds(Unavailable, TripstoreError):
    """The store answers, but has not resolved so many legacy ids by the deadline."""


class SchemalessBackend(Datastore):
    """Each row has one cell of `_LEGACY_ID`, which never changes; an index finds it by the id."""

    def resolve_ids(self, numbers: Iterable[int]) -> dict[int, UUID]:
        """The row keys of many legacy ids; what has none is left out. A deadline is that of all of them together."""
        wanted = list(dict.fromkeys(numbers))
        deadline = Deadline(math.inf if self.deadline_seconds is None else self.deadline_seconds)
        found: dict[int, UUID] = {}
        for consistency in _LOOKS:
            missing = [number for number in wanted if number not in found]
            for first in range(0, len(missing), VALUES_PER_LOOK):
                found |= self._row_keys(missing[first : first + VALUES_PER_LOOK], consistency, deadline)
        return {number: found[number] for number in wanted if number in found}

    def legacy_ids(self, row_keys: Iterable[UUID]) -> dict[UUID, int]:
        """The legacy ids of many row keys; what has none is left out."""
        cells = self.get_cells([CellKey(row_key, LEGACY_ID, LEGACY_ID_REF_KEY) for row_key in row_keys])
        return {cell.row_key: _number(cell) for cell in cells if cell is not None}

    def _row_keys(
        self, numbers: Sequence[int], consistency: Literal["fast", "verified"], deadline: Deadline
    ) -> dict[int, UUID]:
        """Some of many, within what the others have left of their deadline."""
        asked = self
        remaining = math.inf
        if self.deadline_seconds is not None:
            remaining = deadline.left()
            if remaining <= 0:
                raise _too_many()
            asked = self.using(deadline=remaining)
        try:
            return asked.first_rows(LEGACY_ID_INDEX, numbers, consistency)
        except Unavailable as error:
            # A server that hangs takes what there is; one asked with less than half of it left was late because of the
            # others.
            if deadline.is_over and self.deadline_seconds is not None and remaining < self.deadline_seconds / 2:
                raise _too_many() from error
            raise


def _too_many() -> TooManyIds:
    return TooManyIds(
        "Not all of the legacy ids were resolved within the deadline.",
        hint="Ask for fewer at once, or give them a longer deadline with using(deadline=…).",
    )


def _number(cell: Cell) -> int:
    """What the cell says; a damaged one is no answer, as bytes that are no JSON are none."""
    number = cell.body.get(ID_FIELD) if isinstance(cell.body, dict) else None
    if type(number) is not int:
        raise msgspec.ValidationError(f"The cell {LEGACY_ID}@{cell.ref_key} of {cell.row_key} says no id.")
    return number
