"""`Awaiting`: an awaited store as a `CellStore`, so that the contract suite can ask it. Its event loop has a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from functools import cache
from typing import Any, TypeVar

from schemaless_core import CellStore, Datastore
from schemaless_core.aio import AsyncCellStore, CallThreads, ThreadLimits
from schemaless_core.aio import Datastore as AsyncDatastore
from tests.http_clients import OverHttp
from tripstore.aio import AsyncTripStore

T = TypeVar("T")

#: Of a store without a pool.
LIMITS = ThreadLimits(threads=4, writers=3, wait_seconds=20.0)


@cache
def loop() -> asyncio.AbstractEventLoop:
    """One for all stores of a run."""
    made = asyncio.new_event_loop()
    threading.Thread(target=made.run_forever, name="test-event-loop", daemon=True).start()
    return made


def awaited(call: Coroutine[Any, Any, T]) -> T:
    """The answer of a call, for a thread that is none of the loop."""
    return asyncio.run_coroutine_threadsafe(call, loop()).result()


def over(store: CellStore) -> Awaiting:
    """The store for asyncio above this one, as it is asked by the contract suite. What is no datastore is a facade."""
    above: type[AsyncCellStore[Any]] = AsyncDatastore if isinstance(store, Datastore) else AsyncTripStore
    return Awaiting(above(store, CallThreads(LIMITS)))


class Awaiting:
    """Every call goes through the event loop and back; what is no coroutine is called as it is."""

    def __init__(self, store: AsyncCellStore[Any]) -> None:
        self.store = store

    def using(self, **habits: Any) -> Awaiting:
        return Awaiting(self.store.using(**habits))

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.store, name)
        if not asyncio.iscoroutinefunction(method):
            return method
        return lambda *arguments, **options: awaited(method(*arguments, **options))

    def __enter__(self) -> Awaiting:
        return self

    def __exit__(self, *error: object) -> None:
        awaited(self.store.close())


def below(store: CellStore) -> CellStore:
    """The store that answers: what stands below one for asyncio, or the store itself."""
    asked: Any = store  # the two are cell stores by their methods alone
    if isinstance(asked, OverHttp):
        return asked.below
    answering: CellStore = asked.store.sync if isinstance(asked, Awaiting) else asked
    return answering
