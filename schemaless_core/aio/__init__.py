"""The cell store for asyncio. `Datastore.open` is that of `schemaless_core`; its calls are awaited."""

from schemaless_core.aio.datastore import AsyncDatastore as Datastore
from schemaless_core.aio.errors import ThreadsBusy
from schemaless_core.aio.store import AsyncCellStore
from schemaless_core.aio.threads import CallThreads, ThreadLimits

__all__ = ["AsyncCellStore", "Datastore", "ThreadLimits", "CallThreads", "ThreadsBusy"]
