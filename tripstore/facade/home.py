"""`Home`: the facade that a process uses now. When another layout is put in force, another facade takes its place.

All stores that `using` made of one share it. Calls that are inside the old facade end there; then it is closed.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from schemaless_core.errors import StoreClosed
from tripstore import metrics
from tripstore.errors import StaleLayout
from tripstore.facade.facade import Facade
from tripstore.facade.writes import check_may_change

logger = logging.getLogger(__name__)

#: Calls of the old facade have so long to end; what they would still write is refused anyway.
GRACE_SECONDS = 5.0
#: A layout that was put in force while this one was loaded is loaded as well.
RELOADS = 3


class Home:
    """Of one `TripStore` and all that `using` made of it."""

    def __init__(
        self, facade: Facade, reload: Callable[[], Facade] | None, grace_seconds: float = GRACE_SECONDS
    ) -> None:
        self.facade = facade
        self._reload = reload
        self._grace_seconds = grace_seconds
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._closed = threading.Event()
        self._opener = weakref.ref(threading.current_thread())

    def renewed(self, stale: Facade, error: StaleLayout) -> Facade:
        """The facade that goes by the layout in force, in place of one that does not. Raises `error` if there is none.

        The first of several threads loads it.
        """
        with self._held():
            if self.facade is stale:
                if self._reload is None or self._closed.is_set():
                    raise error
                self.facade = self._reload()
                self.facade.experiments.declare(*stale.experiments.declared)
                metrics.layout_reloaded()
                extra = {"event": "facade.layout_reloaded", "layout": error.in_force, "before": error.known}
                logger.warning("another layout is in force, and this process goes by it now", extra=extra)
                threading.Thread(target=self._part_with, args=(stale,), name="old-facade", daemon=True).start()
            return self.facade

    def open_facade(self) -> Facade:
        """The facade for a call; raises after `close`."""
        if self._closed.is_set():
            raise StoreClosed(
                "store", "tripstore.connect() opens another one; all that using() made of it closed with it."
            )
        return self.facade

    def has_replaced(self, facade: Facade) -> bool:
        """Whether calls go to another facade now."""
        return self.facade is not facade and not self._closed.is_set()

    def close(self) -> None:
        """A candidate closes what it opened; the store of its callers it leaves open."""
        if self._opener() is not threading.current_thread():
            check_may_change()
        if not self._closed.is_set():
            self.facade.finish()
        self._closed.set()
        self.facade.close()

    def _part_with(self, stale: Facade) -> None:
        until = time.monotonic() + self._grace_seconds
        self._closed.wait(max(until - time.monotonic(), 0.0))
        stale.close()

    @contextmanager
    def _held(self) -> Iterator[None]:
        """A lock that another thread of the parent held would never be released in a fork."""
        if self._pid != os.getpid():
            self._lock, self._pid = threading.Lock(), os.getpid()
        with self._lock:
            yield
