"""`AsyncCellStore`: the calls of a cell store, awaited. Each is one call of the store below it, on a thread."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Generic, Literal, Self, TypeVar
from uuid import UUID

from schemaless_core.aio.threads import CallThreads
from schemaless_core.cell.answers import (
    ANY,
    Bucket,
    Condition,
    IndexPage,
    Location,
    PutResult,
    RowPage,
    Scalar,
    ShardPage,
)
from schemaless_core.cell.canonical import Json
from schemaless_core.cell.cell import Cell, CellKey, ColumnKey
from schemaless_core.cell.children import NO_CHILDREN, Children
from schemaless_core.deadline import InAll
from schemaless_core.store import CellStore

C = TypeVar("C", bound=CellStore)


class AsyncCellStore(Generic[C]):
    """Any `CellStore`, for asyncio: what its calls mean and raise is what `CellStore` says.

    A task that is cancelled gets no answer, and nothing else changes: a call that waits for a thread is never made, one
    that was sent ends within its deadline. So a put that was cancelled may have happened, and may be repeated.
    """

    def __init__(self, store: C, threads: CallThreads) -> None:
        self._store = store
        self.threads = threads

    @property
    def sync(self) -> C:
        """The store below, for all that is not awaited. Its calls block the event loop: make them on a thread."""
        return self._store

    async def put_cell(
        self,
        row_key: UUID,
        column_name: str,
        ref_key: int,
        body: Json,
        *,
        expect_latest: int | None | Any = ANY,
    ) -> PutResult:
        """Store a cell. An equal cell answers EXISTS; another body under the key raises `CellConflict`."""
        put = partial(self._store.put_cell, row_key, column_name, ref_key, body, expect_latest=expect_latest)
        return await self.threads.write(put)

    async def put_cells(self, cells: Sequence[Cell]) -> list[PutResult]:
        """Store many cells, in order per shard; not atomic."""
        return await self.threads.write(partial(self._store.put_cells, cells))

    async def append_cell(self, row_key: UUID, column_name: str, body: Json) -> PutResult:
        """Store a body at the column's next free ref key. After a cancellation look at the history first."""
        return await self.threads.write(partial(self._store.append_cell, row_key, column_name, body))

    async def get_cell(self, row_key: UUID, column_name: str, ref_key: int) -> Cell | None:
        """Return the cell under this key, or None."""
        return await self.threads.read(partial(self._store.get_cell, row_key, column_name, ref_key))

    async def get_cell_latest(self, row_key: UUID, column_name: str) -> Cell | None:
        """Return the cell with the highest ref key, tombstones included, or None."""
        return await self.threads.read(partial(self._store.get_cell_latest, row_key, column_name))

    async def get_cells(self, keys: Sequence[CellKey]) -> list[Cell | None]:
        """Return one cell or None per key, in order."""
        return await self.threads.read(partial(self._store.get_cells, keys))

    async def get_cells_latest(self, columns: Sequence[ColumnKey]) -> list[Cell | None]:
        """Return the latest cell or None per column, in order."""
        return await self.threads.read(partial(self._store.get_cells_latest, columns))

    async def get_row(self, row_key: UUID, columns: Collection[str] | None = None) -> dict[str, Cell]:
        """Return the latest cell of each column of a row, tombstones included."""
        return await self.threads.read(partial(self._store.get_row, row_key, columns))

    async def get_history(
        self, row_key: UUID, column_name: str, *, before: int | None = None, limit: int = 100
    ) -> list[Cell]:
        """Return cells of a column, newest first, with ref keys below `before`."""
        get = partial(self._store.get_history, row_key, column_name, before=before, limit=limit)
        return await self.threads.read(get)

    async def query_index(
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
        """Return the entries of an index under one shard value."""
        query = partial(
            self._store.query_index,
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
        return await self.threads.read(query)

    async def get_cells_for_shard(self, shard: int, location: Location, limit: int) -> ShardPage:
        """Return cells of a shard's log after a location."""
        return await self.threads.read(partial(self._store.get_cells_for_shard, shard, location, limit))

    async def get_cells_for_shards(self, locations: Mapping[int, Location], limit: int) -> dict[int, ShardPage]:
        """Return a page per shard, each of at most `limit` cells."""
        return await self.threads.read(partial(self._store.get_cells_for_shards, locations, limit))

    async def scan_rows(
        self, shard: int, after: UUID | None = None, limit: int = 1000, columns: Collection[str] | None = None
    ) -> RowPage:
        """Return the latest cells of the rows of a shard in row-key order."""
        return await self.threads.read(partial(self._store.scan_rows, shard, after, limit, columns))

    async def checksum(
        self, shard: int, columns: Collection[str] | None = None, children: Children = NO_CHILDREN
    ) -> list[Bucket]:
        """Return count and sum of the latest cells per bucket, all buckets of the shard in order."""
        return await self.threads.read(partial(self._store.checksum, shard, columns, children))

    def shard_of(self, row_key: UUID) -> int:
        """Return the shard that holds a row. Asks no server."""
        return self._store.shard_of(row_key)

    def using(
        self,
        *,
        read: Literal["primary", "replica"] | None = None,
        deadline: float | None = None,
        include_buffered: bool | None = None,
        durability: Literal["single", "double"] | None = None,
    ) -> Self:
        """Return the same store with other habits, on the same threads; what is not named stays as it was.

        A deadline counts from when the call is made. By one of `InAll` seconds waiting for a thread counts, too.
        """
        asked = {"read": read, "deadline": deadline, "include_buffered": include_buffered, "durability": durability}
        habits: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
        other = self._with(self._store.using(**habits))
        if isinstance(deadline, InAll):
            other.threads = self.threads.waiting(deadline)
        return other

    async def close(self) -> None:
        """Close what is open, and refuse calls from now on. Stores made by `using` share it."""
        try:
            # Not on a thread of ours, which may all be at work.
            await asyncio.get_running_loop().run_in_executor(None, self._store.close)
        finally:
            self.threads.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} over {self._store!r}>"

    def _with(self, store: Any) -> Self:
        other = copy.copy(self)
        other._store = store
        return other
