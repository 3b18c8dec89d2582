"""`schemaless_core.aio.Datastore`: a datastore whose calls are awaited."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, Self, TypeVar
from uuid import UUID

from schemaless_core.aio.store import AsyncCellStore
from schemaless_core.aio.threads import WAIT_SECONDS, CallThreads, limits_of
from schemaless_core.cell.answers import Position, PutResult, Scalar
from schemaless_core.cell.cell import Cell
from schemaless_core.cell.standing import ShardStatus
from schemaless_core.datastore import Datastore
from schemaless_core.servers.schema import SchemaPlan

V = TypeVar("V", bound=Scalar)


class AsyncDatastore(AsyncCellStore[Datastore]):
    """Cells on MySQL, MariaDB or SQLite, for asyncio. An async context manager; any number of event loops may share it.

    What is not awaited, such as triggers, indexes and fsck, is at the store below: `store.sync.triggers`.
    """

    @classmethod
    def open(
        cls,
        source: str | os.PathLike[str] | Mapping[str, Any],
        *,
        threads: int | None = None,
        wait_seconds: float = WAIT_SECONDS,
    ) -> Self:
        """Open a datastore from a configuration file or mapping. It connects when it is first used.

        `threads`: how many calls are made at once; as many as the pool has connections, unless said. `wait_seconds`:
        how long a call waits for one of them until it raises `ThreadsBusy`.
        """
        store = Datastore.open(source)
        return cls(store, CallThreads(limits_of([store.config.pool], threads, wait_seconds)))

    async def create_schema(self, *, status: ShardStatus = ShardStatus.RW) -> SchemaPlan:
        """Create whatever is missing of the shards, the control database and the indexes. Idempotent, resumable."""
        return await self.threads.write(partial(self._store.create_schema, status=status))

    async def put_together(self, cells: Sequence[Cell], seen: Position) -> list[PutResult] | None:
        """Store cells of one row by one commit, all or none; None: read the row again."""
        return await self.threads.write(partial(self._store.put_together, cells, seen))

    async def end_of_log(self, shard: int) -> Position:
        """Return where a shard's log ends now, as its primary says."""
        return await self.threads.read(partial(self._store.end_of_log, shard))

    async def first_rows(
        self, index: str, shard_values: Iterable[V], consistency: Literal["fast", "verified"] = "fast"
    ) -> dict[V, UUID]:
        """Return the first row of each of many shard values, by row key; a value that no row has is left out."""
        return await self.threads.read(partial(self._store.first_rows, index, shard_values, consistency))
