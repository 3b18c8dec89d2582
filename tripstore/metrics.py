"""Every metric of the facade, as pure emit functions. Names and labels use the words of the glossary.

Directions are `forward` (to Schemaless) and `reverse` (into the legacy tables); backends `postgres` and `schemaless`.
"""

from __future__ import annotations

import os
from functools import lru_cache

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.metrics import MetricWrapperBase

from schemaless_core.metrics import renew_locks

_SECONDS = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_PAUSE_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0)

# The facade.

CALL_SECONDS = Histogram(
    "tripstore_call_seconds",
    "Duration of a call of the facade, by phase, operation, backend that answered, and outcome.",
    ["phase", "operation", "backend", "outcome"],
    buckets=_SECONDS,
)
REFUSALS = Counter(
    "tripstore_refusals_total",
    "Calls that a backend refused because this process went by an old authority row; they were repeated.",
    ["backend"],
)
COHORT_READS = Counter(
    "tripstore_cohort_reads_total",
    "Reads of a cohort, by operation and why they went where: `answered`, or the reason they went to the authority.",
    ["operation", "reason"],
)
EXPERIMENT_CALLS = Counter(
    "tripstore_experiment_calls_total",
    "Calls of queries under experiment, by experiment and side: `control`, `candidate`, or either with ` failed`.",
    ["experiment", "side"],
)
LAYOUT_RELOADS = Counter(
    "tripstore_layout_reloads_total", "Times that this process loaded another layout, since that is in force."
)
LAYOUT_CHANGES = Counter("tripstore_layout_changes_total", "Layouts that were to be put in force.", ["outcome"])
AUTHORITY_EPOCH = Gauge("tripstore_authority_epoch", "Epoch of the authority row, as this process knows it.")
AUTHORITY = Gauge(
    "tripstore_authority", "1 for the backend that is the authority, as this process knows it.", ["backend"]
)
PHASE = Gauge("tripstore_phase", "1 for the phase that this process goes by.", ["phase"])

# The HTTP front.

HTTP_SECONDS = Histogram(
    "tripstore_http_seconds",
    "Duration of a call over HTTP, by route and status.",
    ["route", "status"],
    buckets=_SECONDS,
)

# The mirror.

MIRROR_LAG_CHANGES = Gauge(
    "tripstore_mirror_lag_changes", "Changes in the queue of Postgres, parked ones excepted.", ["direction"]
)
MIRROR_LAG_SECONDS = Gauge(
    "tripstore_mirror_lag_seconds",
    "Age of the oldest of them; reverse: of the oldest cell that this process was handed last.",
    ["direction"],
)
MIRROR_PARKED = Gauge("tripstore_mirror_parked", "Changes that were set aside.", ["direction"])
RELAY_CHANGES = Counter(
    "tripstore_relay_changes_total",
    "Claimed changes by what became of them: delivered, waiting (its server did not take it), parked.",
    ["outcome"],
)
RELAY_SECONDS = Histogram(
    "tripstore_relay_seconds", "Claim, send and mark of one batch.", buckets=(*_SECONDS, 5.0, 10.0)
)
RELAY_BATCH = Gauge("tripstore_relay_batch_changes", "Changes that this process claims at once.")
RELAY_FAILURES = Counter(
    "tripstore_relay_failures_total", "Batches of which nothing was delivered, by cause.", ["cause"]
)
UNDELIVERABLE = Counter(
    "tripstore_undeliverable_total",
    "Changes that will never be delivered as they are, by direction and cause: conflict, refused, unreadable.",
    ["direction", "cause"],
)
REVERSE_CELLS = Counter(
    "tripstore_reverse_cells_total",
    "Cells that the reverse mirror looked at, by mode (rehearsal, mirror) and what came of it.",
    ["mode", "outcome"],
)
REVERSE_JOINT_CELLS = Counter(
    "tripstore_reverse_joint_cells_total",
    "Cells that Postgres lacked, by what came of putting many of them by one commit: stored, or left to be put singly.",
    ["outcome"],
)
REVERSE_LEGACY_IDS = Counter(
    "tripstore_reverse_legacy_ids_total", "Legacy ids that Postgres gave to rows made in Schemaless."
)
NUMBERS_DRAWN = Counter(
    "tripstore_numbers_drawn_total", "Numbers of child rows that this process drew from sequences ahead of its appends."
)

# The hand-over.

CELLS_REPAIRED = Counter("tripstore_cells_repaired_total", "Steps of repair that were done, by action.", ["action"])
ACCEPTANCES = Counter(
    "tripstore_postgres_acceptances_total",
    "Promoted Postgres servers: accepted with nothing lost, accepted though a decision was lost, refused.",
    ["outcome"],
)
DISTRUSTS = Counter(
    "tripstore_postgres_distrusted_total", "Times this process has shut a Postgres that says less than was known."
)
LOST_CHANGES = Counter(
    "tripstore_lost_changes_total",
    "Changes that a promoted Postgres lost: left open by a look, put into Postgres again, or refused there.",
    ["outcome"],
)
HANDOVERS = Counter("tripstore_handovers_total", "Hand-overs by direction and outcome.", ["direction", "outcome"])
HANDOVER_SECONDS = Histogram(
    "tripstore_handover_pause_seconds",
    "How long no backend took writes during a hand-over.",
    ["direction"],
    buckets=_PAUSE_SECONDS,
)
CALLER_PAUSE_SECONDS = Histogram(
    "tripstore_caller_pause_seconds",
    "How long a call waited for a hand-over to end.",
    ["operation"],
    buckets=_PAUSE_SECONDS,
)

