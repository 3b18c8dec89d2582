"""`connect`: a `TripStore` for asyncio."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from schemaless_core.aio.threads import WAIT_SECONDS, CallThreads, limits_of
from tripstore import wiring
from tripstore.aio.store import AsyncTripStore


def connect(
    source: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    *,
    threads: int | None = None,
    wait_seconds: float = WAIT_SECONDS,
) -> AsyncTripStore:
    """Open the stores of a configuration file or mapping behind one API. It connects when it is first used.

    Reads the file, and asks no server: call it where the application starts. `threads`: how many calls are made at
    once; as many as the pool of each store has connections, unless said. `wait_seconds`: how long a call waits for one
    of them until it raises `ThreadsBusy`.
    """
    store = wiring.connect(source)
    config = store.facade.config
    pools = [config.core.pool, *([] if config.legacy is None else [config.legacy.limits.pool])]
    return AsyncTripStore(store, CallThreads(limits_of(pools, threads, wait_seconds)))
