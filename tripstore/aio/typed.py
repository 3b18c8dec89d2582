"""`AsyncTypedColumn` and `AsyncTypedIndex`: typed rows and entries, awaited."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, Literal, ParamSpec, TypeVar, overload
from uuid import UUID

from schemaless_core.aio.store import AsyncCellStore
from schemaless_core.cell.answers import ANY, Condition, PutResult, Scalar
from tripstore.typed.column import R, TypedColumn
from tripstore.typed.entry import S, TypedEntry
from tripstore.typed.index import E, TypedIndex
from tripstore.typed.page import Deleted, TypedPage

C = TypeVar("C")
P = ParamSpec("P")
T = TypeVar("T")


@overload
def typed(store: AsyncCellStore[Any], kind: type[R]) -> AsyncTypedColumn[R]: ...
@overload
def typed(store: AsyncCellStore[Any], kind: type[E]) -> AsyncTypedIndex[E]: ...
def typed(store: AsyncCellStore[Any], kind: Any) -> Any:
    """Return the calls of a store for a class of `tripstore models`, with the store's habits."""
    return AsyncTypedIndex(store, kind) if issubclass(kind, TypedEntry) else AsyncTypedColumn(store, kind)


class _TypedCalls(Generic[C]):
    """The calls for one class, each on a thread of the store."""

    def __init__(self, store: AsyncCellStore[Any], calls: C) -> None:
        self._threads = store.threads
        self._calls = calls

    async def _read(self, call: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        return await self._threads.read(partial(call, *arguments, **named))

    async def _write(self, call: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        return await self._threads.write(partial(call, *arguments, **named))


class AsyncTypedColumn(_TypedCalls[TypedColumn[R]]):
    """What `TypedColumn` is, awaited: its methods say what each does."""

    def __init__(self, store: AsyncCellStore[Any], kind: type[R]) -> None:
        super().__init__(store, TypedColumn(store.sync, kind))

    async def latest(self, row_key: UUID) -> R | None:
        """Return the row's latest version; None: there is none, or it was deleted."""
        return await self._read(self._calls.latest, row_key)

    async def latest_of(self, row_keys: Sequence[UUID]) -> list[R | None]:
        """The same of many rows, in order."""
        return await self._read(self._calls.latest_of, row_keys)

    async def at(self, row_key: UUID, ref_key: int) -> R | None:
        """Return one version; None: there is none under this key, or it is a tombstone."""
        return await self._read(self._calls.at, row_key, ref_key)

    async def history(self, row_key: UUID, *, before: int | None = None, limit: int = 100) -> list[R | Deleted]:
        """Return versions and deletions, newest first, with ref keys below `before`."""
        return await self._read(self._calls.history, row_key, before=before, limit=limit)

    async def children(self, row_key: UUID) -> list[R]:
        """Return the latest version of each child row by number, without deleted ones."""
        return await self._read(self._calls.children, row_key)

    async def put(self, row: R, *, expect_latest: int | None | Any = ANY) -> PutResult:
        """Store a row under its ref key, as `put_cell` does."""
        return await self._write(self._calls.put, row, expect_latest=expect_latest)

    async def put_many(self, rows: Sequence[R]) -> list[PutResult]:
        """Store many rows, as `put_cells` does: not atomic."""
        return await self._write(self._calls.put_many, rows)

    async def delete(self, row_key: UUID, ref_key: int, *, expect_latest: int | None | Any = ANY) -> PutResult:
        """Put a tombstone under this ref key."""
        return await self._write(self._calls.delete, row_key, ref_key, expect_latest=expect_latest)

    async def query(
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
        """Return the latest version of each row that an index finds, in its order."""
        return await self._read(
            self._calls.query,
            index,
            shard_value,
            where,
            order_by=order_by,
            descending=descending,
            limit=limit,
            cursor=cursor,
            consistency=consistency,
        )


class AsyncTypedIndex(_TypedCalls[TypedIndex[E]]):
    """What `TypedIndex` is, awaited."""

    def __init__(self, store: AsyncCellStore[Any], kind: type[E]) -> None:
        super().__init__(store, TypedIndex(store.sync, kind))

    async def query(
        self,
        shard_value: Scalar,
        where: Sequence[Condition] = (),
        *,
        order_by: str | None = None,
        descending: bool = False,
        limit: int = 100,
        cursor: str | None = None,
        consistency: Literal["fast", "verified"] = "fast",
    ) -> TypedPage[E]:
        """Return the entries under one shard value, as `query_index` does."""
        return await self._read(
            self._calls.query,
            shard_value,
            where,
            order_by=order_by,
            descending=descending,
            limit=limit,
            cursor=cursor,
            consistency=consistency,
        )
