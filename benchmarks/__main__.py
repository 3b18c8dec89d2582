"""`make bench`: every figure of the issues as a ratio, measured on real servers in one run."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from typing import cast

import click

from benchmarks import (
    audit,
    availability,
    cells,
    compression,
    console,
    experiments,
    facade,
    filling,
    http,
    indexes,
    leases,
    legacy,
    triggers,
)
from benchmarks.jobs import backfill, backup, dask, diff, families, older, repair, throttle, walks
from benchmarks.timing import Comparison, middle_of
from schemaless_core import Datastore
from tripstore.local.postgres import PostgresServer
from tripstore.local.replication import LocalCluster
from tripstore.local.servers import Engine, LocalServers

#: Those after postgres are a migration from one to the other; the last two are about a cluster that is dead.
ENGINES = (
    "mariadb",
    "mysql",
    "postgres",
    "facade",
    "backfill",
    "walks",
    "dask",
    "throttle",
    "diff",
    "repair",
    "availability",
    "leases",
    "experiments",
    "backup",
    "compression",
    "console",
)
#: A server that holds data has memory for them, and a log that it does not have to clear all the time; those of tests
#: are small.
ROOM = {
    "mariadb": {"innodb-buffer-pool-size": "1G", "innodb-log-file-size": "1G"},
    "mysql": {"innodb-buffer-pool-size": "1G", "innodb-redo-log-capacity": "1G"},
    "postgres": {"shared_buffers": "1GB", "max_wal_size": "4GB"},
}
#: Of a disk that no other process uses; memory, and only root may mount it. A virtual machine's disk may be served by
#: its host with the very cores that compute here: then a flush takes the longer the more any process computes.
DISK_MEGABYTES = 12_000
#: Of memory, for two of them that are not full, and what else there is.
MEMORY_MEGABYTES = 20_000
#: The binary log of a mirror is there, too: it is synced with each commit.
OWN_LOG = {"log-bin": "binlog"}
#: What some are compared with.
PEERS = {"facade": "laboratory", "backfill": "dlt", "diff": "reladiff"}


@click.command()
@click.option("--engine", "engines", multiple=True, type=click.Choice(ENGINES), help="Default: all.")
@click.option("--quick", is_flag=True, help="Few and short blocks: shows that it runs, not how fast.")
@click.option("--shards", default=4096, show_default=True, help="The larger number of shards.")
def main(engines: tuple[str, ...], quick: bool, shards: int) -> None:
    """Compare the cell store and the legacy store with hand-written code and with peers."""
    click.echo(f"{platform.python_version()} on {os.cpu_count()} cores, {time.strftime('%Y-%m-%d %H:%M')}")
    for engine, peer in PEERS.items():
        if engine in (engines or ENGINES) and find_spec(peer) is None:
            raise click.UsageError(f"{peer} is not installed: pip install -c constraints.txt -e '.[peers]'")
    missed = 0
    for engine in engines or ENGINES:
        click.echo(f"\n{engine}: ours against the same statements by hand")
        if engine == "facade":
            lines = _facade(quick)
        elif engine == "backfill":
            lines = _backfill(quick)
        elif engine == "walks":
            lines = _walks(quick)
        elif engine == "dask":
            lines = _dask(quick)
        elif engine == "throttle":
            lines = _throttle(quick)
        elif engine == "diff":
            lines = _diff(quick)
        elif engine == "repair":
            lines = _repair(quick)
        elif engine == "availability":
            lines = _availability(quick)
        elif engine == "experiments":
            lines = _experiments(quick)
        elif engine == "backup":
            lines = _backup(quick)
        elif engine == "compression":
            lines = _compression(quick)
        elif engine == "console":
            lines = _console(quick)
        elif engine == "leases":
            lines = leases.measure("mysql", quick=quick)
        else:
            lines = _legacy(quick) if engine == "postgres" else _measure(cast(Engine, engine), quick, shards)
        for line in lines:
            click.echo(_formatted(line))
            missed += line.is_kept is False
    click.echo(f"\n{missed} bounds missed" if missed else "\nall bounds kept")
    sys.exit(1 if missed and not quick else 0)


def _legacy(quick: bool) -> Iterator[Comparison]:
    with LocalServers() as servers:
        server = servers.postgres(settings=ROOM["postgres"])
        click.echo(f"  {server.version}")
        yield from legacy.measure(server, server.program("pgbench"), quick=quick)
    yield from audit.measure(quick=quick)


def _facade(quick: bool) -> Iterator[Comparison]:
    """In blocks as long as TRIPSTORE_SCALE says."""
    scale = 0.05 if quick else float(os.environ.get("TRIPSTORE_SCALE", "1"))
    with LocalServers() as servers:
        postgres = servers.postgres(settings=ROOM["postgres"])
        mirrors = [servers.cluster(engine, engine, replicas=0, settings=ROOM[engine]) for engine in facade.MIRRORS]
        click.echo(f"  {postgres.version}, {', '.join(mirror.primary.version for mirror in mirrors)}")
        apart = _apart(servers)
        click.echo(f"  under load mirror and worker have cores of their own, and disks apart are {_disks()}")
        yield from facade.measure(postgres, mirrors, _company(servers), apart, scale=scale)


def _experiments(quick: bool) -> Iterator[Comparison]:
    with LocalServers() as servers:
        mirror = servers.cluster("mariadb", "mariadb", replicas=0, settings=ROOM["mariadb"])
        yield from experiments.measure(servers.postgres(settings=ROOM["postgres"]), mirror, is_quick=quick)


def _backfill(quick: bool) -> Iterator[Comparison]:
    """With as many trips as TRIPSTORE_SCALE says."""
    scale = 0.002 if quick else float(os.environ.get("TRIPSTORE_SCALE", "1"))
    with LocalServers() as servers:
        room = ROOM["mariadb"] | {"innodb-buffer-pool-size": "2G"}
        mirror = servers.cluster("mariadb", "mariadb", replicas=0, settings=room).primary
        postgres = _company(servers)
        click.echo(f"  {postgres.version}, {mirror.version}; the disk of Postgres: {_disks()}")
        yield from backfill.measure(postgres, mirror, scale=scale)


def _walks(quick: bool) -> Iterator[Comparison]:
    """With as many trips as TRIPSTORE_SCALE says."""
    scale = 0.02 if quick else float(os.environ.get("TRIPSTORE_SCALE", "1"))
    with LocalServers() as servers:
        mirror = servers.cluster("mariadb", "mariadb", replicas=0, settings=ROOM["mariadb"]).primary
        postgres = servers.postgres("company", settings=walks.SETTINGS)
        click.echo(f"  {postgres.version}, {mirror.version}")
        yield from walks.measure(postgres, mirror, scale=scale)


def _dask(quick: bool) -> Iterator[Comparison]:
    """With as many trips as TRIPSTORE_SCALE says."""
    scale = 0.01 if quick else float(os.environ.get("TRIPSTORE_SCALE", "1"))
    with LocalServers() as servers:
        mirror = servers.cluster("mariadb", "mariadb", replicas=0, settings=ROOM["mariadb"]).primary
        postgres = _company(servers)
        click.echo(f"  {postgres.version}, {mirror.version}; the disk of Postgres: {_disks()}")
        yield from dask.measure(postgres, mirror, scale=scale)


def _apart(servers: LocalServers) -> LocalCluster:
    """A mirror with a disk of its own, where that can be."""
    settings = ROOM["mariadb"] | (OWN_LOG if _own_disk() else {})
    return servers.cluster("mariadb", "apart", replicas=0, settings=settings, disk_megabytes=_own_disk())


def _company(servers: LocalServers) -> PostgresServer:
    """The company's Postgres, with a disk of its own, where that can be."""
    return servers.postgres("company", settings=ROOM["postgres"], disk_megabytes=_own_disk())


