"""Every metric of a backfill, as pure emit functions. Names and labels use the words of the glossary."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

ROWS = Counter("tripstore_backfill_rows_total", "Rows of the chunks that this process saved.")
CELLS = Counter(
    "tripstore_backfill_cells_total", "Cells of the chunks that this process saved, by what came of them.", ["outcome"]
)
CHUNK_SECONDS = Histogram(
    "tripstore_backfill_chunk_seconds",
    "How long reading and writing one chunk took.",
    ["step"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0),
)
CHUNK_ROWS = Gauge("tripstore_backfill_chunk_rows", "Rows that this process takes into one chunk at the moment.")
THROTTLED_SECONDS = Counter(
    "tripstore_backfill_throttled_seconds_total",
    "How long this process waited so as to do no harm, by the limit that held.",
    ["limit"],
)
BLOCKS = Counter(
    "tripstore_job_blocks_read_total",
    "Blocks that Postgres read for backfills and diffs of this process, where there is a limit on them.",
)
PROBE_SECONDS = Histogram(
    "tripstore_probe_seconds",
    "How long the probe took by which jobs of this process slow down.",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0),
)
FAILURES = Counter(
    "tripstore_backfill_failures_total", "Chunks that did not get through, and are tried again.", ["cause"]
)


def chunk_saved(rows: int, equal: int, conflicts: int, quarantined: int) -> None:
    ROWS.inc(rows)
    CELLS.labels("equal").inc(equal)
    CELLS.labels("conflict").inc(conflicts)
    CELLS.labels("quarantined").inc(quarantined)


def chunk_took(read_seconds: float, write_seconds: float, chunk_rows: int) -> None:
    CHUNK_SECONDS.labels("read").observe(read_seconds)
    CHUNK_SECONDS.labels("write").observe(write_seconds)
    CHUNK_ROWS.set(chunk_rows)


def throttled(limit: str | None, seconds: float) -> None:
    if limit is not None:
        THROTTLED_SECONDS.labels(limit).inc(seconds)


def blocks_read(blocks: int) -> None:
    BLOCKS.inc(blocks)


def probed(seconds: float) -> None:
    PROBE_SECONDS.observe(seconds)


def chunk_failed(cause: str) -> None:
    FAILURES.labels(cause).inc()
