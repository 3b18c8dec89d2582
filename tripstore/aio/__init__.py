"""tripstore for asyncio: `async with tripstore.aio.connect("tripstore.yaml") as store:`, and its calls are awaited."""

from schemaless_core.aio import ThreadsBusy
from tripstore.aio.connecting import connect
from tripstore.aio.store import AsyncTripStore
from tripstore.aio.typed import AsyncTypedColumn, AsyncTypedIndex, typed

__all__ = ["AsyncTripStore", "AsyncTypedColumn", "AsyncTypedIndex", "ThreadsBusy", "connect", "typed"]