def _own_disk() -> int | None:
    megabytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 1024**2
    return DISK_MEGABYTES if os.geteuid() == 0 and megabytes >= MEMORY_MEGABYTES else None


def _disks() -> str:
    return "the machine's" if _own_disk() is None else "memory"


def _throttle(quick: bool) -> Iterator[Comparison]:
    """In windows as long as TRIPSTORE_SCALE says."""
    scale = 0.02 if quick else float(os.environ.get("TRIPSTORE_SCALE", "1"))
    with LocalServers() as servers:
        apart, postgres = _apart(servers), _company(servers)
        click.echo(f"  {postgres.version}, {apart.primary.version}; disks apart: {_disks()}")
        yield from throttle.measure(postgres, apart.primary, scale=scale)


def _diff(quick: bool) -> Iterator[Comparison]:
    """With as many rows as TRIPSTORE_SCALE says."""
    scale = 0.02 if quick else float(os.environ.get("TRIPSTORE_SCALE", "1"))
    with LocalServers() as servers:
        mirror = servers.cluster("mariadb", "mariadb", replicas=0, settings=ROOM["mariadb"]).primary
        postgres = _company(servers)
        click.echo(f"  {postgres.version}, {mirror.version}; the disk of Postgres: {_disks()}")
        yield from diff.measure(postgres, mirror, scale=scale)
        yield from families.measure(postgres, mirror, scale=scale)
    with LocalServers() as servers:
        mirror = servers.cluster("mariadb", "mariadb", replicas=0, settings=ROOM["mariadb"]).primary
        yield from older.measure(_company(servers), mirror, scale=scale)


def _repair(quick: bool) -> Iterator[Comparison]:
    """With as many cells as TRIPSTORE_SCALE says."""
    scale = 0.02 if quick else float(os.environ.get("TRIPSTORE_SCALE", "1"))
    with LocalServers() as servers:
        mirror = servers.cluster("mariadb", "mariadb", replicas=0, settings=ROOM["mariadb"]).primary
        postgres = _company(servers)
        click.echo(f"  {postgres.version}, {mirror.version}; the disk of Postgres: {_disks()}")
        yield from repair.measure(postgres, mirror, scale=scale)


