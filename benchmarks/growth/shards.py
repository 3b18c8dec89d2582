"""What calls take by the number of shards: a put, a get, a query of an index, a look at every log, `schema apply`."""

from __future__ import annotations

from itertools import count
from uuid import UUID, uuid4

from benchmarks.cells import BODY, PATIENT
from benchmarks.growth.figures import Growth, p50_ms, seconds_of
from benchmarks.indexes import DEFINITION, INDEX
from benchmarks.migration import wait
from benchmarks.triggers import running
from schemaless_core import Cell, Datastore
from tripstore.local.servers import LocalServers

SHARDS = (16, 1024, 4096)
CELLS = 20_000
SWEEPS = 20
DRIVER = UUID(int=7)


def measure(scale: float) -> Growth:
    sizes = tuple(max(round(size * scale), 16) for size in SHARDS)
    growth = Growth("Shards, on two clusters", "shards", sizes)
    for shards in sizes:
        with LocalServers() as servers:
            clusters = servers.clusters("mariadb", ["a", "b"], replicas=0, shards=shards // 2 + 100)
            nodes = {cluster.name: {"primary": cluster.primary.url} for cluster in clusters}
            config = {"datastore": "grown", "shards": shards, "clusters": nodes, "deadlines": PATIENT}
            with Datastore.open(config | {"indexes": [DEFINITION]}) as store:
                growth.note("`schema apply` (s)", seconds_of(store.create_schema))
                growth.note("`schema apply` again (s)", seconds_of(store.create_schema))
                _calls(store, growth, shards)
    return growth


def _calls(store: Datastore, growth: Growth, shards: int) -> None:
    for first in range(0, CELLS, 2_000):
        store.put_cells([Cell(uuid4(), "BASE", 1, BODY) for _ in range(min(2_000, CELLS - first))])
    keys = (UUID(int=number) for number in count(1))
    growth.note("put (ms)", p50_ms(lambda: store.put_cell(uuid4(), "BASE", 1, BODY)))
    growth.note("get (ms)", p50_ms(lambda: store.get_cell_latest(next(keys), "BASE")))
    with running(store.triggers.worker(store.indexes.groups)):
        wait(lambda: len(store.query_index(INDEX, str(DRIVER), limit=100).entries) == 100)
    growth.note("page of 100 of an index (ms)", p50_ms(lambda: store.query_index(INDEX, str(DRIVER), limit=100)))
    ends = {shard: store.end_of_log(shard) for shard in range(shards)}
    growth.note("look at the ends of all logs (ms)", p50_ms(lambda: store.get_cells_for_shards(ends, 1), SWEEPS))
