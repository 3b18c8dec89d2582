"""`BufferedLookups`: reads by key that include what waits in buffers.

Buffers are asked first: what leaves them in between is in its shard by then. A stored cell stands before a buffered one
of the same key. A cell that waits has no added id and no time. Where the shard does not answer, a buffered cell that
was asked for by its key is an answer; what the latest is, buffers alone cannot say.

A call has one deadline. Buffers have half of it at most, and the shards what is left.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from uuid import UUID

from schemaless_core.buffers.buffers import Buffers
from schemaless_core.calls.lookups import Lookups, to_cell
from schemaless_core.cell.canonical import from_canonical
from schemaless_core.cell.cell import Cell, CellKey, ColumnKey, check_column_name, check_key, check_row_key
from schemaless_core.cell.requests import check_limit, listed_columns, listed_keys, listed_names
from schemaless_core.cell.sharding import shard_of
from schemaless_core.cell.stored import NewCell
from schemaless_core.deadline import Deadline, InAll
from schemaless_core.errors import Unavailable


class BufferedLookups:
    """The reads of a store that includes buffers."""

    def __init__(self, lookups: Lookups, buffers: Buffers, seconds: float, shards: int) -> None:
        self._lookups = lookups
        self._buffers = buffers
        self._seconds = seconds
        self._shards = shards

    def cell(self, row_key: UUID, column_name: str, ref_key: int) -> Cell | None:
        check_key(row_key, column_name, ref_key)
        key, deadline = CellKey(row_key, column_name, ref_key), self._share()
        waiting = _by_key(self._buffers.find([_stored(key)], deadline)).get(key)
        try:
            return self._rest(deadline).cell(row_key, column_name, ref_key) or waiting
        except Unavailable:
            if waiting is None:
                raise
            return waiting

    def latest(self, row_key: UUID, column_name: str) -> Cell | None:
        check_row_key(row_key)
        check_column_name(column_name)
        deadline = self._share()
        waiting = _latest(self._buffers.latest([row_key.bytes], deadline))
        stored = self._rest(deadline).latest(row_key, column_name)
        return _later(stored, waiting.get(ColumnKey(row_key, column_name)))

    def cells(self, keys: Sequence[CellKey]) -> list[Cell | None]:
        keys, deadline = [CellKey(*key) for key in listed_keys(keys)], self._share()
        if not keys:
            return []
        waiting = _by_key(self._buffers.find([_stored(key) for key in keys], deadline))
        stored, silent = self._rest(deadline).cells_known(keys)
        for key in keys:
            if key not in waiting and (silence := silent.get(shard_of(key.row_key, self._shards))) is not None:
                raise silence
        return [stored.get(key) or waiting.get(key) for key in keys]

    def latest_cells(self, columns: Sequence[ColumnKey]) -> list[Cell | None]:
        columns, deadline = [ColumnKey(*column) for column in listed_columns(columns)], self._share()
        if not columns:
            return []
        waiting = _latest(self._buffers.latest([column.row_key.bytes for column in columns], deadline))
        found = self._rest(deadline).latest_cells(columns)
        return [_later(cell, waiting.get(column)) for column, cell in zip(columns, found, strict=True)]

    def row(self, row_key: UUID, columns: Collection[str] | None) -> dict[str, Cell]:
        check_row_key(row_key)
        wanted, deadline = listed_names(columns), self._share()
        waiting = _latest(self._buffers.latest([row_key.bytes], deadline))
        row = dict(self._rest(deadline).row(row_key, wanted))
        for (_row_key, name), cell in waiting.items():
            if wanted is None or name in wanted:
                row[name] = _later(row.get(name), cell) or cell
        return row

    def history(self, row_key: UUID, column_name: str, before: int | None, limit: int) -> list[Cell]:
        check_key(row_key, column_name, 0 if before is None else before)
        check_limit(limit)
        deadline, lowest = self._share(), list[int]()
        cells = dict[int, Cell]()
        for page in self._buffers.history(row_key.bytes, column_name.encode(), before, limit, deadline):
            cells = {each.ref_key: _cell(each) for each in page.cells} | cells
            lowest += [] if page.cut_at is None else [page.cut_at]
        stored = self._rest(deadline).history_page(row_key, column_name, before, limit)
        cells |= {each.ref_key: to_cell(each) for each in stored.cells}
        lowest += [stored.cells[-1].ref_key] if stored.is_cut else []
        # Below the end of a page that was cut there may be cells that this one lacks: the caller goes on from there.
        found = [cell for cell in cells.values() if all(cell.ref_key >= end for end in lowest)]
        return sorted(found, key=lambda cell: -cell.ref_key)[:limit]

    def _share(self) -> Deadline:
        """What buffers may take of a call."""
        half = self._seconds / 2
        return Deadline(InAll(half) if isinstance(self._seconds, InAll) else half)

    def _rest(self, share: Deadline) -> Lookups:
        """The shards' part of the call: their half, and what buffers left of theirs."""
        seconds = self._seconds / 2 + max(share.remaining_seconds(), 0.0)
        return self._lookups.within(InAll(seconds) if share.is_in_all else seconds)


def _stored(key: CellKey) -> tuple[bytes, bytes, int]:
    return key.row_key.bytes, key.column_name.encode(), key.ref_key


def _cell(new: NewCell) -> Cell:
    return Cell(UUID(bytes=new.row_key), new.column_name.decode(), new.ref_key, from_canonical(new.body))


def _by_key(found: Iterable[NewCell]) -> dict[CellKey, Cell]:
    """Of two buffers that keep one key the first counts."""
    cells = dict[CellKey, Cell]()
    for new in found:
        cell = _cell(new)
        cells.setdefault(cell.key, cell)
    return cells


def _latest(found: Iterable[NewCell]) -> dict[ColumnKey, Cell]:
    """The highest of each column, of all buffers."""
    columns = dict[ColumnKey, Cell]()
    for cell in _by_key(found).values():
        column = ColumnKey(cell.row_key, cell.column_name)
        if column not in columns or columns[column].ref_key < cell.ref_key:
            columns[column] = cell
    return columns


def _later(stored: Cell | None, waiting: Cell | None) -> Cell | None:
    """The higher of the two, of equal ones the stored one."""
    if stored is None or waiting is None:
        return stored or waiting
    return waiting if waiting.ref_key > stored.ref_key else stored
