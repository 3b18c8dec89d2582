"""Where the demo plays: two clusters, in folders or on real servers, and the configuration that leads to them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tripstore.example import ExampleCluster, render, write_private
from tripstore.local.mariadb import find_mariadb
from tripstore.local.replication import Cluster
from tripstore.local.servers import LocalServers

Engine = Literal["sqlite", "mariadb", "mysql"]

SHARDS = 64
NAMES = ("a", "b")

#: A worker of the demo is killed, and nobody wants to wait as long as production may.
QUICK_LEASES = """
# Of the demo, where a worker is killed: the others take over sooner than by default.
triggers:
  lease_seconds: 1.0
"""


@dataclass(frozen=True, slots=True)
class Playground:
    """Two clusters; `servers` is empty when they are folders."""

    engine: Engine
    config: Path
    servers: tuple[Cluster, ...]

    def describe(self) -> str:
        if not self.servers:
            return f"2 clusters, a folder each: {', '.join(NAMES)}"
        count = sum(len(cluster.servers) for cluster in self.servers)
        version = self.servers[0].primary.version
        return f"2 clusters, {count} servers (a primary and a replica each), version {version}"


def engine_here() -> Engine:
    """Return the engine that the demo takes by itself: real servers when they are installed."""
    return "sqlite" if find_mariadb() is None else "mariadb"


@contextmanager
def playground(engine: Engine, folder: Path) -> Iterator[Playground]:
    """Lend a playground; servers end with the block, folders stay with whoever owns `folder`."""
    config = folder / "tripstore.yaml"
    if engine == "sqlite":
        clusters = {name: ExampleCluster(f"sqlite:///clusters/{name}") for name in NAMES}
        write_private(config, render("trips", SHARDS, clusters) + QUICK_LEASES, replace=False)
        yield Playground(engine, config, ())
        return
    with LocalServers() as servers:
        made = servers.clusters(engine, list(NAMES), replicas=1, shards=SHARDS)
        clusters = {
            cluster.name: ExampleCluster(cluster.primary.url, [replica.url for replica in cluster.replicas])
            for cluster in made
        }
        write_private(config, render("trips", SHARDS, clusters) + QUICK_LEASES, replace=False)
        yield Playground(engine, config, tuple(made))
