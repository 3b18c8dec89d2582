"""Every metric of the core, as pure emit functions. Names and labels use the words of the glossary."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.values import MutexValue

_SECONDS = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)

CALL_SECONDS = Histogram(
    "schemaless_call_seconds",
    "Duration of a call of the cell store, by operation and outcome.",
    ["operation", "outcome"],
    buckets=_SECONDS,
)
CELLS = Counter("schemaless_cells_total", "Cells written, by what became of them.", ["status"])
BUFFERED = Counter("schemaless_buffered_total", "Cells that this process had kept by the buffer of another cluster.")
REPLAYED = Counter(
    "schemaless_replayed_total", "Cells that this process took out of buffers, by what became of them.", ["outcome"]
)
BUFFER_CELLS = Gauge("schemaless_buffer_cells", "Cells that wait in the buffer of a cluster.", ["cluster"])
BUFFER_BYTES = Gauge("schemaless_buffer_bytes", "Bytes of their bodies.", ["cluster"])
BUFFER_OLDEST = Gauge("schemaless_buffer_oldest_seconds", "Age of the oldest of them; 0: there is none.", ["cluster"])
BUFFER_CONFLICTS = Gauge("schemaless_buffer_conflicts", "Cells in the ledger of conflicts of a buffer.", ["cluster"])
PRUNED = Counter(
    "schemaless_control_pruned_total",
    "Rows that this worker removed from the control database for their age.",
    ["what"],
)
REPEATS = Counter("schemaless_repeats_total", "Calls repeated inside the datastore, by cause.", ["cause"])
NODE_FAILURES = Counter("schemaless_node_failures_total", "Calls that a server did not answer.", ["node"])
BREAKER_OPEN = Gauge(
    "schemaless_breaker_open", "1 while a server's breaker for reads or for writes is not closed.", ["node", "calls"]
)
SESSIONS_ABANDONED = Gauge(
    "schemaless_sessions_abandoned",
    "Sessions of this process that a server has not ended although their calls ran out of time.",
    ["node"],
)
AWAITED_CANCELLED = Counter(
    "schemaless_awaited_cancelled_total",
    "Awaited calls whose task was cancelled, by whether the call had begun.",
    ["begun"],
)
AWAITED_BUSY = Counter("schemaless_awaited_busy_total", "Awaited calls that found no thread in time.")
REPLICA_READS = Counter("schemaless_replica_reads_total", "Reads answered by a replica, by cause.", ["cause"])
LEASE_RENEWALS = Counter(
    "schemaless_lease_renewals_total",
    "Extensions of primaries' leases by this worker, and what became of them.",
    ["cluster", "outcome"],
)
LEASE_EXTENDED = Gauge(
    "schemaless_lease_extended_seconds",
    "When this worker extended the lease of a primary last, in seconds since 1970.",
    ["cluster"],
)
FAILOVERS = Counter(
    "schemaless_failovers_total",
    "Promotions that this worker began because a primary was silent.",
    ["cluster", "outcome"],
)
PROMOTION = Gauge(
    "schemaless_cluster_promotion",
    "Number of the newest promotion of a cluster that this process knows of.",
    ["cluster"],
)
SHARDS_CREATED = Counter("schemaless_shards_created_total", "Shards created by this process.")
CELLS_COPIED = Counter("schemaless_logcopy_cells_total", "Cells of logs that this process copied elsewhere.")
REPLICATION_CELLS = Gauge(
    "schemaless_replication_lag_cells", "Cells that the datastore which leads has and this standby lacks."
)
REPLICATION_SECONDS = Gauge(
    "schemaless_replication_lag_seconds", "All that was stored until so many seconds ago is on this standby."
)
SHARDS_MOVED = Counter("schemaless_shards_moved_total", "Moves of shards by outcome.", ["outcome"])
SHARD_CLOSED = Histogram(
    "schemaless_move_closed_seconds",
    "How long a shard took no writes as it was moved.",
    buckets=(0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.5, 5.0),
)
TRIGGER_CELLS = Counter(
    "schemaless_trigger_cells_total", "Deliveries of cells, by group and outcome.", ["group", "outcome"]
)
TRIGGER_LAG = Gauge("schemaless_trigger_lag_cells", "Cells above the saved offset of a shard.", ["group", "shard"])
TRIGGER_OLDEST = Gauge(
    "schemaless_trigger_oldest_seconds",
    "Age of the oldest cell above the saved offsets of the shards that this process serves; 0: there is none.",
    ["group"],
)
TRIGGER_CALL = Gauge(
    "schemaless_trigger_call_seconds",
    "How long the oldest call of a group's function in this process has gone on.",
    ["group"],
)
TRIGGER_SHARDS = Gauge("schemaless_trigger_shards", "Shards that this process serves.", ["group"])
TRIGGER_FENCED = Counter("schemaless_trigger_fenced_total", "Savings refused because of a newer fence.", ["group"])
INDEX_LAG = Histogram(
    "schemaless_index_lag_seconds",
    "From the commit of a cell to its index entries, written by the process that put it.",
    ["index"],
    buckets=_SECONDS,
)
CREATED_AHEAD = Gauge(
    "schemaless_created_ahead_seconds",
    "How far the latest time of a cluster's shards is ahead of its server's clock.",
    ["cluster"],
)
DICTIONARY_MISSED = Counter(
    "schemaless_dictionary_missed_total", "Compressed bodies whose server has not their dictionary.", ["node"]
)
CELLS_TURNED = Counter(
    "schemaless_cells_turned_total", "Cells whose bodies this process stored in the form in which puts store them now."
)
CELLS_MENDED = Counter("schemaless_cells_mended_total", "Changes that repair made to shards, by action.", ["action"])
FSCK_ROWS = Counter("schemaless_fsck_rows_total", "Cells that fsck looked at in this process.")
FSCK_FOUND = Counter("schemaless_fsck_found_total", "What it found, by fault; not_compared: could not look.", ["fault"])
INDEX_DROPPED = Counter("schemaless_index_dropped_total", "Cells whose entries were left to the maintainer.", ["cause"])

# labels() looks its child up under a lock; the hot path keeps the children.
_call_child = lru_cache(maxsize=256)(CALL_SECONDS.labels)
_cells_child = lru_cache(maxsize=16)(CELLS.labels)


def call_finished(operation: str, outcome: str, seconds: float) -> None:
    _call_child(operation, outcome).observe(seconds)


def cells_written(status: str, count: int = 1) -> None:
    _cells_child(status).inc(count)


def call_repeated(cause: str) -> None:
    REPEATS.labels(cause).inc()


def awaited_cancelled(*, is_begun: bool) -> None:
    AWAITED_CANCELLED.labels("yes" if is_begun else "no").inc()


def awaited_busy() -> None:
    AWAITED_BUSY.inc()


def cells_buffered(count: int) -> None:
    BUFFERED.inc(count)


def cells_turned(count: int) -> None:
    CELLS_TURNED.inc(count)


def dictionary_missed(node: str) -> None:
    DICTIONARY_MISSED.labels(node).inc()


def control_pruned(what: str, rows: int) -> None:
    PRUNED.labels(what).inc(rows)


def cells_replayed(there: int, conflicts: int) -> None:
    REPLAYED.labels("there").inc(there)
    REPLAYED.labels("conflict").inc(conflicts)


def buffer_seen(cluster: str, cells: int, body_bytes: int, oldest_seconds: float, conflicts: int) -> None:
    BUFFER_CELLS.labels(cluster).set(cells)
    BUFFER_BYTES.labels(cluster).set(body_bytes)
    BUFFER_OLDEST.labels(cluster).set(oldest_seconds)
    BUFFER_CONFLICTS.labels(cluster).set(conflicts)


def node_failed(node: str) -> None:
    NODE_FAILURES.labels(node).inc()


def breaker_moved(node: str, calls: str, is_open: bool) -> None:
    BREAKER_OPEN.labels(node, calls).set(1 if is_open else 0)


def sessions_abandoned(node: str, count: int) -> None:
    SESSIONS_ABANDONED.labels(node).set(count)


def created_ahead(cluster: str, seconds: float) -> None:
    CREATED_AHEAD.labels(cluster).set(seconds)


def replica_read(cause: str) -> None:
    REPLICA_READS.labels(cause).inc()


def cluster_led(cluster: str, promotion: int) -> None:
    PROMOTION.labels(cluster).set(promotion)


def lease_renewed(cluster: str, outcome: str) -> None:
    LEASE_RENEWALS.labels(cluster, outcome).inc()


def lease_extended(cluster: str) -> None:
    LEASE_EXTENDED.labels(cluster).set_to_current_time()


def lease_ended(cluster: str) -> None:
    """It needs none any more: no time is too long ago."""
    with suppress(KeyError):
        LEASE_EXTENDED.remove(cluster)


def failover_done(cluster: str, outcome: str) -> None:
    FAILOVERS.labels(cluster, outcome).inc()


def shards_created(count: int) -> None:
    SHARDS_CREATED.inc(count)


def cells_copied(count: int) -> None:
    CELLS_COPIED.inc(count)


def shard_moved(outcome: str, seconds_closed: float) -> None:
    SHARDS_MOVED.labels(outcome).inc()
    SHARD_CLOSED.observe(seconds_closed)


def replication_lag(cells: int, seconds: float) -> None:
    REPLICATION_CELLS.set(cells)
    REPLICATION_SECONDS.set(seconds)


def cells_delivered(group: str, count: int) -> None:
    TRIGGER_CELLS.labels(group, "delivered").inc(count)


def delivery_failed(group: str) -> None:
    TRIGGER_CELLS.labels(group, "failed").inc()


def cell_parked(group: str) -> None:
    TRIGGER_CELLS.labels(group, "parked").inc()


def cell_settled(group: str) -> None:
    TRIGGER_CELLS.labels(group, "settled").inc()


def lag_seen(group: str, shard: int, cells: int) -> None:
    TRIGGER_LAG.labels(group, str(shard)).set(max(0, cells))


def lag_elsewhere(group: str, shard: int) -> None:
    """Another process says it from now on."""
    with suppress(KeyError):
        TRIGGER_LAG.remove(group, str(shard))


def oldest_age(group: str, seconds: float) -> None:
    TRIGGER_OLDEST.labels(group).set(seconds)


def call_age(group: str, seconds: float) -> None:
    TRIGGER_CALL.labels(group).set(seconds)


def trigger_shards(group: str, count: int) -> None:
    TRIGGER_SHARDS.labels(group).set(count)


def owner_fenced(group: str) -> None:
    TRIGGER_FENCED.labels(group).inc()


def cells_mended(action: str, count: int) -> None:
    CELLS_MENDED.labels(action).inc(count)


def fsck_looked(rows: int, faults: Mapping[str, int]) -> None:
    FSCK_ROWS.inc(rows)
    for fault, count in faults.items():
        FSCK_FOUND.labels(fault).inc(count)


def index_cell_written(index: str, seconds: float) -> None:
    INDEX_LAG.labels(index).observe(seconds)


def index_cells_dropped(cause: str, count: int) -> None:
    INDEX_DROPPED.labels(cause).inc(count)


def renew_locks(part: object) -> None:
    """In a forked child: a lock that another thread of the parent held would never be released here."""
    if isinstance(part, Mapping):
        part = list(part.values())
    if isinstance(part, list):
        for each in part:
            renew_locks(each)
    elif isinstance(part, MetricWrapperBase | MutexValue):
        if "_lock" in vars(part):
            vars(part)["_lock"] = threading.Lock()  # the library offers no other way
        renew_locks(vars(part))


def _after_fork() -> None:
    renew_locks([metric for metric in globals().values() if isinstance(metric, MetricWrapperBase)])


os.register_at_fork(after_in_child=_after_fork)
