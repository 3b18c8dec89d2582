"""`TimingLedger`: how long things took in all processes, by the hour, as histograms in the control database.

Counts per bucket of many processes and hours add up exactly. There are ten buckets per power of ten, so that what is
read off lies within an eighth of the truth.

A caller does not wait to count (I10): counting is a dictionary behind a lock, writing is a thread's. What got no answer
is counted apart: a backend that answers only what is easy would look fast.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from math import exp, log
from typing import NamedTuple

from schemaless_core.control.ledgers.ledgers import Ledgers
from schemaless_core.control.ledgers.parts import Addition, LedgerPart

#: Upper ends in microseconds, from 0.05 ms to 28 hours; whatever took longer counts in the last one.
BOUNDS: tuple[int, ...] = tuple(
    round(step * 10**power)
    for power in range(1, 11)
    for step in (1, 1.25, 1.6, 2, 2.5, 3.2, 4, 5, 6.3, 8)
    if step * 10**power >= 50
)
_PLACES: dict[int, int] = {bound: place for place, bound in enumerate(BOUNDS)}

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


def bucket_of(seconds: float) -> int:
    """The bucket's upper end, which is its name."""
    return BOUNDS[place_of(seconds)]


def place_of(seconds: float) -> int:
    """The bucket's place among all."""
    return bisect_left(BOUNDS, seconds * 1e6, 0, len(BOUNDS) - 1)


def quantile(counts: Mapping[int, int], share: float) -> float | None:
    """The duration in seconds that this share of all did not exceed; None: there were none."""
    assert 0 <= share <= 1
    total = sum(counts.values())
    if not total:
        return None
    wanted, below = share * total, 0
    bound = BOUNDS[0]
    for bound in sorted(counts):
        inside = counts[bound]
        if inside and below + inside >= wanted:
            return _between(bound, max(0.0, wanted - below) / inside)
        below += inside
    return bound / 1e6


def _between(bound: int, share: float) -> float:
    """So far into a bucket. Durations spread over orders of magnitude: half-way is the geometric mean of its ends."""
    place = _PLACES[bound]
    low = BOUNDS[place - 1] if place else bound / 1.25
    return exp(log(low) + share * (log(bound) - log(low))) / 1e6
