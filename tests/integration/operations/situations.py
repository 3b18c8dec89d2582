"""For each alert: figures under which it tells an operator, and the nearest figures under which it must not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

#: Between two samples; so four of them are a minute.
INTERVAL = "15s"


class Situation(NamedTuple):
    """Samples in promtool's words: `0x3 1x8` are four zeros and nine ones, `_x4` is four times nothing."""

    alert: str
    series: Mapping[str, str]
    at: str
    #: Labels of what is told; None where the alert is silent.
    labels: Mapping[str, str] | None = None
    summary: str = ""


FIRES = [
    Situation(
        "TripstoreNoWorker",
        {'tripstore_mirror_lag_seconds{direction="forward"}': "0x40 stale"},
        "14m",
        {},
        "No worker tells how late the mirror is, or what waits in buffers.",
    ),
    Situation(
        "TripstoreNoWorker",
        {'schemaless_buffer_cells{cluster="a"}': "0x40 stale"},
        "14m",
        {},
        "No worker tells how late the mirror is, or what waits in buffers.",
    ),
    Situation(
        "TripstoreServerDown",
        {'schemaless_breaker_open{node="db1:3306",calls="writes"}': "0x3 1x12"},
        "3m",
        {"node": "db1:3306", "calls": "writes"},
        "db1:3306 takes no writes of some process.",
    ),
    Situation(
        "TripstoreCommitsWait",
        {'schemaless_sessions_abandoned{node="db1:3306"}': "0x3 1x12"},
        "3m",
        {"node": "db1:3306"},
        "db1:3306 has not ended calls that ran out of time.",
    ),
    Situation(
        "TripstoreBufferedCellsWait",
        {
            'schemaless_buffer_oldest_seconds{cluster="a"}': "61x20",
            'schemaless_breaker_open{node="db1:3306",calls="writes"}': "0x20",
        },
        "3m",
        {"cluster": "a"},
        "Cells wait in the buffer of a, and every server seems to be up.",
    ),
    Situation(
        "TripstoreBufferConflict",
        {'schemaless_buffer_conflicts{cluster="a"}': "1x4"},
        "1m",
        {"cluster": "a"},
        "A cell that waited in the buffer of a has another body than the stored one.",
    ),
    Situation(
        "TripstoreLeaseNotExtended",
        {
            'schemaless_lease_renewals_total{cluster="a",outcome="extended"}': "0+15x8 120x20",
            'schemaless_lease_renewals_total{cluster="a",outcome="silent"}': "0x8 0+15x20",
        },
        "5m",
        {"cluster": "a"},
        "No worker extends the lease of the primary of a, which takes no writes without one.",
    ),
    Situation(  # a worker that began when the primary was silent already has no counter of extensions
        "TripstoreLeaseNotExtended",
        {'schemaless_lease_renewals_total{cluster="a",outcome="silent"}': "0+15x20"},
        "3m",
        {"cluster": "a"},
        "No worker extends the lease of the primary of a, which takes no writes without one.",
    ),
    Situation(
        "TripstoreFailover",
        {'schemaless_failovers_total{cluster="a",outcome="done"}': "_x8 1x40"},
        "3m",
        {"cluster": "a", "outcome": "done"},
        "The primary of a was silent; another one in its place: done.",
    ),
    Situation(
        "TripstoreFailover",
        {'schemaless_failovers_total{cluster="a",outcome="refused"}': "1x60 2x40"},
        "17m",
        {"cluster": "a", "outcome": "refused"},
        "The primary of a was silent; another one in its place: refused.",
    ),
    Situation(
        "TripstoreBug",
        {'schemaless_call_seconds_count{operation="put_cell",outcome="bug"}': "_x8 1x40"},
        "3m",
        {"operation": "put_cell"},
        "put_cell ended with an exception that is not one of tripstore's.",
    ),
    Situation(
        "TripstoreCallsFail",
        {'schemaless_call_seconds_count{operation="get_cells_for_shard",outcome="failed"}': "_x8 1x40"},
        "3m",
        {"operation": "get_cells_for_shard"},
        "get_cells_for_shard fails; most likely a log has a hole.",
    ),
    Situation(
        "TripstoreTwoBodies",
        {'schemaless_cells_total{status="conflict"}': "_x8 1x40"},
        "3m",
        {},
        "Services put another body under a key that is taken.",
    ),
    Situation(
        "TripstoreReplicaBroken",
        {'schemaless_repeats_total{cause="log_hole"}': "0+1x40"},
        "8m",
        {},
        "A replica lacks cells that its primary has.",
    ),
    Situation(
        "TripstoreFsckFound",
        {'schemaless_fsck_found_total{fault="hole"}': "_x8 1x40"},
        "3m",
        {"fault": "hole"},
        "fsck found hole.",
    ),
    Situation(
        "TripstoreGroupBehind",
        {'schemaless_trigger_oldest_seconds{group="bill_rider"}': "90x40"},
        "6m",
        {"group": "bill_rider"},
        "bill_rider is 1m 30s behind.",
    ),
    Situation(
        "TripstoreFunctionHangs",
        {'schemaless_trigger_call_seconds{group="bill_rider"}': "31x4"},
        "1m",
        {"group": "bill_rider"},
        "A function of bill_rider has not returned for 31s.",
    ),
    Situation(
        "TripstoreCellParked",
        {'schemaless_trigger_cells_total{group="bill_rider",outcome="parked"}': "_x8 1x40"},
        "3m",
        {"group": "bill_rider"},
        "bill_rider sets cells aside.",
    ),
    Situation(
        "TripstoreIndexLate",
        {
            'schemaless_index_lag_seconds_bucket{index="trips_of_city",le="0.1"}': "0+98x60",
            'schemaless_index_lag_seconds_bucket{index="trips_of_city",le="0.25"}': "0+100x60",
            'schemaless_index_lag_seconds_bucket{index="trips_of_city",le="+Inf"}': "0+100x60",
        },
        "12m",
        {"index": "trips_of_city"},
        "One entry of trips_of_city in a hundred is later than 0.1 s.",
    ),
    Situation(
        "TripstoreClockJumped",
        {'schemaless_created_ahead_seconds{cluster="a"}': "61x4"},
        "1m",
        {"cluster": "a"},
        "Shards of a have cells of the future.",
    ),
    Situation(
        "TripstoreMirrorLate",
        {'tripstore_mirror_lag_seconds{direction="forward"}': "11x20"},
        "2m",
        {"direction": "forward"},
        "The forward mirror is 11s behind.",
    ),
    Situation(
        "TripstoreChangeParked",
        {'tripstore_mirror_parked{direction="reverse"}': "1x4"},
        "1m",
        {"direction": "reverse"},
        "Changes of the reverse mirror are set aside; no hand-over is possible until they are settled.",
    ),
    Situation(
        "TripstoreStoresDiffer",
        {'tripstore_shadow_reads_total{operation="get_cell",outcome="mismatch",label="field"}': "_x8 1x40"},
        "3m",
        {"operation": "get_cell"},
        "Shadow reads of get_cell found another answer.",
    ),
    Situation(
        "TripstoreRewriteDiffers",
        {'tripstore_shadow_reads_total{operation="experiment:fares",outcome="mismatch",label="order"}': "_x8 1x40"},
        "3m",
        {"operation": "experiment:fares"},
        "A rewritten query answers otherwise than the old one: experiment:fares.",
    ),
    Situation(
        "TripstoreCandidateStuck",
        {'tripstore_experiments_stuck{instance="a"}': "1x40", 'tripstore_experiments_stuck{instance="b"}': "1x40"},
        "6m",
        {},
        "2 queries under experiment do not come back; each keeps a thread of its process.",
    ),
    Situation(
        "TripstoreBackfillStuck",
        {'tripstore_backfill_failures_total{cause="NodeUnavailable"}': "0+1x60"},
        "12m",
        {"cause": "NodeUnavailable"},
        "Chunks of a backfill do not get through: NodeUnavailable.",
    ),
    Situation(
        "TripstoreStandbyBehind",
        {"schemaless_replication_lag_seconds": "90x40"},
        "6m",
        {},
        "The standby lacks what was stored in the last 90 seconds.",
    ),
    Situation(
        "TripstorePhasesDiffer",
        {
            'tripstore_phase{instance="a",phase="shadow"}': "1x20",
            'tripstore_phase{instance="a",phase="dualwrite"}': "0x20",
            'tripstore_phase{instance="b",phase="shadow"}': "0x20",
            'tripstore_phase{instance="b",phase="dualwrite"}': "1x20",
        },
        "2m",
        {},
        "Processes go by different phases.",
    ),
]

