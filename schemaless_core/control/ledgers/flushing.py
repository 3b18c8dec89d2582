"""`Flushing`: writes what a process counted every few seconds, on a thread of its own, and once more at the end."""

from __future__ import annotations

import logging
import threading
from typing import Protocol

from schemaless_core.errors import SchemalessError

logger = logging.getLogger(__name__)

FLUSH_SECONDS = 5.0


class Flushed(Protocol):
    """One process's part of a ledger."""

    @property
    def name(self) -> str:
        """The ledger's."""
        ...

    def flush(self) -> None:
        """Write what was not written yet. What fails is kept for the next flush, and raised."""
        ...

    def after_fork(self) -> None:
        """What the parent counted, the parent writes."""
        ...


class Flushing:
    """Of one ledger and process."""

    _thread: threading.Thread | None

    def __init__(self, flushed: Flushed, seconds: float = FLUSH_SECONDS) -> None:
        self._flushed = flushed
        self._seconds = seconds
        self._begin()

    def start(self) -> None:
        """Begin; a second start does nothing."""
        with self._lock:
            if self._thread is None:
                name = f"{self._flushed.name}-ledger"
                self._thread = threading.Thread(target=self._run, name=name, daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Write the rest."""
        self._ended.set()
        thread = self._thread
        if thread is not None:
            thread.join()
        self._flush()

    def after_fork(self) -> None:
        """The thread is the parent's, and so is what was not written."""
        self._flushed.after_fork()
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = None

    def _run(self) -> None:
        while not self._ended.wait(self._seconds):
            self._flush()

    def _flush(self) -> None:
        """A control database that is down delays no caller: the next flush has more to write (I10)."""
        ledger = self._flushed.name
        try:
            self._flushed.flush()
        except SchemalessError as error:
            extra = {"event": "ledger.not_written", "ledger": ledger, "reason": error.message}
            logger.warning("what this process counted could not be written; it is kept", extra=extra)
        except Exception:
            # This thread writes what gates rely on: it must not end.
            extra = {"event": "ledger.not_written", "ledger": ledger}
            logger.exception("what this process counted could not be written", extra=extra)
