"""A cluster of servers of its own beside another cluster, for tests that promote, kill and salvage."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from schemaless_core import Cell, Datastore
from schemaless_core.promotion.ports import PromotionOrder
from schemaless_core.promotion.steps import Promoted
from tests.chaos.actors import wait_until
from tests.chaos.test_unresponsive_server import rows_on
from tests.fscks import DEEP, kinds_in
from tests.stores import ServerEngine
from tripstore.local.binlog import REPLICATION_USER, BinlogServer
from tripstore.local.replication import LocalCluster
from tripstore.local.servers import LocalServers

DEADLINES = {"put_seconds": 1.0, "read_seconds": 5.0, "connect_seconds": 2.0, "pool_seconds": 5.0}


class Promotable(NamedTuple):
    """A datastore whose cluster a is to have another primary, and b keeps what waits."""

    document: dict[str, Any]
    store: Datastore
    cluster: LocalCluster
    #: The primary of b, which has no replica.
    other: BinlogServer

    def name(self, server: BinlogServer) -> str:
        return f"mysql://root@127.0.0.1:{server.port}"

    @property
    def old(self) -> BinlogServer:
        return self.cluster.primary

    def replica(self, n: int = 0) -> BinlogServer:
        return self.cluster.replicas[n]

    def order(self, to: BinlogServer | None = None, dead: tuple[BinlogServer, ...] = ()) -> PromotionOrder:
        return PromotionOrder("" if to is None else self.name(to), tuple(sorted(self.name(each) for each in dead)))

    def promote(self, order: PromotionOrder | None = None) -> Promoted:
        return self.store.promotions.promoter("a").promote(order or PromotionOrder())

    def put(self, count: int, body: Any = "x") -> list[Cell]:
        """Cells of cluster a."""
        cells = [Cell(row, "BASE", 1, body) for row in rows_on(self.store, "a", count)]
        for cell in cells:
            self.store.using(deadline=10.0).put_cell(*cell.key, cell.body)
        return cells

    def log(self, store: Datastore | None = None) -> list[tuple[UUID, str, int, Any]]:
        """Every cell of every log, each as often as it is there; pages prove that no added id is missing."""
        its = store or self.store
        pages = [its.get_cells_for_shard(shard, 0, 10_000) for shard in range(its.config.shards)]
        return sorted(((*cell.key, cell.body) for page in pages for cell in page.cells), key=repr)

    def faults(self) -> list[str]:
        """What fsck finds, once all servers have what the primary has."""
        self.wait_until_equal(*(each for each in self.cluster.servers if self.name(each) != self.leads()))
        return kinds_in(self.store, DEEP)

    def leads(self) -> str:
        """The server that leads, as this process finds out."""
        self.store.clusters["a"].find_primary(5.0)
        return self.store.clusters["a"].primary.node.name

    def wait_until_equal(self, *servers: BinlogServer) -> None:
        """Until these have all that cluster a's primary has now: writers may be at work."""

        def heads(server: BinlogServer) -> dict[Any, tuple[Any, ...]]:
            name = self.store.config.datastore
            states = server.query(f"SELECT shard, epoch, state, next_added_id FROM {name}_meta.shard_state")
            return {each["shard"]: (each["epoch"], each["state"], each["next_added_id"]) for each in states}

        def has_all(server: BinlogServer) -> bool:
            its = heads(server)
            return all(its[shard][:2] == head[:2] and its[shard][2] >= head[2] for shard, head in wanted.items())

        wanted = heads(next(each for each in self.cluster.servers if self.name(each) == self.leads()))
        for server in servers:
            try:
                wait_until(f"{server.name} has what the primary had", partial(has_all, server))
            except AssertionError as late:
                raise AssertionError(f"{late}: {wanted}, {heads(server)}, {server.replica_status()}") from late


@contextmanager
def promotable(engine: ServerEngine, folder: Path, *, replicas: int = 2, **options: Any) -> Iterator[Promotable]:
    """Its servers, and their files, go when the test ends."""
    with LocalServers() as servers:
        a, b = (servers.cluster(engine, name, replicas=count) for name, count in (("a", replicas), ("b", 0)))
        document: dict[str, Any] = {
            "datastore": "trips",
            "shards": 4,
            "clusters": {
                "a": {"primary": a.primary.url, "replicas": [each.url for each in a.replicas]},
                "b": {"primary": b.primary.url},
            },
            "control": f"sqlite:///{folder}",
            "replication": {"user": REPLICATION_USER, "password": a.primary.password},
            "deadlines": DEADLINES,
        } | options
        with Datastore.open(document) as store:
            store.create_schema()
            a.wait_for_replicas()
            yield Promotable(document, store, a, b.primary)
