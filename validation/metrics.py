"""Every metric of a comparison, as pure emit functions. Names and labels use the words of the glossary."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from prometheus_client import Counter, Gauge, Histogram

SHADOW_READS = Counter(
    "tripstore_shadow_reads_total",
    "Sampled reads, by operation, outcome, and class of the mismatch or reason why it was not compared.",
    ["operation", "outcome", "label"],
)
SHADOW_SECONDS = Histogram(
    "tripstore_shadow_seconds",
    "How long the other store took to answer a sampled read.",
    ["operation"],
    buckets=(0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0),
)
SHADOW_WAITING = Gauge("tripstore_shadow_waiting", "Sampled reads that wait to be compared.")
EXPERIMENTS_STUCK = Gauge(
    "tripstore_experiments_stuck",
    "Queries under experiment that were over their time and have not come back; each keeps a thread.",
)
DIFF_CELLS = Counter(
    "tripstore_diff_cells_total",
    "What diffs compared, by kind of comparison and what became of it; not_compared is part of no other.",
    ["comparison", "outcome"],
)
DIFF_STEP_SECONDS = Histogram(
    "tripstore_diff_step_seconds",
    "How long a step of a diff took: one pass of sums, or one portion of what differs.",
    ["comparison"],
    buckets=(0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0),
)
DIFF_THROTTLED_SECONDS = Counter(
    "tripstore_diff_throttled_seconds_total",
    "How long diffs of this process waited so as to do no harm, by the limit that held.",
    ["limit"],
)

#: How counts begin that are no outcome of a cell.
TABLE_COUNTS = "table_"

_reads_child = lru_cache(maxsize=512)(SHADOW_READS.labels)
_seconds_child = lru_cache(maxsize=128)(SHADOW_SECONDS.labels)


def shadow_compared(operation: str, outcome: str, label: str) -> None:
    _reads_child(operation, outcome, label).inc()


def shadow_answered(operation: str, seconds: float) -> None:
    _seconds_child(operation).observe(seconds)


def shadow_waiting(count: int) -> None:
    SHADOW_WAITING.set(count)


def experiments_stuck(count: int) -> None:
    EXPERIMENTS_STUCK.set(count)


def diff_throttled(limit: str | None, seconds: float) -> None:
    if limit is not None:
        DIFF_THROTTLED_SECONDS.labels(limit).inc(seconds)


def diff_stepped(comparison: str, seconds: float, counts: Mapping[str, int]) -> None:
    """A step is done; it counts once it is saved, so that after a crash a metric may be ahead of the job."""
    DIFF_STEP_SECONDS.labels(comparison).observe(seconds)
    for outcome, count in counts.items():
        if outcome.startswith(TABLE_COUNTS):  # of rows, by table
            continue
        DIFF_CELLS.labels(comparison, outcome).inc(count)
