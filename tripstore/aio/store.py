"""`AsyncTripStore`: the API over both databases, awaited."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Self, overload
from uuid import UUID

from schemaless_core.aio.store import AsyncCellStore
from tripstore.store import TripStore

if TYPE_CHECKING:
    from tripstore.aio.typed import AsyncTypedColumn, AsyncTypedIndex
    from tripstore.typed.column import R
    from tripstore.typed.index import E


class AsyncTripStore(AsyncCellStore[TripStore]):
    """What `tripstore.aio.connect` gives. An async context manager; any number of event loops may share it."""

    async def resolve_id(self, number: int) -> UUID | None:
        """The row key of a legacy id, in every phase; None: no row ever had it."""
        return await self.threads.read(partial(self._store.resolve_id, number))

    async def resolve_ids(self, numbers: Iterable[int]) -> dict[int, UUID]:
        """The row keys of many legacy ids; what has none is left out."""
        return await self.threads.read(partial(self._store.resolve_ids, numbers))

    async def legacy_id(self, row_key: UUID) -> int | None:
        """The legacy id of a row key; None: it never had one."""
        return await self.threads.read(partial(self._store.legacy_id, row_key))

    async def legacy_ids(self, row_keys: Iterable[UUID]) -> dict[UUID, int]:
        """The legacy ids of many row keys; what has none is left out."""
        return await self.threads.read(partial(self._store.legacy_ids, row_keys))

    @overload
    def typed(self, kind: type[R]) -> AsyncTypedColumn[R]: ...
    @overload
    def typed(self, kind: type[E]) -> AsyncTypedIndex[E]: ...
    def typed(self, kind: type[R] | type[E]) -> AsyncTypedColumn[R] | AsyncTypedIndex[E]:
        """Return the calls for a class that `tripstore models` wrote: of a column's rows, or of an index' entries."""
        from tripstore.aio.typed import typed  # as the store that is not awaited does

        return typed(self, kind)

    def at_authority(self) -> Self:
        """Return the same store without cohorts, for code that acts upon what it reads."""
        return self._with(self._store.at_authority())
