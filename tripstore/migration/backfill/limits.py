"""What copying may do harm to, as measures: the load of Postgres, how late the mirror is and the replicas are."""

from __future__ import annotations

from collections.abc import Sequence

from schemaless_core.datastore import Datastore
from schemaless_core.deadline import Deadline
from schemaless_core.errors import Unavailable
from schemaless_core.servers.clusters import Cluster
from tripstore.backends.postgres.handover.queue import Queue
from tripstore.backends.postgres.handover.sessions import grant_to_see
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.backends.postgres.wire.probe import APPLICATION as PROBE
from tripstore.config import BackfillConfig
from tripstore.engines.backfill.errors import CannotCopy
from tripstore.engines.backfill.load_limit import LoadLimit
from tripstore.engines.backfill.throttle import Limit, Pace, RateLimit, SignalLimit, Throttle, Throttles

LOOK_SECONDS = 2.0

# A session that waits for a lock or a disk is at work as well: others wait for it. One that rests is not: copiers do.
# Nor is a probe: it would wait for what services wait for, and count as one of them. Of roles that ours is no member of
# Postgres hides what their sessions do; its own sessions have no role.
_AT_WORK = f"""\
SELECT count(*) FILTER (
    WHERE state = 'active' AND backend_type = 'client backend' AND wait_event IS DISTINCT FROM 'PgSleep'
        AND application_name IS DISTINCT FROM '{PROBE}'),
count(*) FILTER (WHERE backend_type IS NULL AND usesysid IS NOT NULL), current_user
FROM pg_catalog.pg_stat_activity
WHERE pid <> pg_catalog.pg_backend_pid() AND datname = pg_catalog.current_database()"""


def throttles(
    limits: BackfillConfig,
    database: LegacyDatabase,
    queue: Queue,
    store: Datastore,
    pace: Pace,
    more: Sequence[Throttle] = (),
) -> Throttle:
    """The limits of a configuration, and more, for one of the workers that share this pace."""
    found = list(more)
    if limits.rate:
        found.append(RateLimit(limits.rate, pace))
    if limits.postgres_load_max:
        found.append(LoadLimit(limits.postgres_load_max, lambda: at_work(database)))
    if limits.mirror_lag_seconds_max:
        most = limits.mirror_lag_seconds_max
        found.append(SignalLimit(Limit.MIRROR_LAG, "the mirror's lag", most, lambda: mirror_lag(database, queue)))
    if limits.replica_lag_cells_max and _replicas(store):
        cells = limits.replica_lag_cells_max
        found.append(SignalLimit(Limit.REPLICA_LAG, "a replica's lag", cells, lambda: replica_lag(store), unit="cells"))
    return Throttles(found)


def at_work(database: LegacyDatabase) -> float:
    """How many sessions of others are at work in the database; `CannotCopy` when some cannot be seen."""
    ((found, hidden, role),) = database.run(lambda connection: connection.rows(_AT_WORK), Deadline(LOOK_SECONDS))
    if hidden:
        raise CannotCopy(
            f"The load of Postgres cannot be measured: {role} may not see what {hidden} sessions of others do.",
            hint=f"{grant_to_see(role)}; or copy without a limit on the load.",
        )
    return float(found)


def mirror_lag(database: LegacyDatabase, queue: Queue) -> float:
    """The age of the oldest change that is not carried and not parked."""
    return database.run(queue.oldest_seconds, Deadline(LOOK_SECONDS))


def replica_lag(store: Datastore) -> float:
    """How many cells the slowest replica lacks. One that does not answer is no reason to wait: doctor tells of it."""
    return float(max((_behind(cluster) for cluster in _replicas(store)), default=0))


def _replicas(store: Datastore) -> Sequence[Cluster]:
    return [cluster for cluster in store.clusters.values() if cluster.replicas]


def _behind(cluster: Cluster) -> int:
    """Heads of the replicas first: what is added between the two looks is no lag of theirs, or little."""
    lags = [0]
    heads = cluster.primary.node.heads(None, Deadline(LOOK_SECONDS))
    for replica in cluster.replicas:
        try:
            known = replica.node.heads(None, Deadline(LOOK_SECONDS))
        except Unavailable:
            continue
        lags.append(sum(max(0, head.head - (known[n].head if n in known else 0)) for n, head in heads.items()))
    return max(lags)
