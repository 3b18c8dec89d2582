"""`beside_callers`: what holds on a thread that asks a query beside its callers: it only reads, and leaves nothing.

A session in a thread-local variable ends with its thread, and the transaction in it only when the garbage collector
comes to it: session and transaction hold each other. Until then a connection of the service's pool is gone for its
callers, and Postgres keeps dead rows for a transaction that is idle. So what the query took out of a pool and did not
bring back goes back here.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import sqlalchemy as sa
from sqlalchemy.pool import ConnectionPoolEntry, Pool, PoolProxiedConnection

from tripstore.facade.writes import only_reading

#: What this thread has taken out, while a query runs on it.
_HERE = threading.local()


def listen() -> None:
    """Hear of checkouts from now on, in a process that makes an experiment; a second time does nothing."""
    sa.event.listen(Pool, "checkout", _note)


@contextmanager
def beside_callers() -> Iterator[None]:
    """While a query runs."""
    with only_reading(), _returning():
        yield


@contextmanager
def _returning() -> Iterator[None]:
    taken: list[weakref.ref[PoolProxiedConnection]] = []
    _HERE.taken = taken
    try:
        yield
    finally:
        del _HERE.taken
        for each in taken:
            connection = each()
            if connection is not None and connection.is_valid:
                with suppress(Exception):  # its server is gone, say; the pool finds that out by itself
                    connection.close()


def _note(_connection: object, _entry: ConnectionPoolEntry, proxy: PoolProxiedConnection) -> None:
    """Asked at each checkout of the process, also of callers."""
    taken = getattr(_HERE, "taken", None)
    if taken is not None:
        taken.append(weakref.ref(proxy))
