"""LocalServers: everything that runs on this machine for one test run, demo or benchmark, and ends with it.

with LocalServers() as servers:
    a = servers.cluster("mariadb", "a", replicas=1)
    a.primary.query("CREATE DATABASE trips")
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TypeVar

from tripstore.local.binlog import BinlogServer, ServerShape
from tripstore.local.disk import Disk, SharedDisk, SmallDisk
from tripstore.local.errors import LocalServerError
from tripstore.local.mariadb import MariaDBServer
from tripstore.local.mysql import MySQLServer
from tripstore.local.owner import FolderOwner
from tripstore.local.pgbouncer import PgBouncer, PoolMode
from tripstore.local.ports import free_port
from tripstore.local.postgres import PostgresServer
from tripstore.local.postgres_programs import Flavour
from tripstore.local.replication import LocalCluster, connect_replicas
from tripstore.local.server import NO_SETTINGS, Server, ServerPlace
from tripstore.local.standby import StandbyServer
from tripstore.local.zookeeper import ZooKeeperServer

Engine = Literal["mariadb", "mysql"]
AnyServer = TypeVar("AnyServer", bound=Server)

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,30}")


class LocalServers:
    """Starts servers and owns them. Closing it, or the end of this process, leaves no process and no file."""

    def __init__(self) -> None:
        self._owner = FolderOwner()
        self._servers: dict[str, Server] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def servers(self) -> tuple[Server, ...]:
        """Return all servers in the order of their creation."""
        return tuple(self._servers.values())

    @property
    def folder(self) -> Path:
        """Return the root folder, which goes with everything in it when this is closed."""
        return self._owner.folder

    @property
    def janitor_pid(self) -> int:
        """Return the pid of the process that clears up."""
        return self._owner.janitor_pid

    @property
    def token(self) -> str:
        """Return what every process started here carries in its environment as TRIPSTORE_LOCAL_TOKEN."""
        return self._owner.token

    def mariadb(
        self,
        name: str,
        *,
        shards: int = 64,
        disk_megabytes: int | None = None,
        settings: Mapping[str, str] = NO_SETTINGS,
        start: bool = True,
    ) -> MariaDBServer:
        """Add a single MariaDB server; `settings` are lines of my.cnf that win over ours."""
        shape = ServerShape(shards, settings=settings)
        return self._add(name, disk_megabytes, lambda place: MariaDBServer(place, shape), start)

    def mysql(
        self,
        name: str,
        *,
        shards: int = 64,
        disk_megabytes: int | None = None,
        settings: Mapping[str, str] = NO_SETTINGS,
        start: bool = True,
    ) -> MySQLServer:
        """Add a single MySQL 9 server; otherwise as `mariadb`."""
        shape = ServerShape(shards, settings=settings)
        return self._add(name, disk_megabytes, lambda place: MySQLServer(place, shape), start)

    def postgres(
        self,
        name: str = "postgres",
        *,
        flavour: Flavour = "any",
        disk_megabytes: int | None = None,
        settings: Mapping[str, str] = NO_SETTINGS,
        start: bool = True,
    ) -> PostgresServer:
        """Add a Postgres server: the machine's, the wheel's, or the first of the two that is there."""
        return self._add(name, disk_megabytes, lambda place: PostgresServer(place, flavour, settings), start)

    def standby(self, name: str, primary: PostgresServer, *, start: bool = True) -> StandbyServer:
        """Add a hot standby of a running Postgres server, which follows it by streaming."""
        return self._add(name, None, lambda place: StandbyServer(place, primary), start)

    def pgbouncer(
        self,
        name: str,
        upstream: PostgresServer,
        mode: PoolMode,
        *,
        settings: Mapping[str, str] = NO_SETTINGS,
        start: bool = True,
    ) -> PgBouncer:
        """Add a PgBouncer before a Postgres server; `settings` are lines of its pgbouncer.ini that win over ours."""
        return self._add(name, None, lambda place: PgBouncer(place, upstream, mode, settings), start)

    def zookeeper(self, name: str = "zookeeper", *, start: bool = True) -> ZooKeeperServer:
        """Add a ZooKeeper."""
        return self._add(name, None, ZooKeeperServer, start)

    def cluster(
        self,
        engine: Engine,
        name: str,
        *,
        replicas: int = 1,
        shards: int = 64,
        disk_megabytes: int | None = None,
        settings: Mapping[str, str] = NO_SETTINGS,
    ) -> LocalCluster:
        """Start a primary called `name` and its replicas `name-r1`…; return when replication runs."""
        made = self.clusters(
            engine,
            [name],
            replicas=replicas,
            shards=shards,
            disk_megabytes=disk_megabytes,
            settings=settings,
        )
        return made[0]

    def clusters(
        self,
        engine: Engine,
        names: Sequence[str],
        *,
        replicas: int = 1,
        shards: int = 64,
        disk_megabytes: int | None = None,
        settings: Mapping[str, str] = NO_SETTINGS,
    ) -> list[LocalCluster]:
        """Start several clusters at the same time, which is faster than one after the other."""
        of_primary = ServerShape(shards, settings=settings)
        of_replica = ServerShape(shards, is_replica=True, settings=settings)

        def add(server_name: str, shape: ServerShape) -> BinlogServer:
            kind = _kind(engine)
            return self._add(server_name, disk_megabytes, lambda place: kind(place, shape), start=False)

        made = [
            LocalCluster(
                name,
                add(name, of_primary),
                tuple(add(f"{name}-r{number}", of_replica) for number in range(1, replicas + 1)),
            )
            for name in names
        ]
        self.start([server for cluster in made for server in cluster.servers])
        connect_replicas(made)
        return made

    def start(self, servers: Sequence[Server]) -> None:
        """Start servers together and return when all of them answer."""
        for server in servers:
            server.launch()
        for server in servers:
            server.wait_until_ready()

    def close(self, *, waits: bool = True) -> None:
        """Kill all servers (their data goes anyway); `waits`: until the janitor has removed everything, too."""
        if not self._owner.is_here:
            return
        for server in self.servers:
            server.close()
        self._servers.clear()
        (self._owner.close if waits else self._owner.leave)()

    def _add(
        self, name: str, disk_megabytes: int | None, make: Callable[[ServerPlace], AnyServer], start: bool
    ) -> AnyServer:
        server = make(self._place(name, disk_megabytes))
        self._servers[name] = server
        if start:
            server.start()
        return server

    def _place(self, name: str, disk_megabytes: int | None) -> ServerPlace:
        if not NAME.fullmatch(name):
            raise LocalServerError(f"{name!r} is no name for a server.", "Use a-z, 0-9, - and _.")
        folder = self._owner.folder / name
        if folder.exists():
            raise LocalServerError(f"There is a server {name!r} already.", "Choose another name.")
        folder.mkdir(mode=0o711)
        disk: Disk = (
            SharedDisk(folder / "disk") if disk_megabytes is None else SmallDisk(folder / "disk", disk_megabytes)
        )
        return ServerPlace(name, folder, free_port(), disk, self._owner.environment(name), self._owner.mark(name))


def _kind(engine: Engine) -> type[BinlogServer]:
    return MariaDBServer if engine == "mariadb" else MySQLServer
