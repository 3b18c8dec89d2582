"""`Verdict`: what became of a read that was to be compared; and `Tally`, which counts verdicts and keeps mismatches.

Only EQUAL means equal: whatever was not compared has a reason of its own, and is counted as that.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from tripstore.engines.validation import metrics
from tripstore.engines.validation.compare import AnswerDifference
from tripstore.engines.validation.ignores import Ignore
from tripstore.engines.validation.reads import Failed, Read

#: Mismatches that are kept whole; all are counted.
MISMATCHES_MAX = 1000


class Outcome(StrEnum):
    """What a comparison ended with."""

    EQUAL = "equal"
    IN_FLIGHT = "in_flight"  #: It differed, and no more once the mirror had caught up.
    IGNORED = "ignored"  #: Every difference is explained by a rule.
    MISMATCH = "mismatch"
    NOT_COMPARED = "not_compared"


class Reason(StrEnum):
    """Why a sampled read was not compared."""

    QUEUE_FULL = "queue_full"
    TOO_OLD = "too_old"
    BREAKER_OPEN = "breaker_open"
    AUTHORITY_FAILED = "authority_failed"
    INCOMPARABLE = "incomparable"  #: A store knows that it cannot know.
    BUSY = "busy"  #: The row never rested.
    PURGED = "purged"  #: It differs by what was purged from Schemaless, and the legacy store has yet.
    CLOSED = "closed"  #: The process ended first.
    BROKEN = "broken"  #: A fault of ours.
    STUCK = "stuck"  #: A candidate that was over its time has not come back.
    HALTED = "halted"  #: A candidate took more memory than it may.
    SESSION = "session"  #: It would use a database session of the caller's, on another thread.


def reason_of(failed: Failed) -> Reason:
    """Why a side that could not answer leaves its read without a verdict."""
    if failed.reason:
        return Reason(failed.reason)
    return Reason.INCOMPARABLE if failed.is_incomparable else Reason.AUTHORITY_FAILED


@dataclass(frozen=True, slots=True)
class Verdict:
    """One sampled read."""

    read: Read
    outcome: Outcome
    differences: Sequence[AnswerDifference] = ()
    reason: Reason | None = None
    ignored_by: Sequence[Ignore] = ()

    @property
    def label(self) -> str:
        """As it is counted: a mismatch by the class of its first difference, what was not compared by its reason."""
        if self.reason is not None:
            return self.reason
        return self.differences[0].kind if self.outcome is Outcome.MISMATCH else ""

    @property
    def ends_on(self) -> str:
        """The day on which the first of the rules ends that explain it: it counts as ignored until then."""
        return min(rule.until for rule in self.ignored_by).isoformat() if self.ignored_by else ""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A verdict that needs attention."""

    at: datetime
    verdict: Verdict


class Tally:
    """Shared by the threads of one process."""

    def __init__(self, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._counts: Counter[tuple[int, str, Outcome, str]] = Counter()
        self._ignored: Counter[Ignore] = Counter()
        self._mismatches: deque[Mismatch] = deque(maxlen=MISMATCHES_MAX)

    def record(self, verdict: Verdict) -> None:
        name, outcome, label = verdict.read.name, verdict.outcome, verdict.label
        with self._lock:
            self._counts[verdict.read.epoch, name, outcome, label or verdict.ends_on] += 1
            self._ignored.update(verdict.ignored_by)
            if outcome is Outcome.MISMATCH:
                self._mismatches.append(Mismatch(self._now(), verdict))
        metrics.shadow_compared(name, outcome, label)

    def counts(self) -> dict[tuple[str, Outcome, str], int]:
        """By operation class, outcome, and label; of what is ignored, by the day on which that ends."""
        found: Counter[tuple[str, Outcome, str]] = Counter()
        for (_epoch, name, outcome, label), count in self.counts_by_epoch().items():
            found[name, outcome, label] += count
        return dict(found)

    def counts_by_epoch(self) -> dict[tuple[int, str, Outcome, str], int]:
        """The same, by the epoch of the authority that was asked before all else."""
        with self._lock:
            return dict(self._counts)

    def total(self, *outcomes: Outcome, operation: str | None = None) -> int:
        return sum(
            count
            for (name, outcome, _label), count in self.counts().items()
            if (not outcomes or outcome in outcomes) and operation in (None, name)
        )

    def ignored(self) -> dict[Ignore, int]:
        with self._lock:
            return dict(self._ignored)

    def mismatches(self) -> list[Mismatch]:
        """The last ones, oldest first."""
        with self._lock:
            return list(self._mismatches)

    def after_fork(self) -> None:
        """A lock that another thread of the parent held would never be released here; the counts are the parent's."""
        self._lock = threading.Lock()
        self._counts.clear()
        self._ignored.clear()
        self._mismatches.clear()
