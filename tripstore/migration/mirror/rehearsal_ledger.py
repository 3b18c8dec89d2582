"""`RehearsalLedger`: what the reverse mirrors of all processes compared, added up in the control database.

Only what was really compared counts as equal, or as different; what could not be compared is counted apart (I12). All
of it with the epoch of the authority row: what was compared with a Postgres that is lost is no evidence of another.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from datetime import datetime
from typing import NamedTuple

from schemaless_core.control.ledgers.ledgers import Ledgers
from schemaless_core.control.ledgers.parts import Addition, LedgerPart
from schemaless_core.errors import SchemalessError

logger = logging.getLogger(__name__)

LEDGER = "rehearsal"
FLUSH_SECONDS = 2.0
EQUAL, DIFFERENT, ABSENT, NOT_COMPARED = "equal", "different", "absent", "not_compared"


class RehearsalCounts(NamedTuple):
    """As many cells, of all processes."""

    equal: int
    #: Or absent.
    different: int
    not_compared: int


class RehearsalLedger:
    """One process's part in it. The mirror does not wait for it: a thread writes soon after, and ends."""

    def __init__(self, ledgers: Ledgers, flush_seconds: float = FLUSH_SECONDS) -> None:
        self._part = LedgerPart(ledgers, LEDGER)
        self._flush_seconds = flush_seconds
        self._lock = threading.Lock()
        self._counted: Counter[str] = Counter()
        self._is_due = False

    def count(self, outcomes: Counter[str], epoch: int) -> None:
        """`epoch`: of the authority row that was read before anything was compared."""
        with self._lock:
            self._counted += Counter({f"{epoch}/{name}": count for name, count in outcomes.items()})
            if self._is_due or not self._counted:
                return
            self._is_due = True
        timer = threading.Timer(self._flush_seconds, self._flush_or_keep)
        timer.name, timer.daemon = "rehearsal-ledger", True
        timer.start()

    def flush(self) -> None:
        """Write what was not written yet. What fails is kept for the next flush, and raised."""
        self._part.write(self._taken)

    def _flush_or_keep(self) -> None:
        """A control database that is down delays no delivery (I10). The next count has it tried again."""
        with self._lock:
            self._is_due = False
        try:
            self.flush()
        except SchemalessError as error:
            extra = {"event": "rehearsal.not_written", "reason": error.message}
            logger.warning("what the rehearsal counted could not be written; it is kept", extra=extra)

    def _taken(self) -> Addition | None:
        with self._lock:
            counted, self._counted = self._counted, Counter()
        return Addition(counted) if counted else None


def rehearsal_counts(ledgers: Ledgers, since: datetime | None = None, epoch: int = 0) -> RehearsalCounts:
    """What all processes wrote from this epoch of the authority on; `since` counts whole hours."""
    found = Counter[str]()
    for key, count in ledgers.counts(LEDGER, since).items():
        at, name = _epoch_and_name(key)
        if at >= epoch:
            found[name] += count
    return RehearsalCounts(found[EQUAL], found[DIFFERENT] + found[ABSENT], found[NOT_COMPARED])


def _epoch_and_name(key: str) -> tuple[int, str]:
    """Processes of before wrote no epoch."""
    epoch, _, name = key.rpartition("/")
    return int(epoch or 0), name
