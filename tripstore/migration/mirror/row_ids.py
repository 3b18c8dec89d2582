"""`RowIds`: legacy ids of rows that were made in Schemaless. Postgres gives them when the reverse mirror inserts a row.

They are cells of a column of their own, true in Postgres first: so they are put as a copier.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from uuid import UUID

from schemaless_core.cell.cell import Cell, CellKey
from schemaless_core.errors import SchemalessError, Unavailable
from schemaless_core.store import CellStore
from tripstore import metrics
from tripstore.backends.postgres.ids.ids import LEGACY_ID_REF_KEY, legacy_id_body
from tripstore.backends.postgres.layout.layout import LEGACY_ID
from tripstore.handover.authority import Authority
from tripstore.handover.ports import StorePort
from tripstore.migration.mirror.carrier import Refused

#: Rows that are known to have theirs; beyond that all are asked for again.
KNOWN_MAX = 100_000


class RowIds:
    """Used by one thread."""

    def __init__(
        self,
        authority: Callable[[], Authority],
        legacy_ids: Callable[[Iterable[UUID]], Mapping[UUID, int]],
        store: CellStore,
        store_of: Callable[[Refused], StorePort],
    ) -> None:
        self._authority = authority
        self._legacy_ids = legacy_ids
        self._store = store
        self._refusals: dict[UUID, SchemalessError] = {}
        self._port = store_of(self._note)
        self._known: set[UUID] = set()

    def carry(self, row_keys: Collection[UUID]) -> dict[UUID, SchemalessError]:
        """Put the legacy ids that Schemaless lacks; the rows of which that failed, and why.

        At the epoch of now: while a hand-over closes the shards, callers wait for what is put here.
        """
        self._refusals.clear()
        lacking = self._lacking([row_key for row_key in row_keys if row_key not in self._known])
        if not lacking:
            return {}
        epoch = self._authority().epoch
        given = self._legacy_ids(lacking)
        cells = [
            Cell(row_key, LEGACY_ID, LEGACY_ID_REF_KEY, legacy_id_body(number)) for row_key, number in given.items()
        ]
        put = {cell.row_key for cell in self._port.copy(cells, epoch)} if cells else set()
        metrics.legacy_ids_given(len(put))
        self._remember(put)
        late = Unavailable("Schemaless did not take the legacy id of the row.", hint="It is put again.")
        return {row_key: self._refusals.get(row_key, late) for row_key in given if row_key not in put}

    def _lacking(self, row_keys: Collection[UUID]) -> list[UUID]:
        if not row_keys:
            return []
        found = self._store.get_cells([CellKey(row_key, LEGACY_ID, LEGACY_ID_REF_KEY) for row_key in row_keys])
        self._remember({cell.row_key for cell in found if cell is not None})
        return [row_key for row_key, cell in zip(row_keys, found, strict=True) if cell is None]

    def _remember(self, row_keys: Collection[UUID]) -> None:
        if len(self._known) > KNOWN_MAX:
            self._known.clear()
        self._known.update(row_keys)

    def _note(self, cell: Cell, error: SchemalessError) -> None:
        self._refusals[cell.row_key] = error
