"""Everybody who is at work around a hand-over: a company in the phase shadow, its services, workers, servers."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import yaml

from schemaless_core.failpoints import ENVIRONMENT_VARIABLE
from tests.chaos.actors import end
from tests.chaos.capture_actors import SAME_IDS, WITNESS
from tests.chaos.switch_actors import facade_writer, is_stopped, sql_writer
from tests.facades import Migration, migration
from tests.scale import SCALE, scaled
from tests.stores import ServerEngine, Stores
from tripstore.local.replication import LocalCluster
from tripstore.local.servers import LocalServers
from tripstore.phase import Phase

WRITERS, PER_SECOND = 6, scaled(500, least=60)
SQL_WRITERS, SQL_PER_SECOND = 3, 10
#: A killed worker keeps its shards for so long, and no way back is open meanwhile.
LEASE_SECONDS = 3.0
LOOK_SECONDS = 0.1

LIMITS = {
    "put_seconds": 2.0,
    "read_seconds": 2.0,
    "pool_seconds": 2.0,
    "connect_seconds": 1.0,
    "lock_seconds": 1.0,
    "idle_transaction_seconds": 1.5,
}
DEADLINES = {"put_seconds": 2.0, "read_seconds": 2.0, "connect_seconds": 1.0, "pool_seconds": 2.0, "scan_seconds": 30.0}


class Crowd:
    """All processes at work: services, workers, switchers."""

    def __init__(self, moving: Migration, folder: Path, per_second: float = PER_SECOND) -> None:
        self.moving = moving
        self._per_second = per_second
        self.folder = folder
        self.points = {who: folder / f"points-{who}" for who in ("switcher", "service", "worker")}
        for points in self.points.values():
            points.mkdir()
        self.writers: list[BaseProcess] = []
        self.workers: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Crowd:
        config = self.folder / "tripstore.yaml"
        config.write_text(yaml.safe_dump(dict(self.moving.document)))
        environment = {**os.environ, ENVIRONMENT_VARIABLE: str(self.points["worker"])}
        command = [str(Path(sys.executable).parent / "tripstore"), "-c", str(config), "worker", "run"]
        with (self.folder / "workers.log").open("wb") as log:
            self.workers = subprocess.Popen(
                [*command, "--only", "mirror", "--workers", "2"], env=environment, stderr=log
            )
        legacy = self.moving.legacy
        services = [self._service() for _ in range(WRITERS)]
        run = random.randrange(1_000_000)
        sql = [sql_writer(legacy.url, self.folder, f"{run}-{n}", SQL_PER_SECOND) for n in range(SQL_WRITERS)]
        self.writers = [*services, *sql]
        for writer in self.writers:
            writer.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.end_writers()
        self.end_workers()

    @property
    def services(self) -> list[BaseProcess]:
        """Those that use the facade."""
        return self.writers[:WRITERS]

    def end_writers(self) -> None:
        for writer in self.writers:
            end(writer)
        self.writers.clear()

    def end_workers(self) -> None:
        if self.workers is not None:
            for pid in self._worker_pids():
                os.kill(pid, signal.SIGCONT)
            self.workers.terminate()
            self.workers.wait(60)
            self.workers = None

    def _service(self) -> BaseProcess:
        points = self.points["service"]
        return facade_writer(self.moving.document, self.folder, points, self._per_second / WRITERS)

    def replace_dead(self) -> None:
        for number, writer in enumerate(self.writers):
            if writer.exitcode is not None:
                assert writer.exitcode == -signal.SIGKILL, "nothing else may end a service"
                assert number < WRITERS
                self.writers[number] = self._service()
                self.writers[number].start()

    def wake(self) -> None:
        """Let the stopped writers and workers go on."""
        for pid in [*(writer.pid for writer in self.writers), *self._worker_pids()]:
            if pid is not None and is_stopped(pid):
                os.kill(pid, signal.SIGCONT)

    def arm(self, who: str, point: str, action: str) -> Path:
        folder = self.points[who]
        (folder / f"{point}.hit").unlink(missing_ok=True)
        (folder / f"{point}.go").unlink(missing_ok=True)
        (folder / point).write_text(action)
        return folder / f"{point}.hit"

    def disarm(self) -> None:
        for folder in self.points.values():
            for point in folder.iterdir():
                if point.suffix not in (".hit", ".go"):
                    point.unlink(missing_ok=True)

    def _worker_pids(self) -> list[int]:
        assert self.workers is not None
        path = Path(f"/proc/{self.workers.pid}/task/{self.workers.pid}/children")
        return [int(pid) for pid in path.read_text().split()]


def clusters_of(engine: ServerEngine, servers: LocalServers, stores: Stores) -> list[LocalCluster]:
    """Under the full load no replica runs: two cores are for those who work."""
    if SCALE < 1:
        return stores.clusters(engine)
    return servers.clusters(engine, [f"{engine}-switched-{name}" for name in "ab"], replicas=0)


@contextmanager
def crowd(
    engine: ServerEngine,
    clusters: Sequence[LocalCluster],
    servers: LocalServers,
    stores: Stores,
    folder: Path,
    config: Mapping[str, Any] | None = None,
    per_second: float = PER_SECOND,
) -> Iterator[Crowd]:
    """A company in the phase shadow, and everybody at work. `config`: the clusters as the test has them, and more."""
    options: dict[str, Any] = {"triggers": {"lease_seconds": LEASE_SECONDS}, "deadlines": DEADLINES}
    if config is not None:
        options |= config
    elif SCALE < 1:
        options["engine"] = engine
    else:
        options["clusters"] = {
            name: {"primary": cluster.primary.url} for name, cluster in zip("ab", clusters, strict=True)
        }
    with migration(servers, stores, **options) as made:
        document = {**made.document, "legacy": {**made.document["legacy"], **LIMITS}}
        moving = replace(made, document=document)
        moving.legacy.sql(WITNESS)
        moving.legacy.sql(SAME_IDS)
        moving.phase(Phase.SHADOW)
        with Crowd(moving, folder, per_second) as everybody:
            yield everybody


def wait_for(what: str, is_so: Callable[[], bool], seconds: float, every_seconds: float = LOOK_SECONDS) -> None:
    """Look now and then: two cores are for those who work."""
    until = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < until, f"timed out waiting until {what}"
        time.sleep(every_seconds)  # other processes have no event