# labels() looks its child up under a lock; the hot path keeps the children.
_call_child = lru_cache(maxsize=1024)(CALL_SECONDS.labels)
_cohort_child = lru_cache(maxsize=256)(COHORT_READS.labels)
_experiment_child = lru_cache(maxsize=512)(EXPERIMENT_CALLS.labels)
_relay_child = lru_cache(maxsize=16)(RELAY_CHANGES.labels)
_reverse_child = lru_cache(maxsize=32)(REVERSE_CELLS.labels)

_BACKENDS = ("postgres", "schemaless")
_PHASES = ("off", "dualwrite", "shadow", "live", "rampdown", "complete")


def call_finished(phase: str, operation: str, backend: str, outcome: str, seconds: float) -> None:
    _call_child(phase, operation, backend, outcome).observe(seconds)


def http_answered(route: str, status: int, seconds: float) -> None:
    HTTP_SECONDS.labels(route, str(int(status))).observe(seconds)


def call_refused(backend: str) -> None:
    REFUSALS.labels(backend).inc()


def cohort_read(operation: str, reason: str) -> None:
    _cohort_child(operation, reason).inc()


def experiment_answered(experiment: str, side: str) -> None:
    _experiment_child(experiment, side).inc()


def layout_changed(outcome: str) -> None:
    LAYOUT_CHANGES.labels(outcome).inc()


def layout_reloaded() -> None:
    LAYOUT_RELOADS.inc()


def authority_seen(epoch: int, backend: str) -> None:
    AUTHORITY_EPOCH.set(epoch)
    for each in _BACKENDS:
        AUTHORITY.labels(each).set(each == backend)


def phase_seen(phase: str) -> None:
    for each in _PHASES:
        PHASE.labels(each).set(each == phase)


def mirror_seen(direction: str, changes: int, seconds: float, parked: int) -> None:
    """The mirror's lag, as the last look found it."""
    MIRROR_LAG_CHANGES.labels(direction).set(changes)
    MIRROR_LAG_SECONDS.labels(direction).set(seconds)
    MIRROR_PARKED.labels(direction).set(parked)


def mirror_late(direction: str, seconds: float) -> None:
    """The age of what was carried, or could not be, just now."""
    MIRROR_LAG_SECONDS.labels(direction).set(seconds)


def mirror_idle(direction: str) -> None:
    """No worker is to carry in this direction now: what stood here would be old news for ever."""
    mirror_seen(direction, 0, 0.0, 0)


def changes_relayed(outcome: str, count: int) -> None:
    if count:
        _relay_child(outcome).inc(count)


def relay_turned(seconds: float, batch: int) -> None:
    RELAY_SECONDS.observe(seconds)
    RELAY_BATCH.set(batch)


def relay_failed(cause: str) -> None:
    RELAY_FAILURES.labels(cause).inc()


def change_undeliverable(direction: str, cause: str, count: int = 1) -> None:
    UNDELIVERABLE.labels(direction, cause).inc(count)


def cells_reversed(mode: str, outcome: str, count: int = 1) -> None:
    if count:
        _reverse_child(mode, outcome).inc(count)


def cells_put_jointly(stored: int, left: int) -> None:
    REVERSE_JOINT_CELLS.labels("stored").inc(stored)
    REVERSE_JOINT_CELLS.labels("left").inc(left)


def legacy_ids_given(count: int) -> None:
    REVERSE_LEGACY_IDS.inc(count)


def numbers_drawn(count: int) -> None:
    NUMBERS_DRAWN.inc(count)


def cells_repaired(action: str, count: int) -> None:
    CELLS_REPAIRED.labels(action).inc(count)


def postgres_distrusted() -> None:
    DISTRUSTS.inc()


def postgres_accepted(outcome: str) -> None:
    ACCEPTANCES.labels(outcome).inc()


def lost_changes(outcome: str, count: int) -> None:
    LOST_CHANGES.labels(outcome).inc(count)


def handover_ended(direction: str, outcome: str, pause_seconds: float) -> None:
    HANDOVERS.labels(direction, outcome).inc()
    HANDOVER_SECONDS.labels(direction).observe(pause_seconds)


def caller_paused(operation: str, seconds: float) -> None:
    CALLER_PAUSE_SECONDS.labels(operation).observe(seconds)


def _after_fork() -> None:
    renew_locks([metric for metric in globals().values() if isinstance(metric, MetricWrapperBase)])


os.register_at_fork(after_in_child=_after_fork)
