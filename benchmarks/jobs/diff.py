"""The diff against reladiff on an equivalent flat table, in the same run: rows a second, both stores equal.

Ours compares a captured table with Schemaless, every cell of it, in one process; reladiff the same columns of the same
rows with a table in the same MariaDB, with a thread for each side. Both are whole commands of their own: connecting is
in the figures.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any
from urllib.parse import urlsplit

import click
import psycopg2.extensions
import pymysql

from benchmarks.cells import SPAWN, Config
from benchmarks.timing import Comparison, paired
from schemaless_core import ShardStatus
from schemaless_core.control.jobs.jobs import JobState
from tripstore.backends.postgres.ddl.steps import apply_all
from tripstore.backends.postgres.layout.reading import load_layout
from tripstore.backends.postgres.schema_steps import schema_steps
from tripstore.backends.postgres.wire.connections import connected, rows
from tripstore.handover.ports import Chunk
from tripstore.local.binlog import BinlogServer
from tripstore.local.postgres import PostgresServer
from tripstore.migration.diff.diff import Diffing
from tripstore.migration.diff.order import Order
from tripstore.migration.mirror.reverse import register_reverse
from tripstore.wiring import connect

ROWS = 2_000_000
SHARDS = 64
PROCESSES = 1
ROUNDS = 5
#: Ours reads a row of a table that is in use, reladiff two dead ones.
SHARE = 0.5
COLUMNS = ("status", "city", "fare", "request_at")

_TABLE = """
CREATE TABLE public.trips (
    id bigserial PRIMARY KEY, trip_uuid uuid NOT NULL DEFAULT pg_catalog.gen_random_uuid() UNIQUE,
    status text, city int, fare numeric(10, 2), request_at timestamptz
)"""
_PLANT = """
INSERT INTO public.trips (status, city, fare, request_at)
SELECT (ARRAY['completed', 'requested', 'cancelled'])[1 + n % 3], n % 400, (n % 10000) / 100.0,
    '2026-01-01'::timestamptz + n * interval '1 second' FROM generate_series(1, {rows}) AS n"""
_FLAT = """
CREATE TABLE peer.trips (
    id bigint PRIMARY KEY, trip_uuid char(36) NOT NULL, status varchar(20), city int, fare decimal(10, 2),
    request_at datetime(6)
)"""
_LAYOUT = {
    "datastore": "flat",
    "row_key": {"table": "trips", "id": "id", "uuid": "trip_uuid"},
    "columns": {
        "BASE": {
            "table": "trips",
            "ref_key": {"version": "base_version"},
            "fields": {
                "status": {"type": "string"},
                "city": {"type": "int"},
                "fare": {"type": "decimal"},
                "request_at": {"type": "datetime"},
            },
        }
    },
}


def measure(postgres: PostgresServer, mirror: BinlogServer, *, scale: float) -> Iterator[Comparison]:
    """Rows a second of both; at scale 1 with two million rows."""
    count = max(round(ROWS * scale), 20_000)
    config = made(postgres, mirror, count)
    rounds = ROUNDS if scale >= 0.2 else 2
    for name, columns, bound in (
        ("diff of four columns", ["BASE"], (">=", SHARE)),
        ("diff of four columns and the legacy id", None, None),
    ):
        with _workers(config) as workers:
            speeds, reladiff_speeds = [], []
            for _ in range(rounds):
                speeds.append(count / _ours(config, workers, columns, count))
                reladiff_speeds.append(count / _reladiff(config, mirror, count))
        yield paired(f"{name}, against reladiff", speeds, reladiff_speeds, unit="rows/s", bound=bound)


def _ours(config: Config, workers: list[Connection], columns: list[str] | None, count: int) -> float:
    """Seconds for one diff, by processes that are there."""
    with connect(config) as store:
        diffing = Diffing(store.facade)
        begun = time.perf_counter()
        order = Order(columns=columns, indexes=False, decoded=0, processes=PROCESSES)
        job = diffing.begin(diffing.plan(order))
        for worker in workers:
            worker.send(job.id)
        for worker in workers:
            assert worker.recv() is JobState.DONE
        seconds = time.perf_counter() - begun
        counts = diffing.jobs.progress(job.id).counts
        assert counts["equal"] == counts["rows"] == count * (1 if columns else 2), counts
    return seconds


def _reladiff(config: Config, mirror: BinlogServer, count: int) -> float:
    """Seconds for reladiff on the flat tables."""
    reladiff = import_module("reladiff")
    logging.disable(logging.WARNING)  # it warns of texts
    begun = time.perf_counter()
    legacy = reladiff.connect_to_table(config["legacy"]["postgres"], "trips", "id", thread_count=PROCESSES)
    arguments = {"driver": "mysql", "database": "peer", **arguments_of(mirror)}
    flat = reladiff.connect_to_table(arguments, "trips", "id", thread_count=PROCESSES)
    with closing(legacy.database), closing(flat.database):
        found = reladiff.diff_tables(legacy, flat, extra_columns=COLUMNS, max_threadpool_size=2 * PROCESSES)
        assert list(found) == []
        seconds = time.perf_counter() - begun
        assert legacy.count() == flat.count() == count
    # It changes how every connection of the process waits, ours of COPY too.
    psycopg2.extensions.set_wait_callback(None)
    return seconds


@contextmanager
def _workers(config: Config) -> Iterator[list[Connection]]:
    """Processes that serve one diff after the other."""
    pipes = [SPAWN.Pipe() for _ in range(PROCESSES)]
    processes = [
        SPAWN.Process(target=_serve, args=(config, f"bench {n}", there), daemon=True)
        for n, (_here, there) in enumerate(pipes)
    ]
    for process in processes:
        process.start()
    for here, _there in pipes:
        assert here.recv() == "ready"
    yield [here for here, _there in pipes]
    for here, _there in pipes:
        here.send(None)
    for process in processes:
        process.join()


def _serve(config: Config, name: str, pipe: Connection) -> None:
    with connect(config) as store:
        diffing = Diffing(store.facade)
        pipe.send("ready")
        while (job_id := pipe.recv()) is not None:
            pipe.send(diffing.runner(diffing.jobs.find("diff", job_id), name).run())


def made(postgres: PostgresServer, mirror: BinlogServer, count: int) -> Config:
    """The same rows in Postgres, in Schemaless and in a flat table."""
    config = prepared(postgres, mirror, count)
    _copy_flat(config["legacy"]["postgres"], mirror)
    return config


def prepared(postgres: PostgresServer, mirror: BinlogServer, count: int) -> Config:
    """The same rows in Postgres and in Schemaless."""
    postgres.query("CREATE DATABASE flat")
    url = f"{postgres.url}/flat"
    config: Config = {
        "datastore": "flat",
        "shards": SHARDS,
        "clusters": {"a": {"primary": mirror.url}},
        "legacy": {"postgres": url, "layout": _LAYOUT, "put_seconds": 60, "read_seconds": 60},
    }
    with connected(url, "benchmark") as connection:
        rows(connection, _TABLE)
        rows(connection, _PLANT.format(rows=count))
        for _ in apply_all(
            schema_steps(load_layout(_LAYOUT, "flat")), connection, lambda _step: lambda _done, _all: None
        ):
            pass
        rows(connection, "ANALYZE public.trips")
    started = time.perf_counter()
    copy_all(config)
    click.echo(f"  {count:,} rows twice: {time.perf_counter() - started:.0f} s")
    return config


def copy_all(config: Config) -> None:
    """Everything that the tables hold, into a new Schemaless."""
    with connect(config) as store:
        store.facade.store.create_schema(status=ShardStatus.COPY)
        register_reverse(store.facade.store)
        duo = store.facade.duo
        assert duo is not None
        copier, after = store.facade.store.as_copier().using(deadline=60.0), None
        while True:
            past = duo.ports.legacy.read_chunk(Chunk(after=after, rows=5_000))
            copier.put_encoded(past.cells)
            if past.after is None:
                return
            after = past.after


def _copy_flat(url: str, mirror: BinlogServer) -> None:
    with closing(pymysql.connect(**arguments_of(mirror), autocommit=False)) as there, there.cursor() as cursor:
        cursor.execute("CREATE DATABASE peer")
        cursor.execute(_FLAT)
        with connected(url, "benchmark") as connection, connection.cursor() as here:
            here.execute(
                "SELECT id, trip_uuid::text, status, city, fare, request_at AT TIME ZONE 'UTC' FROM public.trips"
            )
            while page := here.fetchmany(5_000):
                cursor.executemany("INSERT INTO peer.trips VALUES (%s, %s, %s, %s, %s, %s)", page)
        there.commit()


def arguments_of(mirror: BinlogServer) -> dict[str, Any]:
    parts = urlsplit(mirror.url)
    return {"host": parts.hostname, "port": parts.port, "user": parts.username, "password": parts.password}
