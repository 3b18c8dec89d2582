"""`IdCalls`: legacy ids and row keys at the authority, in every phase: Postgres knows them, and so does an index."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from schemaless_core.cell import CellKey, check_row_key
from schemaless_core.errors import InvalidRequest, shown
from schemaless_core.store import CellStore
from tripstore.backends.postgres.backend import PostgresBackend
from tripstore.backends.postgres.ids.ids import ID_MAX, ID_MIN, LEGACY_ID_REF_KEY
from tripstore.backends.postgres.ids.index import ID_FIELD, LEGACY_ID_INDEX
from tripstore.backends.postgres.layout.layout import LEGACY_ID
from tripstore.facade.calls import Calls
from tripstore.facade.using import Using


class IdCalls:
    """Of one process."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def resolve_ids(self, numbers: Collection[int], using: Using) -> dict[int, UUID]:
        for number in numbers:
            if type(number) is not int or not ID_MIN <= number <= ID_MAX:
                raise InvalidRequest(f"{shown(number)} is no legacy id.", hint="Give an integer of 64 bits.")
        return self._calls.ask("resolve_ids", lambda store: _resolved(using(store), numbers), using.deadline)

    def legacy_ids(self, row_keys: Collection[UUID], using: Using) -> dict[UUID, int]:
        for row_key in row_keys:
            check_row_key(row_key)
        return self._calls.ask("legacy_ids", lambda store: _ids(using(store), row_keys), using.deadline)


def _resolved(store: CellStore, numbers: Collection[int]) -> dict[int, UUID]:
    if isinstance(store, PostgresBackend):
        return store.resolve_ids(numbers)
    found: dict[int, UUID] = {}
    for number in numbers:
        # A pair never changes, so an entry is right; one that is not there yet may be in the log above it.
        page = store.query_index(LEGACY_ID_INDEX, number, limit=1)
        page = page if page.entries else store.query_index(LEGACY_ID_INDEX, number, limit=1, consistency="verified")
        if page.entries:
            found[number] = page.entries[0].row_key
    return found


def _ids(store: CellStore, row_keys: Collection[UUID]) -> dict[UUID, int]:
    if isinstance(store, PostgresBackend):
        return store.legacy_ids(row_keys)
    cells = store.get_cells([CellKey(row_key, LEGACY_ID, LEGACY_ID_REF_KEY) for row_key in row_keys])
    return {cell.row_key: cell.body[ID_FIELD] for cell in cells if cell is not None and isinstance(cell.body, dict)}  # type: ignore[misc]  # such a body holds an integer
