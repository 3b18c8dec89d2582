"""Giving up parked changes: a version that another one has replaced may be missing in Schemaless, or stay wrong there.

Only one that Schemaless can do without: a later version of the same row is there as Postgres has it. So whatever reads
the present finds it, before a switch and after.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from schemaless_core.cell.cell import Cell, CellKey
from schemaless_core.control.audit import AuditLog
from schemaless_core.errors import InvalidRequest
from schemaless_core.store import CellStore
from tripstore.backends.postgres.ids.ids import LEGACY_ID_REF_KEY
from tripstore.backends.postgres.layout.layout import LEGACY_ID, Layout, RefKeyKind
from tripstore.migration.mirror.parked import PARKED_MAX, ParkingQueue

#: An entry of the audit log has room for so many.
KEYS_PER_ENTRY = 200


class SkippingQueue(ParkingQueue, Protocol):
    """The queue of Postgres, which parked changes stand in."""

    def mark_delivered(self, cells: Sequence[Cell]) -> None: ...


class Skipping:
    """Says which parked changes may be given up, and does it."""

    def __init__(
        self, queue: SkippingQueue, layout: Layout, legacy: CellStore, store: CellStore, audit: AuditLog
    ) -> None:
        self._queue = queue
        self._layout = layout
        self._legacy = legacy
        self._store = store
        self._audit = audit

    def refuse_needed(self, keys: Sequence[CellKey]) -> None:
        """Raise unless all of these can be done without."""
        for key in keys:
            if self._queue.find_parked(key) is None:
                raise InvalidRequest(f"{_text(key)} is not parked.", hint="`tripstore mirror parked` lists what is.")
            reason = self._needed(key)
            if reason:
                hint = "Change the row, have its next version carried (`tripstore mirror drain`), then skip this one."
                raise InvalidRequest(f"{_text(key)} is needed: {reason}.", hint=hint)

    def replaced(self) -> tuple[list[CellKey], int]:
        """Every parked change that can be done without; how many others are parked."""
        parked = [change.key for change in self._queue.parked(PARKED_MAX)]
        found = [key for key in parked if self._needed(key) is None]
        return found, len(parked) - len(found)

    def skip(self, keys: Sequence[CellKey], why: str) -> None:
        """Take them out of the queue; history keeps them. The audit log hears of it first."""
        self.refuse_needed(keys)
        for first in range(0, len(keys), KEYS_PER_ENTRY):
            self._give_up(keys[first : first + KEYS_PER_ENTRY], why)

    def _give_up(self, keys: Sequence[CellKey], why: str) -> None:
        self._audit.add("mirror.skip", {"changes": [_text(key) for key in keys], "why": why})
        for key in keys:  # the first change of a row leaves the queue only with its legacy id, which is there
            self._queue.mark_delivered([Cell(*key, None), Cell(key.row_key, LEGACY_ID, LEGACY_ID_REF_KEY, None)])

    def _needed(self, key: CellKey) -> str | None:
        """Why it cannot be done without; None: it can."""
        later = self._later(key)
        if later is None or later.ref_key <= key.ref_key:
            return "it is the latest version of its row"
        if self._store.get_cell(*later.key) != later:
            return f"Schemaless does not have the later version {later.ref_key} as Postgres has it"
        pair = CellKey(key.row_key, LEGACY_ID, LEGACY_ID_REF_KEY)
        if self._store.get_cell(*pair) != self._legacy.get_cell(*pair):
            return "Schemaless does not have the row's legacy id"
        return None

    def _later(self, key: CellKey) -> Cell | None:
        """The latest version of the row that the change is of; None: it has no versions."""
        column = self._layout.columns.get(key.column_name)
        if column is None or column.ref_key.kind is RefKeyKind.FACT:
            return None
        before = None
        if column.ref_key.kind is RefKeyKind.CHILD:
            number, _version = column.split(key.ref_key)
            before = column.compose(number + 1, 0)
        found = self._legacy.get_history(key.row_key, key.column_name, before=before, limit=1)
        return found[0] if found else None


def _text(key: CellKey) -> str:
    return f"{key.row_key}/{key.column_name}/{key.ref_key}"
