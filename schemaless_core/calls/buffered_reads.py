"""`BufferedLookups`: reads by key that include what waits in buffers.

Buffers are asked first: what leaves them in between is in its shard by then. A stored cell stands before a buffered one
of the same key. A cell that waits has no added id and no time. Where the shard does not answer, a buffered cell that
was asked for by its key is an answer; what the latest is, buffers alone cannot say.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from uuid import UUID

from schemaless_core.buffers.buffers import Buffers
from schemaless_core.calls.lookups import Lookups
from schemaless_core.cell.canonical import from_canonical
from schemaless_core.cell.cell import Cell, CellKey, ColumnKey
from schemaless_core.cell.requests import listed_columns, listed_keys
from schemaless_core.deadline import Deadline
from schemaless_core.errors import Unavailable


class BufferedLookups:
    """The reads of a store that includes buffers."""

    def __init__(self, lookups: Lookups, buffers: Buffers, seconds: float) -> None:
        self._lookups = lookups
        self._buffers = buffers
        self._seconds = seconds

    def cell(self, row_key: UUID, column_name: str, ref_key: int) -> Cell | None:
        waiting = self._waiting([row_key]).get(CellKey(row_key, column_name, ref_key))
        try:
            return self._lookups.cell(row_key, column_name, ref_key) or waiting
        except Unavailable:
            if waiting is None:
                raise
            return waiting

    def latest(self, row_key: UUID, column_name: str) -> Cell | None:
        waiting = _latest(self._waiting([row_key]).values())
        return _later(self._lookups.latest(row_key, column_name), waiting.get(ColumnKey(row_key, column_name)))

    def cells(self, keys: Sequence[CellKey]) -> list[Cell | None]:
        keys = [CellKey(*key) for key in listed_keys(keys)]
        waiting = self._waiting([key.row_key for key in keys])
        try:
            stored = dict(zip(keys, self._lookups.cells(keys), strict=True))
        except Unavailable:
            others = [key for key in keys if key not in waiting]
            if len(others) == len(keys):
                raise
            stored = dict(zip(others, self._lookups.cells(others), strict=True)) if others else {}
        return [stored.get(key) or waiting.get(key) for key in keys]

    def latest_cells(self, columns: Sequence[ColumnKey]) -> list[Cell | None]:
        columns = listed_columns(columns)
        waiting = _latest(self._waiting([column[0] for column in columns]).values())
        found = self._lookups.latest_cells(columns)
        return [_later(cell, waiting.get(ColumnKey(*column))) for column, cell in zip(columns, found, strict=True)]

    def row(self, row_key: UUID, columns: Collection[str] | None) -> dict[str, Cell]:
        waiting = _latest(self._waiting([row_key]).values())
        row = dict(self._lookups.row(row_key, columns))
        for (_row_key, name), cell in waiting.items():
            if columns is None or name in columns:
                row[name] = _later(row.get(name), cell) or cell
        return row

    def history(self, row_key: UUID, column_name: str, before: int | None, limit: int) -> list[Cell]:
        waiting = self._waiting([row_key])
        cells = {cell.ref_key: cell for cell in waiting.values() if cell.column_name == column_name}
        cells = {ref_key: cell for ref_key, cell in cells.items() if before is None or ref_key < before}
        cells |= {cell.ref_key: cell for cell in self._lookups.history(row_key, column_name, before, limit)}
        return sorted(cells.values(), key=lambda cell: -cell.ref_key)[:limit]

    def _waiting(self, row_keys: Iterable[object]) -> dict[CellKey, Cell]:
        """What waits of these rows. Keys that are none are left to the shards' own checks."""
        wanted = [row_key.bytes for row_key in row_keys if isinstance(row_key, UUID)]
        found: dict[CellKey, Cell] = {}
        for each in self._buffers.of_rows(wanted, Deadline(self._seconds)) if wanted else ():
            new = each.cell
            cell = Cell(UUID(bytes=new.row_key), new.column_name.decode(), new.ref_key, from_canonical(new.body))
            found.setdefault(cell.key, cell)
        return found


def _latest(cells: Iterable[Cell]) -> dict[ColumnKey, Cell]:
    columns: defaultdict[ColumnKey, list[Cell]] = defaultdict(list)
    for cell in cells:
        columns[ColumnKey(cell.row_key, cell.column_name)].append(cell)
    return {column: max(found, key=lambda cell: cell.ref_key) for column, found in columns.items()}


def _later(stored: Cell | None, waiting: Cell | None) -> Cell | None:
    """The higher of the two, of equal ones the stored one."""
    if stored is None or waiting is None:
        return stored or waiting
    return waiting if waiting.ref_key > stored.ref_key else stored
