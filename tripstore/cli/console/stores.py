"""`ConsoleStores`: the stores of the configuration, opened when a section first asks, and for all sections once.

They go by the layout in force: sessions of a process that goes by another one hold up a switch.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from schemaless_core.datastore import Datastore
from schemaless_core.errors import StoreClosed
from tripstore.cli.both import Both
from tripstore.cli.options import Settings
from tripstore.config import TripstoreConfig
from tripstore.facade.facade import Facade
from tripstore.facade.in_force import with_layout_in_force
from tripstore.store import TripStore
from tripstore.wiring import build

#: Between two looks at which layout is in force.
LAYOUT_SECONDS = 10.0


class ConsoleStores:
    """Opening asks no server: one that is down when the console begins is asked again at the next look."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._store: TripStore | None = None
        self._is_closed = False
        self._config = settings.load()
        self._asked_at: float | None = None

    @property
    def datastore_name(self) -> str:
        return self._config.core.datastore

    @property
    def is_both(self) -> bool:
        """Else there is one store, and no migration to show."""
        return self._config.legacy is not None

    @property
    def facade(self) -> Facade:
        with self._lock:
            if self._is_closed:
                raise StoreClosed("console", "Start it again.")
            if self._store is None:
                self._store = TripStore(build(self._config))
            return self._store.facade

    @property
    def datastore(self) -> Datastore:
        return self.facade.store

    @property
    def both(self) -> Both:
        facade = self.facade
        assert facade.duo is not None, "sections of the migration are left out where there is one store"
        assert facade.config.legacy is not None
        return Both(facade, facade.duo, facade.config.legacy)

    def go_by_layout_in_force(self) -> None:
        """Open the stores anew where another layout has come into force; called by one section alone, in its thread.

        A look of another section that is under way fails, and its next one does not.
        """
        if self._asked_at is not None and self._clock() - self._asked_at < LAYOUT_SECONDS:
            return
        self._asked_at = self._clock()
        in_force = with_layout_in_force(self._config)
        if _digest(in_force) == _digest(self._config):
            return
        with self._lock:
            before, self._store, self._config = self._store, None, in_force
        if before is not None:
            before.close()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            if self._store is not None:
                self._store.close()


def _digest(config: TripstoreConfig) -> str | None:
    return None if config.legacy is None else config.legacy.layout.digest
