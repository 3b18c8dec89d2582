"""A backfill by blocks against one by row keys: heap blocks that Postgres had to look at, and cells a second.

Postgres has little memory of its own, so a block that is read again is asked for again. Each walk copies a company of
its own, which are equal, into a datastore of its own. The two take turns in going first, after a round on a small
company that only warms the servers, and are compared pair by pair. Statistics of Postgres count blocks of the mapped
tables and their partitions, read or found in memory.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from benchmarks.bulk import company
from benchmarks.cells import PATIENT
from benchmarks.timing import Comparison, paired
from schemaless_core import Datastore, ShardStatus
from tripstore.engines.backfill.runner import Ending
from tripstore.local.binlog import BinlogServer
from tripstore.local.postgres import PostgresServer
from tripstore.migration.backfill.backfill import Backfill, Wanted
from tripstore.migration.backfill.walk import WalkKind
from tripstore.migration.mirror.reverse import register_reverse
from tripstore.phase import Phase
from tripstore.wiring import connect

#: Ours and what it is compared with.
KINDS = (WalkKind.BLOCKS, WalkKind.KEYS)
TRIPS, TRIPS_LEAST = 300_000, 4_000
#: Pairs of walks.
ROUNDS = 3
SHARDS = 64
#: Of a Postgres that is larger than its memory.
SETTINGS = {"shared_buffers": "32MB", "max_wal_size": "4GB"}
#: Blocks that are looked at, for each one there is.
BLOCKS_BOUND, SPEED_BOUND = 1.5, 0.9
#: Until the statistics of a session are to be seen that has ended.
STATISTICS_SECONDS = 2.0

_MAPPED = """
WITH RECURSIVE mapped (oid) AS (
    SELECT name::regclass::oid FROM unnest(ARRAY['trips', 'billing_attempts', 'trip_notes', 'fare_adjustments']) AS name
    UNION ALL SELECT i.inhrelid FROM mapped AS m JOIN pg_inherits AS i ON i.inhparent = m.oid
)
"""
_LOOKED_AT = f"""{_MAPPED}
SELECT sum(heap_blks_read + heap_blks_hit)::bigint AS n FROM pg_statio_user_tables JOIN mapped ON oid = relid"""
_BLOCKS = f"""{_MAPPED}
SELECT sum(pg_relation_size(oid) / current_setting('block_size')::int)::bigint AS n FROM mapped"""


class Walked(NamedTuple):
    """What one walk took."""

    looked_at: int
    blocks: int
    cells: int
    seconds: float


def measure(postgres: PostgresServer, mirror: BinlogServer, *, scale: float) -> Iterator[Comparison]:
    """At scale 1 with as many trips as the issue measured."""
    trips = max(round(TRIPS * scale), TRIPS_LEAST)
    for kind in KINDS:
        _walked(postgres, mirror, kind, TRIPS_LEAST, "warm")
    walks: dict[WalkKind, list[Walked]] = {kind: [] for kind in KINDS}
    for number in range(ROUNDS):
        for kind in KINDS[:: 1 if number % 2 else -1]:
            walks[kind].append(_walked(postgres, mirror, kind, trips, str(number)))
    for kind, its in walks.items():
        bound = ("<=", BLOCKS_BOUND) if kind is WalkKind.BLOCKS else None
        name = f"heap blocks looked at by {kind}, of all there are"
        yield paired(name, [each.looked_at for each in its], [each.blocks for each in its], unit="", bound=bound)
    ours, theirs = ([each.cells / each.seconds for each in walks[kind]] for kind in KINDS)
    yield paired("by blocks, against by keys (cells)", ours, theirs, unit="/s", bound=(">=", SPEED_BOUND))


def _walked(postgres: PostgresServer, mirror: BinlogServer, kind: WalkKind, trips: int, turn: str) -> Walked:
    name = f"walked_by_{kind}_{turn}"
    url, layout = company(postgres, name, trips)
    config: dict[str, Any] = {
        "datastore": name,
        "shards": SHARDS,
        "clusters": {"a": {"primary": mirror.url}},
        "deadlines": PATIENT,
        "legacy": {"postgres": url, "layout": layout.to_document()},
    }
    core = {key: value for key, value in config.items() if key != "legacy"}
    with Datastore.open(core) as store:
        store.create_schema(status=ShardStatus.COPY)
    before = _number(postgres, name, _LOOKED_AT)
    with connect(config) as facade:
        register_reverse(facade.facade.store)
        facade.facade.flags.change(lambda flags: flags.with_phase(Phase.DUALWRITE), "benchmark")
        backfill = Backfill(facade.facade)
        started = time.perf_counter()
        job = backfill.begin(backfill.plan(Wanted(walk=kind)))
        assert backfill.runner(job, "worker").run() is Ending.DONE
        seconds = time.perf_counter() - started
        counts = backfill.jobs.progress(job.id).counts
        assert counts["rows"] == trips, counts
    time.sleep(STATISTICS_SECONDS)  # sessions tell their statistics when they end, and no event says so
    looked_at = _number(postgres, name, _LOOKED_AT) - before
    return Walked(looked_at, _number(postgres, name, _BLOCKS), counts["equal"], seconds)


def _number(postgres: PostgresServer, database: str, statement: str) -> int:
    ((found,),) = (row.values() for row in postgres.query(statement, database=database))
    return int(str(found))
