"""`StagedStore`: the store as a transactional trigger sees it. Puts of its row wait for the offset's commit.

The function reads its own staged cells, as it would had they been put. Whatever concerns other rows goes to the store
itself, at once. Index queries and the log do not show staged cells.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Protocol, Self
from uuid import UUID

from schemaless_core.cell.answers import (
    ANY,
    Bucket,
    Condition,
    IndexPage,
    Location,
    PutResult,
    PutStatus,
    RowPage,
    Scalar,
    ShardPage,
)
from schemaless_core.cell.canonical import Json
from schemaless_core.cell.cell import REF_KEY_MAX, Cell, CellKey, ColumnKey, checked_bytes, no_free_ref_key
from schemaless_core.cell.children import NO_CHILDREN, Children
from schemaless_core.cell.page_bytes import is_last
from schemaless_core.cell.put_errors import BatchFailed, CellConflict
from schemaless_core.errors import InvalidRequest, SchemalessError
from schemaless_core.store import CellStore

#: Bodies that one call may put under its row.
STAGED_BYTES_MAX = 1024 * 1024


class StagingRules(Protocol):
    """What the store that functions are handed has to say of puts that never pass it."""

    def check(self, store: CellStore, cell: Cell) -> None:
        """Raise unless a new cell may be put; `store` shows what is staged already."""
        ...

    def next_ref_key(self, column_name: str, latest: Cell | None) -> int:
        """The ref key of what is appended after a column's latest cell."""
        ...

    def wrote(self, row_keys: Collection[UUID]) -> None:
        """These rows were written, or may have been."""
        ...

    def authority_epoch(self) -> int | None:
        """At which they hold: the store takes no cell by them at another one. None: at any."""
        ...


class NoRules:
    """The store that functions are handed is the one that takes the cells."""

    def check(self, store: CellStore, cell: Cell) -> None:
        """Every cell may be put."""

    def next_ref_key(self, column_name: str, latest: Cell | None) -> int:
        if latest is not None and latest.ref_key == REF_KEY_MAX:
            raise no_free_ref_key(column_name)
        return 1 if latest is None else latest.ref_key + 1

    def wrote(self, row_keys: Collection[UUID]) -> None:
        """Nothing to do: no cache of rows stands in front of the store."""

    def authority_epoch(self) -> int | None:
        return None


