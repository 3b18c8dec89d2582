"""`tripstore diff start --older all`, the whole command, against reladiff over the same versions in flat tables.

Every row has four versions: one from before capture, which Postgres has forgotten, and three that capture has written.
Ours compares the rows, too, and knows what was forgotten; for reladiff both tables have all versions, one row each.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import psycopg2.extensions
import pymysql
import yaml

from benchmarks.cells import Config
from benchmarks.jobs.diff import COLUMNS, arguments_of, prepared
from benchmarks.timing import Comparison, paired
from tripstore.backends.postgres.wire.connections import connected, rows
from tripstore.handover.relay import drain
from tripstore.handover.steps import run
from tripstore.local.binlog import BinlogServer
from tripstore.local.postgres import PostgresServer
from tripstore.phase import Phase
from tripstore.wiring import connect

ROWS = 200_000
CHANGES = 3
ROUNDS = 3
PROCESSES = 2
CHANGES_PER_CLAIM = 2_000
TRIES = 20
ROWS_PER_SECOND = 20_000

TRIPSTORE = Path(sys.executable).with_name("tripstore")

_HISTORY = """
CREATE TABLE public.history AS
SELECT row_number() OVER (ORDER BY t.id, version) AS id, t.trip_uuid, version, t.status, t.city, t.fare, t.request_at
FROM public.trips AS t, generate_series(1, {versions}) AS version"""
_FLAT = """
CREATE TABLE peer.history (
    id bigint PRIMARY KEY, trip_uuid char(36) NOT NULL, version int, status varchar(20), city int,
    fare decimal(10, 2), request_at datetime(6)
)"""


def measure(postgres: PostgresServer, mirror: BinlogServer, *, scale: float) -> Iterator[Comparison]:
    """At scale 1 with two hundred thousand rows."""
    count = max(round(ROWS * scale), 2_000)
    config = prepared(postgres, mirror, count)
    _change(config)
    _copy_flat(config, mirror)
    speeds, reladiff_speeds = [], []
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "tripstore.yaml").write_text(yaml.safe_dump(config))
        for _ in range(ROUNDS):
            speeds.append(count / _ours(folder, count))
            reladiff_speeds.append(count / _reladiff(config, mirror, count))
    bound = [float(ROWS_PER_SECOND)] * ROUNDS
    yield paired("diff of all older versions, bound", speeds, bound, unit="rows/s", bound=(">=", 1.0))
    yield paired("diff of all older versions, against reladiff", speeds, reladiff_speeds, unit="rows/s")


def _change(config: Config) -> None:
    """Give every row its versions, and have them carried."""
    begun = time.perf_counter()
    with connect(config) as store:
        duo = store.facade.duo
        assert duo is not None, "the configuration has a legacy store"
        store.facade.flags.change(lambda flags: flags.with_phase(Phase.DUALWRITE), "benchmark")
        with connected(config["legacy"]["postgres"], "benchmark") as connection:
            for number in range(CHANGES):
                rows(connection, "UPDATE public.trips SET status = %s", (f"changed {number}",))
        # On a busy machine some claims take longer than a call may.
        assert any(run(drain(duo.ports, CHANGES_PER_CLAIM)) for _ in range(TRIES)), "a change cannot be delivered"
        with connected(config["legacy"]["postgres"], "benchmark") as connection:
            rows(connection, "ANALYZE")
    click.echo(f"  {CHANGES} changes of each carried: {time.perf_counter() - begun:.0f} s")


def _ours(folder: Path, count: int) -> float:
    # Indexes are another comparison, and have no worker here.
    command = [
        str(TRIPSTORE),
        "diff",
        "start",
        "--older",
        "all",
        "--no-indexes",
        "--processes",
        str(PROCESSES),
        "--json",
    ]
    begun = time.perf_counter()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - begun
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-2_000:]
    seen = json.loads(done.stdout)
    assert seen["older"]["equal"] == count * (CHANGES - 1), seen
    assert seen["forgotten"] == count, seen
    return seconds


def _copy_flat(config: Config, mirror: BinlogServer) -> None:
    url, versions = config["legacy"]["postgres"], CHANGES + 1
    with closing(pymysql.connect(**arguments_of(mirror), autocommit=False)) as there, there.cursor() as cursor:
        cursor.execute("CREATE DATABASE peer")
        cursor.execute(_FLAT)
        with connected(url, "benchmark") as connection, connection.cursor() as here:
            here.execute(_HISTORY.format(versions=versions))
            here.execute("ALTER TABLE public.history ADD PRIMARY KEY (id)")
            here.execute("ANALYZE public.history")
            here.execute(
                "SELECT id, trip_uuid::text, version, status, city, fare, request_at AT TIME ZONE 'UTC'"
                " FROM public.history"
            )
            while page := here.fetchmany(5_000):
                cursor.executemany("INSERT INTO peer.history VALUES (%s, %s, %s, %s, %s, %s, %s)", page)
        there.commit()


def _reladiff(config: Config, mirror: BinlogServer, count: int) -> float:
    """Seconds for reladiff on the flat tables."""
    reladiff = import_module("reladiff")
    logging.disable(logging.WARNING)  # it warns of texts
    begun = time.perf_counter()
    legacy = reladiff.connect_to_table(config["legacy"]["postgres"], "history", "id", thread_count=PROCESSES)
    arguments = {"driver": "mysql", "database": "peer", **arguments_of(mirror)}
    flat = reladiff.connect_to_table(arguments, "history", "id", thread_count=PROCESSES)
    columns = ("version", *COLUMNS)
    with closing(legacy.database), closing(flat.database):
        found = reladiff.diff_tables(legacy, flat, extra_columns=columns, max_threadpool_size=2 * PROCESSES)
        assert list(found) == []
        seconds = time.perf_counter() - begun
        assert legacy.count() == flat.count() == count * (CHANGES + 1)
    # It changes how every connection of the process waits, ours of COPY too.
    psycopg2.extensions.set_wait_callback(None)
    return seconds
