"""Where the demo plays: a company's Postgres, two clusters, and the configuration that leads to both.

A kept playground stays: its clusters are folders or the user's own servers, and its Postgres is held by a process
that `tripstore dev down` ends.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from uuid import uuid4

import msgspec

from schemaless_core.urls import parse_node_url
from tripstore.demo.corruption import connect_to
from tripstore.demo.legacy import INDEXES, LAYOUT
from tripstore.errors import TripstoreError
from tripstore.example import ExampleCluster, ExampleLegacy, render, write_private
from tripstore.local.binlog import REPLICATION_USER
from tripstore.local.dev import COMPANY, DevFolder, DevOptions
from tripstore.local.mariadb import find_mariadb
from tripstore.local.processes import TOKEN_VARIABLE
from tripstore.local.replication import SEMI_SYNC, LocalCluster
from tripstore.local.servers import LocalServers

Engine = Literal["sqlite", "mariadb", "mysql", "yours"]

SHARDS = 16
NAMES = ("a", "b")
#: Beside tripstore.yaml: the process that holds the Postgres of a kept playground.
POSTGRES_FOLDER = "postgres"
CONFIG = "tripstore.yaml"

#: What the demo needs otherwise than production.
SETTINGS = """
indexes: indexes

# Of the demo, where workers are killed: the others take over sooner than by default.
triggers:
  lease_seconds: 1.0
backfill:
  lease_seconds: 2.0

# Of the demo, which has seconds and not weeks: every read is compared, and few are enough. In earnest, a mismatch rate
# below 1 % is no reason to switch. A machine that runs all of it by itself needs its time to answer.
shadow:
  share: 1.0
  per_second: 10000.0
  deadline_seconds: 2.0
cutover:
  mismatch_rate_max: 0.01
  comparisons_min: 300
"""

#: Of servers that the demo may kill.
SERVER_SETTINGS = """
# A cluster that does not answer has its puts kept by another one; a promotion makes servers replicas by this login.
buffer: {}
"""


class WantedPlay(msgspec.Struct, frozen=True):
    """What the demo is to play with; `urls` are the user's own servers, a cluster each."""

    engine: Engine
    urls: tuple[str, ...] = ()
    is_kept: bool = False


@dataclass(frozen=True, slots=True)
class Playground:
    """`servers` are the clusters that the demo started itself: it may kill the last one's. The first has the control
    database, which a promotion asks."""

    engine: Engine
    config: Path
    #: The server of the company's database.
    postgres: str
    servers: tuple[LocalCluster, ...] = ()

    def describe(self) -> str:
        if self.engine == "sqlite":
            return f"2 clusters, a folder each: {', '.join(NAMES)}"
        if not self.servers:
            return "a cluster for each URL"
        count = sum(len(cluster.servers) for cluster in self.servers)
        version = self.servers[0].primary.version
        return f"2 clusters, {count} servers (a primary and a replica each), version {version}"

    @property
    def company(self) -> str:
        """The company's database, once it is there."""
        return f"{self.postgres}/company"


def engine_here() -> Engine:
    """Return the engine that the demo takes by itself: real servers when they are installed."""
    return "sqlite" if find_mariadb() is None else "mariadb"


@contextmanager
def playground(wanted: WantedPlay, folder: Path) -> Iterator[Playground]:
    """Lend a playground. What the demo started ends with the block, unless it is kept; files stay in `folder`."""
    config = folder / CONFIG
    with ExitStack() as opened:
        servers: list[LocalCluster] = []
        local = opened.enter_context(LocalServers())
        postgres = _kept_postgres(opened, folder) if wanted.is_kept else _own_postgres(local)
        if wanted.engine in ("mariadb", "mysql"):
            engine: Literal["mariadb", "mysql"] = "mariadb" if wanted.engine == "mariadb" else "mysql"
            servers = local.clusters(engine, list(NAMES), replicas=1, shards=SHARDS, settings=SEMI_SYNC[engine])
        datastore = f"demo_{uuid4().hex[:8]}" if wanted.urls else "trips"
        made = Playground(wanted.engine, config, postgres, tuple(servers))
        _write(made, datastore, _clusters(wanted, servers))
        if not wanted.is_kept:
            for url in wanted.urls:
                opened.callback(drop, url, datastore)
        # A process that is started from now on ends with the demo, however that ends.
        os.environ[TOKEN_VARIABLE] = local.token
        opened.callback(os.environ.pop, TOKEN_VARIABLE, None)
        yield made


