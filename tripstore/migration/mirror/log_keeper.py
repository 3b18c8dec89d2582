"""`LogKeeper`: has the days of the log made and dropped every hour, by whichever process comes first."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Self

import psycopg2

from schemaless_core.errors import SchemalessError
from tripstore.backends.postgres.cells.log_days import keep_log_days
from tripstore.backends.postgres.wire.connections import connected
from tripstore.config import LegacyConfig

logger = logging.getLogger(__name__)

PAUSE_SECONDS = 3600.0
#: After a call that failed.
AGAIN_SECONDS = 60.0


def days_keeper(config: LegacyConfig, shards: int) -> Callable[[], object]:
    """What keeps the days of this legacy store, once per call."""

    def keep() -> object:
        with connected(config.postgres.text, "log") as connection:
            return keep_log_days(connection, config.limits.log_days, datetime.now(UTC).date(), shards=shards)

    return keep


class LogKeeper:
    """A context manager: once at the beginning, for a relay wants today's partition, then in a thread of its own."""

    def __init__(self, keep: Callable[[], object], pause_seconds: float = PAUSE_SECONDS) -> None:
        self._keep = keep
        self._pause_seconds = pause_seconds
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="log-keeper", daemon=True)
        self._rest_seconds = 0.0

    def __enter__(self) -> Self:
        self._rest_seconds = self.turn()
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ended.set()
        self._thread.join()

    def turn(self) -> float:
        """Keep the days; how long to rest then. No writer depends on it: a change without a day is kept, too."""
        try:
            self._keep()
        except (SchemalessError, psycopg2.Error) as error:
            extra = {"event": "mirror.log_not_kept", "error": type(error).__name__}
            logger.warning("the days of the log are made later: %s", str(error).splitlines()[0], extra=extra)
            return AGAIN_SECONDS
        return self._pause_seconds

    def _run(self) -> None:
        while not self._ended.wait(self._rest_seconds):
            self._rest_seconds = self.turn()