SILENT = [
    # One worker of two is left.
    Situation(
        "TripstoreNoWorker",
        {
            'tripstore_mirror_lag_seconds{direction="forward",instance="a"}': "0x40 stale",
            'tripstore_mirror_lag_seconds{direction="forward",instance="b"}': "0x80",
        },
        "14m",
    ),
    # There never was one: not every company has a mirror.
    Situation("TripstoreNoWorker", {'schemaless_cells_total{status="created"}': "0x80"}, "14m"),
    Situation("TripstoreServerDown", {'schemaless_breaker_open{node="db1:3306",calls="writes"}': "0x20"}, "3m"),
    Situation("TripstoreCommitsWait", {'schemaless_sessions_abandoned{node="db1:3306"}': "0x20"}, "3m"),
    # A server is down, and its own alert says so.
    Situation(
        "TripstoreBufferedCellsWait",
        {
            'schemaless_buffer_oldest_seconds{cluster="a"}': "600x20",
            'schemaless_breaker_open{node="db1:3306",calls="writes"}': "1x20",
        },
        "4m",
    ),
    Situation("TripstoreBufferedCellsWait", {'schemaless_buffer_oldest_seconds{cluster="a"}': "60x20"}, "4m"),
    Situation("TripstoreBufferConflict", {'schemaless_buffer_conflicts{cluster="a"}': "0x4"}, "1m"),
    # Another worker extends it.
    Situation(
        "TripstoreLeaseNotExtended",
        {
            'schemaless_lease_renewals_total{cluster="a",outcome="denied",instance="a"}': "0+15x20",
            'schemaless_lease_renewals_total{cluster="a",outcome="extended",instance="b"}': "0+15x20",
        },
        "4m",
    ),
    # Longer ago than the ten minutes.
    Situation("TripstoreFailover", {'schemaless_failovers_total{cluster="a",outcome="done"}': "_x8 1x80"}, "15m"),
    Situation("TripstoreBug", {'schemaless_call_seconds_count{operation="put_cell",outcome="bug"}': "_x8 1x80"}, "9m"),
    Situation(
        "TripstoreBug", {'schemaless_call_seconds_count{operation="put_cell",outcome="unavailable"}': "_x8 1x8"}, "3m"
    ),
    Situation(
        "TripstoreCallsFail", {'schemaless_call_seconds_count{operation="get_cell",outcome="failed"}': "3x80"}, "9m"
    ),
    Situation("TripstoreTwoBodies", {'schemaless_cells_total{status="exists"}': "0+9x40"}, "3m"),
    # One hole is no broken replica.
    Situation("TripstoreReplicaBroken", {'schemaless_repeats_total{cause="log_hole"}': "0x8 1x40"}, "9m"),
    Situation("TripstoreFsckFound", {'schemaless_fsck_found_total{fault="not_compared"}': "_x8 1x40"}, "3m"),
    Situation("TripstoreGroupBehind", {'schemaless_trigger_oldest_seconds{group="bill_rider"}': "60x40"}, "8m"),
    Situation("TripstoreFunctionHangs", {'schemaless_trigger_call_seconds{group="bill_rider"}': "30x4"}, "1m"),
    Situation(
        "TripstoreCellParked", {'schemaless_trigger_cells_total{group="bill_rider",outcome="failed"}': "0+1x40"}, "3m"
    ),
    Situation(
        "TripstoreIndexLate",
        {
            'schemaless_index_lag_seconds_bucket{index="trips_of_city",le="0.1"}': "0+100x60",
            'schemaless_index_lag_seconds_bucket{index="trips_of_city",le="0.25"}': "0+100x60",
            'schemaless_index_lag_seconds_bucket{index="trips_of_city",le="+Inf"}': "0+100x60",
        },
        "12m",
    ),
    Situation("TripstoreClockJumped", {'schemaless_created_ahead_seconds{cluster="a"}': "60x4"}, "1m"),
    Situation("TripstoreMirrorLate", {'tripstore_mirror_lag_seconds{direction="forward"}': "10x20"}, "3m"),
    Situation("TripstoreChangeParked", {'tripstore_mirror_parked{direction="reverse"}': "0x4"}, "1m"),
    # A rewritten query has an alert of its own, and the other way round.
    Situation(
        "TripstoreStoresDiffer",
        {'tripstore_shadow_reads_total{operation="experiment:fares",outcome="mismatch",label="order"}': "0+1x40"},
        "3m",
    ),
    Situation(
        "TripstoreRewriteDiffers",
        {'tripstore_shadow_reads_total{operation="get_cell",outcome="mismatch",label="field"}': "0+1x40"},
        "3m",
    ),
    Situation("TripstoreCandidateStuck", {"tripstore_experiments_stuck": "0x4 1x12 0x20"}, "4m"),
    Situation("TripstoreBackfillStuck", {'tripstore_backfill_failures_total{cause="MustWait"}': "0+1x16 16x60"}, "12m"),
    Situation("TripstoreStandbyBehind", {"schemaless_replication_lag_seconds": "60x40"}, "8m"),
    # As the phase changes, processes follow within seconds.
    Situation(
        "TripstorePhasesDiffer",
        {
            'tripstore_phase{instance="a",phase="shadow"}': "0x4 1x20",
            'tripstore_phase{instance="a",phase="dualwrite"}': "1x4 0x20",
            'tripstore_phase{instance="b",phase="shadow"}': "0x5 1x20",
            'tripstore_phase{instance="b",phase="dualwrite"}': "1x5 0x20",
        },
        "1m15s",
    ),
]

#: The last look before an alert has held for as long as its rule wants: the first situation that fires it, that early.
EARLY = {
    "TripstoreNoWorker": "12m",
    "TripstoreServerDown": "1m45s",
    "TripstoreCommitsWait": "1m45s",
    "TripstoreBufferedCellsWait": "1m45s",
    "TripstoreLeaseNotExtended": "3m15s",
    "TripstoreReplicaBroken": "5m",
    "TripstoreGroupBehind": "4m45s",
    "TripstoreIndexLate": "5m",
    "TripstoreMirrorLate": "45s",
    "TripstoreCandidateStuck": "4m45s",
    "TripstoreBackfillStuck": "10m",
    "TripstoreStandbyBehind": "4m45s",
    "TripstorePhasesDiffer": "45s",
}
SOON = [next(each for each in FIRES if each.alert == alert)._replace(at=at, labels=None) for alert, at in EARLY.items()]
