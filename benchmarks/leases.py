"""Primaries that take writes only under a lease: what it costs each put, and how long shards wait for a successor."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID, uuid4

from benchmarks.cells import BODY, SHARDS
from benchmarks.timing import Comparison, block_p50, paired
from schemaless_core import Datastore, PutStatus
from schemaless_core.promotion.ports import PromotionOrder
from tripstore.local.binlog import REPLICATION_USER
from tripstore.local.replication import LocalCluster
from tripstore.local.servers import Engine, LocalServers

COST_MAX = 1.02
#: From kill -9 of a primary to the first put of its shards that its successor stores.
STORED_SECONDS = 10.0


def measure(engine: Engine, *, quick: bool) -> Iterator[Comparison]:
    """A cluster with a replica, and one that keeps what waits; a worker watches."""
    rounds, calls = (1, 60) if quick else (24, 400)
    with LocalServers() as servers, TemporaryDirectory() as folder:
        (a,) = servers.clusters(engine, ["a"], replicas=1)
        b = servers.cluster(engine, "b", replicas=0)
        with Datastore.open(_config(a, b, Path(folder) / "control")) as store:
            store.create_schema()
            a.wait_for_replicas()
            promoter = store.promotions.promoter("a")
            promoter.promote(PromotionOrder(to=promoter.old(), leases=True))
            with store.failover():
                yield from _cost(store, rounds, calls)
                seconds = _until_stored(store, a)
    limit = [STORED_SECONDS * 1e6]
    yield paired("kill -9 to the first put that a successor stores / 10 s", [seconds * 1e6], limit, bound=("<=", 1.0))


def _config(a: LocalCluster, b: LocalCluster, control: Path) -> dict[str, object]:
    return {
        "datastore": "leased",
        "shards": SHARDS,
        "clusters": {
            "a": {"primary": a.primary.url, "replicas": [each.url for each in a.replicas]},
            "b": {"primary": b.primary.url},
        },
        "control": f"sqlite:///{control}",
        "replication": {"user": REPLICATION_USER, "password": a.primary.password},
        "buffer": {},
    }


def _cost(store: Datastore, rounds: int, calls: int) -> Iterator[Comparison]:
    """The same process, as one that has heard of the lease, and as one that has not: each the first in turn."""
    waiting = _rows_of(store, "a")
    rows = [next(waiting) for _ in range(calls)]
    times: dict[tuple[str, bool], list[float]] = {}
    for row in rows:
        store.put_cell(row, "READ", 1, BODY)
    for turn in range(rounds):
        for is_leased in (True, False)[:: 1 if turn % 2 else -1]:
            for guarded in store.clusters["a"].nodes:
                guarded.node.go_by_leases(is_leased)
            put = block_p50(lambda: store.put_cell(next(waiting), "BASE", 1, BODY), calls)
            its = iter(rows)
            read = block_p50(lambda: store.get_cell_latest(next(its), "READ"), calls)  # noqa: B023  # called in this round
            times.setdefault(("put", is_leased), []).append(put)
            times.setdefault(("read", is_leased), []).append(read)
    for guarded in store.clusters["a"].nodes:
        guarded.node.go_by_leases(True)
    for call in ("put", "read"):
        yield paired(f"{call} under a lease / without", times[call, True], times[call, False], bound=("<=", COST_MAX))


def _shards(store: Datastore, cluster: str) -> set[int]:
    return set(store.schema.plan().topology.shards_of(cluster))


def _rows_of(store: Datastore, cluster: str) -> Iterator[UUID]:
    shards = _shards(store, cluster)
    return (row for row in iter(uuid4, None) if store.shard_of(row) in shards)


def _until_stored(store: Datastore, cluster: LocalCluster) -> float:
    """Seconds; what is put meanwhile is buffered."""
    row = next(_rows_of(store, cluster.name))
    cluster.wait_for_replicas()
    cluster.primary.kill()
    begun = time.perf_counter()
    for number in range(1, 1_000_000):
        if store.put_cell(row, "AFTER", number, BODY).status is PutStatus.CREATED:
            break
    return time.perf_counter() - begun