class StagedStore:
    """One row's puts, kept until they are committed; everything else is the store's."""

    def __init__(
        self,
        store: CellStore,
        row_key: UUID,
        max_body_bytes: int,
        staged: list[Cell] | None = None,
        rules: StagingRules | None = None,
    ) -> None:
        self._store = store
        self._row_key = row_key
        self._max_body_bytes = max_body_bytes
        self._rules = rules or NoRules()
        #: In the order they were put.
        self.staged: list[Cell] = [] if staged is None else staged

    def put_cell(
        self, row_key: UUID, column_name: str, ref_key: int, body: Json, *, expect_latest: int | None | Any = ANY
    ) -> PutResult:
        if row_key != self._row_key:
            return self._store.put_cell(row_key, column_name, ref_key, body, expect_latest=expect_latest)
        if expect_latest is not ANY:
            raise InvalidRequest(
                "A put that joins the offset's commit cannot expect a latest cell.",
                hint="Read it, and put the next ref key: another body under it is a conflict.",
            )
        return self._stage(Cell(row_key, column_name, ref_key, body))

    def put_cells(self, cells: Sequence[Cell]) -> list[PutResult]:
        results: list[PutResult | SchemalessError] = []
        for cell in cells:
            try:
                results.append(self.put_cell(cell.row_key, cell.column_name, cell.ref_key, cell.body))
            except SchemalessError as error:
                results.append(error)
        stored = [result for result in results if isinstance(result, PutResult)]
        if len(stored) < len(results):
            raise BatchFailed(results)
        return stored

    def append_cell(self, row_key: UUID, column_name: str, body: Json) -> PutResult:
        if row_key != self._row_key:
            return self._store.append_cell(row_key, column_name, body)
        latest = self.get_cell_latest(row_key, column_name)
        return self._stage(Cell(row_key, column_name, self._rules.next_ref_key(column_name, latest), body))

    def get_cell(self, row_key: UUID, column_name: str, ref_key: int) -> Cell | None:
        for cell in self.staged:
            if cell.key == (row_key, column_name, ref_key):
                return cell
        return self._store.get_cell(row_key, column_name, ref_key)

    def get_cell_latest(self, row_key: UUID, column_name: str) -> Cell | None:
        return _later(self._store.get_cell_latest(row_key, column_name), self._staged_of(row_key, column_name))

    def get_cells(self, keys: Sequence[CellKey]) -> list[Cell | None]:
        return [self.get_cell(*key) for key in keys] if self.staged else self._store.get_cells(keys)

    def get_cells_latest(self, columns: Sequence[ColumnKey]) -> list[Cell | None]:
        found = self._store.get_cells_latest(columns)
        return [_later(cell, self._staged_of(*column)) for cell, column in zip(found, columns, strict=True)]

    def get_row(self, row_key: UUID, columns: Collection[str] | None = None) -> dict[str, Cell]:
        row = self._store.get_row(row_key, columns)
        for cell in self.staged:
            if row_key == self._row_key and (columns is None or cell.column_name in columns):
                later = _later(row.get(cell.column_name), [cell])
                assert later is not None  # at least the staged one
                row[cell.column_name] = later
        return row

    def get_history(
        self, row_key: UUID, column_name: str, *, before: int | None = None, limit: int = 100
    ) -> list[Cell]:
        found = self._store.get_history(row_key, column_name, before=before, limit=limit)
        staged = [cell for cell in self._staged_of(row_key, column_name) if before is None or cell.ref_key < before]
        if len(found) < limit and not is_last(found, limit):  # what is staged below it belongs to the next page
            staged = [cell for cell in staged if cell.ref_key > found[-1].ref_key]
        return sorted([*found, *staged], key=lambda cell: -cell.ref_key)[:limit]

    def query_index(
        self,
        index: str,
        shard_value: Scalar,
        where: Sequence[Condition] = (),
        *,
        fields: Sequence[str] | None = None,
        columns: Sequence[str] | Literal["*"] | None = None,
        order_by: str | None = None,
        descending: bool = False,
        limit: int = 100,
        cursor: str | None = None,
        consistency: Literal["fast", "verified"] = "fast",
    ) -> IndexPage:
        return self._store.query_index(
            index,
            shard_value,
            where,
            fields=fields,
            columns=columns,
            order_by=order_by,
            descending=descending,
            limit=limit,
            cursor=cursor,
            consistency=consistency,
        )

    def get_cells_for_shard(self, shard: int, location: Location, limit: int) -> ShardPage:
        return self._store.get_cells_for_shard(shard, location, limit)

    def get_cells_for_shards(self, locations: Mapping[int, Location], limit: int) -> dict[int, ShardPage]:
        return self._store.get_cells_for_shards(locations, limit)

    def scan_rows(
        self, shard: int, after: UUID | None = None, limit: int = 1000, columns: Collection[str] | None = None
    ) -> RowPage:
        return self._store.scan_rows(shard, after, limit, columns)

    def checksum(
        self, shard: int, columns: Collection[str] | None = None, children: Children = NO_CHILDREN
    ) -> list[Bucket]:
        return self._store.checksum(shard, columns, children)

    def shard_of(self, row_key: UUID) -> int:
        return self._store.shard_of(row_key)

    def using(self, **habits: Any) -> Self:
        """The same staged cells over a store with other habits."""
        return type(self)(self._store.using(**habits), self._row_key, self._max_body_bytes, self.staged, self._rules)

    def close(self) -> None:
        """Nothing: the store is its worker's."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _stage(self, cell: Cell) -> PutResult:
        """Keep a cell for the commit, unless it is stored or staged already."""
        body = checked_bytes(cell, self._max_body_bytes)
        there = self.get_cell(*cell.key)
        shard = self._store.shard_of(cell.row_key)
        if there is None:
            self._rules.check(self, cell)
            self._check_room(len(body))
            self.staged.append(cell)
            return PutResult(PutStatus.CREATED, False, shard, cell.ref_key, 0, None)
        if checked_bytes(there, self._max_body_bytes) != body:
            raise CellConflict(cell, there)
        return PutResult(PutStatus.EXISTS, there.added_id is not None, shard, cell.ref_key, 0, there.added_id)

    def _check_room(self, body_bytes: int) -> None:
        """All of it is one packet."""
        staged = sum(len(checked_bytes(cell, self._max_body_bytes)) for cell in self.staged)
        if staged and staged + body_bytes > STAGED_BYTES_MAX:
            raise InvalidRequest(
                f"What one call puts with the offset is over {STAGED_BYTES_MAX:,} bytes.",
                hint="Put less per call, or under other row keys, which do not join.",
            )

    def _staged_of(self, row_key: UUID, column_name: str) -> list[Cell]:
        return [cell for cell in self.staged if (cell.row_key, cell.column_name) == (row_key, column_name)]


def _later(stored: Cell | None, staged: Sequence[Cell]) -> Cell | None:
    """The one with the highest ref key."""
    return max([*staged, *([stored] if stored is not None else [])], key=lambda cell: cell.ref_key, default=None)