def _backup(quick: bool) -> Iterator[Comparison]:
    """With as many cells as TRIPSTORE_SCALE says."""
    scale, rounds = (0.01, 1) if quick else (float(os.environ.get("TRIPSTORE_SCALE", "1")), 3)
    if missing := backup.missing():
        click.echo(f"  {missing} is not installed: nothing to compare with")
        return
    with LocalServers() as servers:
        source, target = servers.clusters("mariadb", ["a", "b"], replicas=0, settings=ROOM["mariadb"])
        click.echo(f"  {source.primary.version}")
        yield from backup.measure(source, target, scale=scale, rounds=rounds)


def _compression(quick: bool) -> Iterator[Comparison]:
    with LocalServers() as servers:
        clusters = [servers.cluster(engine, engine, replicas=0, settings=ROOM[engine]) for engine in facade.MIRRORS]
        postgres = servers.postgres(settings=ROOM["postgres"])
        click.echo(f"  {postgres.version}")
        yield from compression.measure(postgres, clusters, quick=quick)


def _console(quick: bool) -> Iterator[Comparison]:
    """With as many shards, jobs and mismatches as TRIPSTORE_SCALE says."""
    scale = 0.02 if quick else float(os.environ.get("TRIPSTORE_SCALE", "1"))
    if find_spec("playwright") is None:
        click.echo("  playwright is not installed: there is no browser to measure in")
        return
    with LocalServers() as servers:
        memory = {"innodb_buffer_pool_size": "1G"}
        (mirror,) = servers.clusters("mariadb", ["a"], replicas=0, shards=console.SHARDS + 100, settings=memory)
        postgres = servers.postgres(settings=ROOM["postgres"])
        click.echo(f"  {postgres.version}, {mirror.primary.version}")
        yield from console.measure(postgres, mirror.primary, scale=scale)


def _availability(quick: bool) -> Iterator[Comparison]:
    """Three clusters of each engine."""
    for engine in facade.MIRRORS:
        with LocalServers() as servers:
            clusters = servers.clusters(engine, ["a", "b", "c"], replicas=0, settings=ROOM[engine])
            click.echo(f"  {clusters[0].primary.version}")
            yield from availability.measure(clusters, quick=quick)


def _measure(engine: Engine, quick: bool, shards: int) -> Iterator[Comparison]:
    calls, pairs = (60, 3) if quick else (400, 11)
    with LocalServers() as servers:
        # Room for two index pages of each of thousands of tables: servers that hold data have it.
        memory = {"innodb_buffer_pool_size": "1G"}
        clusters = servers.clusters(engine, ["a", "b"], replicas=0, shards=shards // 2 + 100, settings=memory)
        click.echo(f"  {clusters[0].primary.version}")
        config = cells.config_of("few", cells.SHARDS, clusters[:1])
        with _created(config) as store:
            server = clusters[0].primary
            yield from cells.single_calls(store, server, calls, pairs)
            yield from cells.batches(store, server, pairs)
            yield from http.measure(config, calls, pairs)
            yield cells.many_processes(config, server, 1.0 if quick else 4.0, 1 if quick else 5)
        with _created(cells.config_of("logs", cells.SHARDS, clusters[:1])) as store:
            yield triggers.throughput(store, server, 8_000 if quick else 40_000, 1 if quick else 5)
        indexed = cells.config_of("filled", cells.SHARDS, clusters[:1]) | {"indexes": [indexes.DEFINITION]}
        with _created(indexed) as store:
            yield from filling.measure(store, server, 20_000 if quick else 200_000, 1 if quick else 3)
        yield from _with_many_shards(clusters, shards, calls, pairs)


def _with_many_shards(clusters: list[LocalCluster], shards: int, calls: int, pairs: int) -> Iterator[Comparison]:
    with (
        _created(cells.config_of("sixteen", 16, clusters)) as few,
        _created(cells.config_of("many", shards, clusters)) as many,
    ):
        yield from cells.many_shards(few, many, calls, pairs)
        seconds, runs = (4.0, 1) if calls < 100 else (20.0, 3)
        yield indexes.lag(cells.config_of("indexed", 64, clusters), seconds)
        latency = partial(triggers.delivery_latency, cells.config_of("many", shards, clusters), seconds)
        yield middle_of(latency, runs)


def _created(config: cells.Config) -> Datastore:
    store = Datastore.open(config)
    started = time.perf_counter()
    store.create_schema()
    click.echo(
        f"  {config['shards']} shards on {len(config['clusters'])} clusters: {time.perf_counter() - started:.1f} s"
    )
    return store


def _formatted(line: Comparison) -> str:
    verdict = {None: "", True: "kept", False: "MISSED"}[line.is_kept]
    bound = f"{line.bound[0]} {line.bound[1]}" if line.bound else ""
    figures = f"{line.ours:10,.0f} {line.unit:2s} {line.theirs:10,.0f} {line.unit:2s}"
    spread = f"({line.spread[0]:.2f}–{line.spread[1]:.2f})"
    return f"  {line.name:52s}{figures}   ratio {line.ratio:5.2f} {spread:14s} {bound:8s} {verdict}"


if __name__ == "__main__":
    main()
