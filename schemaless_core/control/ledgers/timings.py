"""`TimingLedger`: how long things took in all processes, by the hour, as histograms in the control database.

A caller does not wait to count (I10): counting is a dictionary behind a lock, writing is a thread's. What got no answer
is counted apart: a backend that answers only what is easy would look fast.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from schemaless_core.control.ledgers.histogram import BOUNDS, place_of, quantile
from schemaless_core.control.ledgers.ledgers import Ledgers
from schemaless_core.control.ledgers.parts import Addition, LedgerPart

LEDGER = "timings"
FLUSH_SECONDS = 15.0
_UNANSWERED = "unanswered"
#: The last word of a name in the ledger.
_BUCKETS = (*map(str, BOUNDS), _UNANSWERED)

#: What took so long, in words from the general to the particular; no word has a slash.
Timed = tuple[str, ...]


class Timing(NamedTuple):
    """Durations of one thing."""

    #: By the bucket's upper end in microseconds.
    counts: Mapping[int, int]
    unanswered: int = 0

    @property
    def answered(self) -> int:
        return sum(self.counts.values())

    def quantile(self, share: float) -> float | None:
        """In seconds, of what was answered."""
        return quantile(self.counts, share)


class TimingLedger:
    """The ledger, and one process's part in it."""

    name = LEDGER

    def __init__(self, ledgers: Ledgers, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._ledgers = ledgers
        self._part = LedgerPart(ledgers, LEDGER, now)
        self._begin()

    def after_fork(self) -> None:
        """What the parent counted, the parent writes."""
        self._part.after_fork()
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._counted: dict[Timed, list[int]] = {}

    def count(self, timed: Timed, seconds: float) -> None:
        """It took so long."""
        self._add(timed, place_of(seconds))

    def count_unanswered(self, timed: Timed) -> None:
        """It came to no end, or to none in time."""
        self._add(timed, len(BOUNDS))

    def flush(self) -> None:
        """Write what was not written yet. What fails is kept for the next flush, and raised."""
        self._part.write(self._taken)

    def total(self, since: datetime | None = None) -> dict[Timed, Timing]:
        """What all processes wrote; `since` counts whole hours."""
        return _timings(self._ledgers.counts(LEDGER, since))

    def hours(self, since: datetime | None = None) -> dict[datetime, dict[Timed, Timing]]:
        """The same by the hour it was written in, the oldest first."""
        return {hour: _timings(counts) for hour, counts in self._ledgers.hours(LEDGER, since).items()}

    def _add(self, timed: Timed, place: int) -> None:
        with self._lock:
            counts = self._counted.get(timed)
            if counts is None:
                counts = self._counted[timed] = [0] * len(_BUCKETS)
            counts[place] += 1

    def _taken(self) -> Addition | None:
        with self._lock:
            counted, self._counted = self._counted, {}
        if not counted:
            return None
        return Addition(
            {
                "/".join((*timed, bucket)): count
                for timed, found in counted.items()
                for bucket, count in zip(_BUCKETS, found, strict=True)
                if count
            }
        )


def _timings(counts: Mapping[str, int]) -> dict[Timed, Timing]:
    buckets: dict[Timed, dict[int, int]] = {}
    unanswered: Counter[Timed] = Counter()
    for name, count in counts.items():
        *words, bucket = name.split("/")
        timed = tuple(words)
        found = buckets.setdefault(timed, {})
        if bucket == _UNANSWERED:
            unanswered[timed] = count
        else:
            found[int(bucket)] = count
    return {timed: Timing(buckets[timed], unanswered[timed]) for timed in sorted(buckets)}
