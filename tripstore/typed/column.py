"""`TypedColumn`: the calls of a store for one column, whose cells are typed rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Generic, Literal, TypeVar
from uuid import UUID

from schemaless_core.cell.answers import ANY, Condition, PutResult
from schemaless_core.cell.cell import Cell, ColumnKey
from schemaless_core.cell.children import latest_of
from schemaless_core.errors import InvalidRequest
from schemaless_core.store import CellStore
from tripstore.typed.entry import S, TypedEntry
from tripstore.typed.page import Deleted, TypedPage
from tripstore.typed.row import TypedRow

R = TypeVar("R", bound=TypedRow)


class TypedColumn(Generic[R]):
    """What `store.typed(TripBase)` gives. Each method is one call of the store, with its habits."""

    def __init__(self, store: CellStore, kind: type[R]) -> None:
        self._store = store
        self._kind = kind
        self._name = kind.column_name

    def latest(self, row_key: UUID) -> R | None:
        """Return the row's latest version; None: there is none, or it was deleted."""
        return self._row(self._store.get_cell_latest(row_key, self._name))

    def latest_of(self, row_keys: Sequence[UUID]) -> list[R | None]:
        """The same of many rows, in order."""
        columns = [ColumnKey(row_key, self._name) for row_key in row_keys]
        return [self._row(cell) for cell in self._store.get_cells_latest(columns)]

    def at(self, row_key: UUID, ref_key: int) -> R | None:
        """Return one version; None: there is none under this key, or it is a tombstone."""
        return self._row(self._store.get_cell(row_key, self._name, ref_key))

    def history(self, row_key: UUID, *, before: int | None = None, limit: int = 100) -> list[R | Deleted]:
        """Return versions and deletions, newest first, with ref keys below `before`. A page may be shorter."""
        found = self._store.get_history(row_key, self._name, before=before, limit=limit)
        return [self._version(cell) for cell in found]

    def children(self, row_key: UUID) -> list[R]:
        """Return the latest version of each child row by number, without deleted ones. It reads the whole history."""
        if self._kind.child_bits is None:
            raise InvalidRequest(f"{self._name} holds one row, and no children.", hint="Call latest().")
        cells = {cell.ref_key: cell for cell in self._all_of(row_key)}
        tombstones = [ref_key for ref_key, cell in cells.items() if cell.body is None]
        latest = sorted(latest_of(cells, tombstones, self._kind.child_bits) - set(tombstones))
        return [self._kind.from_cell(cells[ref_key]) for ref_key in latest]

    def put(self, row: R, *, expect_latest: int | None | Any = ANY) -> PutResult:
        """Store a row under its ref key, as `put_cell` does."""
        cell = self._cell(row)
        return self._store.put_cell(*cell.key, cell.body, expect_latest=expect_latest)

    def put_many(self, rows: Sequence[R]) -> list[PutResult]:
        """Store many rows, as `put_cells` does: not atomic."""
        return self._store.put_cells([self._cell(row) for row in rows])

    def delete(self, row_key: UUID, ref_key: int, *, expect_latest: int | None | Any = ANY) -> PutResult:
        """Put a tombstone under this ref key; the versions below it stay in the history."""
        return self._store.put_cell(row_key, self._name, ref_key, None, expect_latest=expect_latest)

    def query(
        self,
        index: type[TypedEntry[S]],
        shard_value: S,
        where: Sequence[Condition] = (),
        *,
        order_by: str | None = None,
        descending: bool = False,
        limit: int = 100,
        cursor: str | None = None,
        consistency: Literal["fast", "verified"] = "fast",
    ) -> TypedPage[R]:
        """Return the latest version of each row that an index finds, in its order; a row without one is left out."""
        found = self._store.query_index(
            index.index_name,
            shard_value,
            where,
            columns=[self._name],
            order_by=order_by,
            descending=descending,
            limit=limit,
            cursor=cursor,
            consistency=consistency,
        )
        rows = [self._row((entry.cells or {}).get(self._name)) for entry in found.entries]
        return TypedPage([row for row in rows if row is not None], found.cursor)

    def _row(self, cell: Cell | None) -> R | None:
        return None if cell is None or cell.is_tombstone else self._kind.from_cell(cell)

    def _version(self, cell: Cell) -> R | Deleted:
        return self._row(cell) or Deleted(cell.row_key, cell.ref_key, cell.created_at)

    def _cell(self, row: R) -> Cell:
        if not isinstance(row, self._kind):
            hint = f"Put it by store.typed({type(row).__name__})."
            raise InvalidRequest(f"A {type(row).__name__} is no {self._kind.__name__}.", hint=hint)
        return row.to_cell()

    def _all_of(self, row_key: UUID) -> Iterator[Cell]:
        """The whole history, page by page."""
        before: int | None = None
        while page := self._store.get_history(row_key, self._name, before=before):
            yield from page
            before = page[-1].ref_key