def _own_postgres(local: LocalServers) -> str:
    """A Postgres that ends with the demo, with a database for the company as `tripstore dev up` makes one."""
    made = local.postgres(COMPANY)
    made.query(f"CREATE DATABASE {COMPANY}")
    return made.url


def _kept_postgres(opened: ExitStack, folder: Path) -> str:
    """A Postgres that outlives the demo, unless the demo fails to tell its story."""
    held = DevFolder(folder / POSTGRES_FOLDER)
    state, _is_new = held.up(DevOptions(engine="sqlite", clusters=0, postgres=True))
    opened.push(lambda kind, _error, _trace: held.down() and False if kind is not None else False)
    return next(server.url for server in state.servers if server.role == "postgres")


def drop(url: str, datastore: str) -> None:
    """Remove what the demo made on the user's own server."""
    with closing(connect_to(parse_node_url("--mysql", url))) as connection, connection.cursor() as cursor:
        cursor.execute("SHOW DATABASES")
        for (name,) in cursor.fetchall():
            if name.startswith(f"{datastore}_"):
                cursor.execute(f"DROP DATABASE `{name}`")


def _clusters(wanted: WantedPlay, servers: Sequence[LocalCluster]) -> dict[str, ExampleCluster]:
    if wanted.engine == "sqlite":
        return {name: ExampleCluster(f"sqlite:///clusters/{name}") for name in NAMES}
    if wanted.urls:
        return {chr(ord("a") + number): ExampleCluster(url) for number, url in enumerate(wanted.urls)}
    return {
        cluster.name: ExampleCluster(cluster.primary.url, [replica.url for replica in cluster.replicas])
        for cluster in servers
    }


def _write(made: Playground, datastore: str, clusters: Mapping[str, ExampleCluster]) -> None:
    """The configuration, and beside it the layout and the indexes that it names."""
    folder = made.config.parent
    legacy = ExampleLegacy(made.company, "layout.yaml")
    settings = SETTINGS + _server_settings(made.servers)
    write_private(made.config, render(datastore, SHARDS, clusters, legacy) + settings, replace=False)
    (folder / "layout.yaml").write_text(_named(LAYOUT.read_text(), datastore))
    (folder / "indexes").mkdir()
    for file in sorted(INDEXES.glob("*.yaml")):
        (folder / "indexes" / file.name).write_text(_named(file.read_text(), datastore))


def _server_settings(servers: Sequence[LocalCluster]) -> str:
    """Servers that are made together have one password."""
    if not servers:
        return ""
    login = json.dumps({"user": REPLICATION_USER, "password": servers[0].primary.password})
    return f"{SERVER_SETTINGS}replication: {login}\n"


def _named(text: str, datastore: str) -> str:
    """The same of a datastore with another name."""
    return re.sub("^datastore: trips$", f"datastore: {datastore}", text, flags=re.MULTILINE)


def new_folder(folder: Path) -> Path:
    """A folder for a playground that is kept."""
    try:
        folder.mkdir(parents=True, mode=0o700)
    except FileExistsError:
        down = f" `tripstore dev down --folder {folder / POSTGRES_FOLDER}` ends its Postgres."
        raise TripstoreError(
            f"{folder} exists already.", hint=f"Remove it, or name another by --folder.{down}"
        ) from None
    return folder.resolve()
