"""`FoundBody`: a row that is there; and where its cell is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol
from uuid import UUID

from schemaless_core.cell.canonical import Json
from schemaless_core.cell.cell import Cell
from schemaless_core.store import CellStore

#: Postgres takes '7' for 7, and a service may have it from a URL. None is NULL, which no key is.
RowId = int | str | None


class RewrittenStore(CellStore, Protocol):
    """A store that knows legacy ids: `TripStore`."""

    def resolve_id(self, number: int) -> UUID | None: ...

    def legacy_id(self, row_key: UUID) -> int | None: ...

    def legacy_ids(self, row_keys: Iterable[UUID]) -> dict[UUID, int]: ...


class FoundBody(dict[str, Any]):
    """The body of a row that is there. It is true even when it is empty, as an object of a model is."""

    def __init__(
        self, cell: Cell, body: Mapping[str, Json], number: int | None = None, bits: int | None = None
    ) -> None:
        super().__init__(body)
        self.row_key = cell.row_key
        self.column_name = cell.column_name
        self.ref_key = cell.ref_key  #: Of the version that was found.
        self.number = number  #: The legacy id; of a child row, its number.
        self.bits = bits  #: Of a child row.
        self.children: dict[str, list[FoundBody]] = {}  #: Those that were asked for, by column.

    def __bool__(self) -> bool:
        return True


def body_of(cell: Cell | None) -> FoundBody | None:
    return FoundBody(cell, cell.body) if cell is not None and isinstance(cell.body, dict) else None


def row_key_of(store: RewrittenStore, number: RowId) -> UUID | None:
    """Postgres takes `'7'` for 7, too, and a service may have it from a URL."""
    return None if number is None else store.resolve_id(int(number) if isinstance(number, str) else number)


def child_cell(store: CellStore, row_key: UUID, column_name: str, number: int, bits: int) -> Cell | None:
    """The latest version of a child row: versions lie side by side, so it is the one below the next number."""
    for cell in store.get_history(row_key, column_name, before=(number + 1) << bits, limit=1):
        return cell if cell.ref_key >> bits == number else None
    return None
