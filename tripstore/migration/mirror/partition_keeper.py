"""`PartitionKeeper`: has partitions looked at every few seconds, and new ones given the triggers that they lack.

Postgres clones row triggers to a new partition, and no statement triggers: until those stand, TRUNCATE is accepted.
"""

from __future__ import annotations

import logging
import threading
from contextlib import AbstractContextManager
from typing import Self

import psycopg2
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from schemaless_core.errors import SchemalessError
from tripstore.backends.postgres.capture.partitions.guarding import guard_new_partitions
from tripstore.backends.postgres.capture.partitions.look import Breach, look_at_partitions
from tripstore.backends.postgres.wire.connections import connected
from tripstore.config import LegacyConfig

logger = logging.getLogger(__name__)

PAUSE_SECONDS = 2.0
#: After a turn that failed: the session in the way of a lock is left in peace for so long.
AGAIN_SECONDS = 10.0
#: A session that drops or attaches a partition holds its lock until its transaction ends.
LOCK_TIMEOUT = "200ms"


class PartitionWatch:
    """One look, with a connection that is kept from one to the next."""

    def __init__(self, config: LegacyConfig) -> None:
        self._config = config
        self._opened: AbstractContextManager[Connection] | None = None
        self._connection: Connection | None = None
        self._seen: Breach | None = None

    def look(self) -> None:
        """Compare, guard what is new, and say what was found. What fails closes the connection."""
        try:
            connection = self._connection or self._connect()
            before = look_at_partitions(connection)
            config, limits = self._config, self._config.limits
            guarded = guard_new_partitions(connection, config.layout, may_truncate=limits.may_truncate)
            self._tell(look_at_partitions(connection) if guarded else before)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._opened is not None:
            self._opened.__exit__(None, None, None)
        self._opened = self._connection = None

    def _connect(self) -> Connection:
        self._opened = connected(self._config.postgres.text, "partitions", lock_timeout=LOCK_TIMEOUT)
        self._connection = self._opened.__enter__()
        return self._connection

    def _tell(self, found: Breach | None) -> None:
        if found is not None and found != self._seen:
            extra = {"event": "mirror.partitions_breached", "number": found.number}
            logger.warning("rows may have come, gone or changed unseen: %s", found.what, extra=extra)
        self._seen = found


class PartitionKeeper:
    """A context manager: looks in a thread of its own."""

    def __init__(self, watch: PartitionWatch, pause_seconds: float = PAUSE_SECONDS) -> None:
        self._watch = watch
        self._pause_seconds = pause_seconds
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="partition-keeper", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ended.set()
        self._thread.join()

    def turn(self) -> float:
        """Look once; how long to rest then. `doctor` and the gates look by themselves."""
        try:
            self._watch.look()
        except (SchemalessError, psycopg2.Error) as error:
            extra = {"event": "mirror.partitions_not_kept", "error": type(error).__name__}
            logger.warning("partitions are looked at later: %s", str(error).splitlines()[0], extra=extra)
            return AGAIN_SECONDS
        return self._pause_seconds

    def _run(self) -> None:
        rest_seconds = 0.0
        while not self._ended.wait(rest_seconds):
            rest_seconds = self.turn()
        self._watch.close()
