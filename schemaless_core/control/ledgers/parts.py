"""`LedgerPart`: one process's part in a ledger, exact whatever becomes of an answer.

What could not be written waits, as one batch that is sent again unchanged.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple
from uuid import uuid4

from schemaless_core.cell.canonical import Json
from schemaless_core.control.ledgers.ledgers import LedgerBatch, Ledgers


class Addition(NamedTuple):
    """What is to be added."""

    counts: Mapping[str, int]
    notes: Sequence[Mapping[str, Json]] = ()


class _Pending(NamedTuple):
    """What may or may not have arrived."""

    addition: Addition
    batch: LedgerBatch
    hour: datetime


class LedgerPart:
    """Threads share it. A fork is a writer of its own."""

    def __init__(self, ledgers: Ledgers, ledger: str, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._ledgers = ledgers
        self._ledger = ledger
        self._now = now
        self.after_fork()

    def after_fork(self) -> None:
        """What the parent counted, the parent writes."""
        self._lock = threading.Lock()
        self._writer = uuid4().hex
        self._number = 0
        self._pending: _Pending | None = None

    def write(self, taken: Callable[[], Addition | None]) -> None:
        """Write what waits, and then what is taken now: asked once, by one thread at a time.

        What fails is kept for the next time, and raised.
        """
        with self._lock:
            self._send()
            addition = taken()
            if addition is not None:
                self._number += 1
                self._pending = _Pending(addition, LedgerBatch(self._writer, self._number), self._now())
                self._send()

    def _send(self) -> None:
        pending = self._pending
        if pending is None:
            return
        counts, notes = pending.addition
        self._ledgers.add(self._ledger, counts, pending.hour, notes=notes, batch=pending.batch)
        self._pending = None
