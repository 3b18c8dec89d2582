"""`RehearsalLedger`: what the reverse mirrors of all processes compared, added up in the control database.

Only what was really compared counts as equal, or as different; what nobody could say is counted apart (I12).
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from datetime import UTC, datetime
from typing import NamedTuple
from uuid import uuid4

from schemaless_core.control.ledgers import Batch, Ledgers
from schemaless_core.errors import SchemalessError

logger = logging.getLogger(__name__)

LEDGER = "rehearsal"
FLUSH_SECONDS = 2.0
EQUAL, DIFFERENT, ABSENT, NOT_COMPARED = "equal", "different", "absent", "not_compared"


class RehearsalCounts(NamedTuple):
    """Since the datastore has a reverse mirror."""

    equal: int
    #: Or absent.
    different: int
    not_compared: int


class _Pending(NamedTuple):
    """A batch that may or may not have arrived: it is sent again unchanged."""

    batch: Batch
    counts: dict[str, int]
    hour: datetime


class RehearsalLedger:
    """One process's part in it. Whoever counts does not wait: a thread writes soon after, and ends."""

    def __init__(self, ledgers: Ledgers, flush_seconds: float = FLUSH_SECONDS) -> None:
        self._ledgers = ledgers
        self._flush_seconds = flush_seconds
        self._lock = threading.Lock()  # of what is counted
        self._sending = threading.Lock()  # of what is sent
        self._counted: Counter[str] = Counter()
        self._pending: _Pending | None = None
        self._writer = uuid4().hex
        self._number = 0
        self._is_due = False

    def count(self, outcomes: Counter[str]) -> None:
        with self._lock:
            self._counted += outcomes
            if self._is_due or not self._counted:
                return
            self._is_due = True
        timer = threading.Timer(self._flush_seconds, self._flush_or_keep)
        timer.name, timer.daemon = "rehearsal-ledger", True
        timer.start()

    def flush(self) -> None:
        """Write what was not written yet. What fails is kept for the next flush, and raised."""
        with self._sending:
            if self._pending is not None:
                self._send(self._pending)
            pending = self._next()
            if pending is not None:
                self._send(pending)

    def _flush_or_keep(self) -> None:
        """A control database that is down costs nobody anything (I10). Whoever counts next has it tried again."""
        with self._lock:
            self._is_due = False
        try:
            self.flush()
        except SchemalessError as error:
            extra = {"event": "rehearsal.not_written", "reason": error.message}
            logger.warning("what the rehearsal counted could not be written; it is kept", extra=extra)

    def _next(self) -> _Pending | None:
        with self._lock:
            counted, self._counted = self._counted, Counter()
        if counted:
            self._number += 1
            self._pending = _Pending(Batch(self._writer, self._number), dict(counted), datetime.now(UTC))
        return self._pending

    def _send(self, pending: _Pending) -> None:
        self._ledgers.add(LEDGER, pending.counts, pending.hour, batch=pending.batch)
        self._pending = None


def rehearsal_counts(ledgers: Ledgers, since: datetime | None = None) -> RehearsalCounts:
    """What all processes wrote; `since` counts whole hours."""
    found = ledgers.counts(LEDGER, since)
    return RehearsalCounts(
        found.get(EQUAL, 0), found.get(DIFFERENT, 0) + found.get(ABSENT, 0), found.get(NOT_COMPARED, 0)
    )
