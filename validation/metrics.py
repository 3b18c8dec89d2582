"""Every metric of a comparison, as pure emit functions. Names and labels use the words of the glossary."""

from __future__ import annotations

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

_reads_child = lru_cache(maxsize=512)(SHADOW_READS.labels)
_seconds_child = lru_cache(maxsize=128)(SHADOW_SECONDS.labels)


def shadow_compared(operation: str, outcome: str, label: str) -> None:
    _reads_child(operation, outcome, label).inc()


def shadow_answered(operation: str, seconds: float) -> None:
    _seconds_child(operation).observe(seconds)


def shadow_waiting(count: int) -> None:
    SHADOW_WAITING.set(count)
