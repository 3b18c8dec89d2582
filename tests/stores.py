"""Stores for tests: every engine on real servers that are started once per run; a fresh datastore whenever asked."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, cast

from schemaless_core import CellStore, Datastore, Json, MemoryStore
from schemaless_core.config import TlsConfig, parse_config
from schemaless_core.control.database import CREATE_DATABASE, ControlDatabase
from schemaless_core.definitions.index import load_definitions
from schemaless_core.urls import parse_node_url
from tests.awaiting import over
from tests.databases import kept
from tests.facades import FACADES, FACADES_IN_SHORT, Facades
from tests.http_clients import OverHttp, Served
from tests.legacy_databases import FLAVOURS, free_backend, postgres_server
from tests.scale import SCALE
from tripstore.backends.postgres.backend import PostgresBackend
from tripstore.local.replication import LocalCluster
from tripstore.local.server import Server
from tripstore.local.servers import LocalServers

ServerEngine = Literal["mariadb", "mysql"]
SERVER_ENGINES: tuple[ServerEngine, ...] = ("mariadb", "mysql")
DATASTORE_ENGINES = ("sqlite", *SERVER_ENGINES)
STORE_ENGINES = ("memory", *DATASTORE_ENGINES)
#: What stands below the stores for asyncio: each of the two, and at full scale more of what is below them.
AWAITED = ("sqlite", "facade live cohort", *((*SERVER_ENGINES, "facade off") if SCALE >= 1 else ()))
AIO = "aio "
AIO_STORES = tuple(f"{AIO}{below}" for below in AWAITED)
#: Behind a real server of HTTP, asked by a real client.
HTTP = "http "
HTTP_STORES = (f"{HTTP}sqlite",)
#: Whatever shows the cell store; on Postgres with free columns.
CELL_STORES = (*STORE_ENGINES, *FLAVOURS, *FACADES_IN_SHORT, *AIO_STORES, *HTTP_STORES)
#: The same with a facade in every phase.
EVERY_CELL_STORE = (*STORE_ENGINES, *FLAVOURS, *FACADES, *AIO_STORES, *HTTP_STORES)

#: Two cores carry the servers, their replicas and the tests: what is not about deadlines gets generous ones.
PATIENT = {
    "put_seconds": 20.0,
    "read_seconds": 20.0,
    "scan_seconds": 60.0,
    "connect_seconds": 10.0,
    "pool_seconds": 20.0,
}

_numbers = itertools.count(1)


def over_cells(store: CellStore) -> CellStore:
    """The store for asyncio above a store, as a cell store again."""
    return cast(CellStore, over(store))


class Stores:
    """Opens stores and closes them at the end of the run.

    Servers have no replicas: to define a datastore's tables on each would take twice as long. `replicated` has others.
    """

    def __init__(self, servers: LocalServers, folder: Path, *, replicas: int = 0) -> None:
        self._servers = servers
        self._folder = folder
        self._replicas = replicas
        self._replicated: Stores | None = None
        self._clusters: dict[str, list[LocalCluster]] = {}
        self._open: list[Datastore | PostgresBackend] = []
        self._served: list[Served] = []
        #: Statements that copy the control database of an engine.
        self._made_by: dict[str, Sequence[str]] = {}
        self._facades = Facades(servers, self)

    @property
    def replicated(self) -> Stores:
        """Others, on servers of which each primary has a replica."""
        if self._replicas:
            return self
        if self._replicated is None:
            self._replicated = Stores(self._servers, self._folder / "replicated", replicas=1)
        return self._replicated

    def clusters(self, engine: ServerEngine) -> list[LocalCluster]:
        """Two clusters, the same for the whole run."""
        if engine not in self._clusters:
            names = [f"{engine}-{'replicated-' if self._replicas else ''}{name}" for name in "ab"]
            self._clusters[engine] = self._servers.clusters(engine, names, replicas=self._replicas)
        return self._clusters[engine]

    def primaries(self, engine: str) -> dict[str, Server]:
        """Of the clusters, by the names that they have in a configuration."""
        return {name: each.primary for name, each in zip("ab", self.clusters(cast(ServerEngine, engine)), strict=True)}

    def wait_for_replicas(self, engine: str) -> None:
        """Until they have all there is up to now; files have none."""
        if engine != "sqlite":
            for cluster in self.clusters(cast(ServerEngine, engine)):
                cluster.wait_for_replicas()

    @contextmanager
    def not_applying(self, engine: ServerEngine) -> Iterator[None]:
        """Replicas that have all there is up to now, receive what comes, and do not apply it."""
        word = "SLAVE" if engine == "mariadb" else "REPLICA"
        self.wait_for_replicas(engine)
        replicas = [replica for cluster in self.clusters(engine) for replica in cluster.replicas]
        for replica in replicas:
            replica.query(f"STOP {word} SQL_THREAD")
        try:
            yield
        finally:
            for replica in replicas:
                replica.query(f"START {word} SQL_THREAD")

    def config(self, engine: str, *, shards: int = 8, **options: Any) -> dict[str, Any]:
        """The configuration of a datastore that no other test uses."""
        name = f"t{os.getpid()}_{next(_numbers)}"
        if engine == "sqlite":
            clusters: Mapping[str, Any] = {
                cluster: {"primary": f"sqlite:///{self._folder / name / cluster}"} for cluster in ("a", "b")
            }
        else:
            clusters = {
                name: {"primary": cluster.primary.url, "replicas": [replica.url for replica in cluster.replicas]}
                for name, cluster in zip("ab", self.clusters(cast(ServerEngine, engine)), strict=True)
            }
        return {"datastore": name, "shards": shards, "clusters": clusters, "deadlines": PATIENT} | options

    def fresh(self, engine: str, *, shards: int = 8, **options: Any) -> Datastore:
        """A new datastore with its schema."""
        config = self.config(engine, shards=shards, **options)
        if "control" not in options and (engine == "sqlite" or "clusters" not in options):
            self.copy_control(engine, config["datastore"], config["clusters"]["a"]["primary"])
        datastore = Datastore.open(config)
        self._open.append(datastore)
        datastore.create_schema()
        return datastore

    def fresh_store(self, engine: str, *, shards: int = 8, indexes: Sequence[Json] = ()) -> CellStore:
        """The same, or the oracle, or one on Postgres, or one of these for asyncio."""
        if engine.startswith(AIO):
            return over_cells(self.fresh_store(engine.removeprefix(AIO), shards=shards, indexes=indexes))
        if engine.startswith(HTTP):
            return self._over_http(self.fresh(engine.removeprefix(HTTP), shards=shards, indexes=list(indexes)))
        if engine in DATASTORE_ENGINES:
            return self.fresh(engine, shards=shards, indexes=list(indexes))
        if engine in FACADES:
            with kept():
                return self._facades.fresh(engine, shards, indexes)
        definitions = load_definitions(list(indexes), self._folder, "trips")
        if engine == "memory":
            return MemoryStore(shards=shards, indexes=definitions, lagging_indexes=False)
        with kept():
            free = free_backend(self._servers, engine, shards)
        backend = PostgresBackend(free.database, free.layout, shards=shards, indexes=definitions)
        self._open.append(backend)
        return backend

    def _over_http(self, store: Datastore) -> CellStore:
        served = Served(store)
        self._served.append(served)
        return cast(CellStore, OverHttp(served, store))

    def control_opener(self, engine: str, *, has_tables: bool = True) -> Callable[[], ControlDatabase]:
        """Opens one control database that no other test uses, as often as it is called."""
        found = self.config(engine)
        if has_tables:
            self.copy_control(engine, found["datastore"], found["clusters"]["a"]["primary"])
        config = parse_config(found, self._folder)
        return lambda: ControlDatabase(config.control, config.datastore, config.tls, config.deadlines.connect_seconds)

    def copy_control(self, engine: str, datastore: str, primary: str) -> None:
        """Make the control database of a datastore on this primary, as a migration leaves it.

        The migration itself takes longer than all else of a datastore in files, and half of the time on a MariaDB.
        """
        if engine == "sqlite":
            shutil.copytree(self._migrated, primary.removeprefix("sqlite:///"))
            return
        name = f"{datastore}_control"
        server = self.clusters(cast(ServerEngine, engine))[0].primary
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(CREATE_DATABASE.format(name=name))
            cursor.execute(f"USE `{name}`")
            for statement in self._control_tables(engine):
                cursor.execute(statement)

    def _control_tables(self, engine: str) -> Sequence[str]:
        """What makes the tables of a control database, and their rows, on a server that has one to copy."""
        if engine not in self._made_by:
            server = self.clusters(cast(ServerEngine, engine))[0].primary
            control = ControlDatabase(parse_node_url("control", server.url), "migrated", TlsConfig(), 10.0)
            control.migrate()
            control.close()
            tables = [str(*row.values()) for row in server.query("SHOW TABLES FROM migrated_control")]
            filled = [table for table in tables if server.query(f"SELECT 1 FROM migrated_control.`{table}` LIMIT 1")]
            self._made_by[engine] = [
                *(f"CREATE TABLE `{table}` LIKE migrated_control.`{table}`" for table in tables),
                *(f"INSERT INTO `{table}` SELECT * FROM migrated_control.`{table}`" for table in filled),
            ]
        return self._made_by[engine]

    @cached_property
    def _migrated(self) -> Path:
        folder = self._folder / "migrated"
        control = ControlDatabase(parse_node_url("control", f"sqlite:///{folder}"), "migrated", TlsConfig(), 10.0)
        control.migrate()
        control.close()
        return folder

    @contextmanager
    def lent(self, engine: str, *, shards: int = 8) -> Iterator[CellStore]:
        """A fresh one for a test; facades and backends on Postgres are closed afterwards."""
        if engine.startswith(AIO):
            with self.lent(engine.removeprefix(AIO), shards=shards) as store:
                yield over_cells(store)
        elif engine in FACADES:
            with self._facades.lent(engine, shards) as store:
                yield store
        elif engine in FLAVOURS:
            with free_backend(self._servers, engine, shards) as store:
                yield store
        else:
            yield self.fresh_store(engine, shards=shards)

    def start_postgres(self, engine: str) -> None:
        """Raise `LocalServerError` when there is none of this flavour."""
        postgres_server(self._servers, FLAVOURS[engine])

    def close(self) -> None:
        if self._replicated is not None:
            self._replicated.close()
        self._facades.close()
        for served in self._served:
            served.close()
        for datastore in self._open:
            datastore.close()
