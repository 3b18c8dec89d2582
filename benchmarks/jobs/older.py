"""`tripstore diff start --older all`, the whole command, against a script by hand: rows a second.

Every row has four versions: one from before capture, which Postgres has forgotten, and three that capture has written.
Ours compares the rows, too, in little memory, and knows what was forgotten. The script has the log in memory, and knows
what it lacks of nothing; starting a process is not in its figures.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import psycopg2
import pymysql
import yaml
from pymysql.cursors import SSCursor

from benchmarks.cells import Config
from benchmarks.jobs.diff import SHARDS, arguments_of, prepared
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


def measure(postgres: PostgresServer, mirror: BinlogServer, *, scale: float) -> Iterator[Comparison]:
    """At scale 1 with two hundred thousand rows."""
    count = max(round(ROWS * scale), 2_000)
    config = prepared(postgres, mirror, count)
    _change(config)
    speeds, by_hand = [], []
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "tripstore.yaml").write_text(yaml.safe_dump(config))
        for _ in range(ROUNDS):
            speeds.append(count / _ours(folder, count))
            by_hand.append(count / _by_hand(config, mirror, count))
    bound = [float(ROWS_PER_SECOND)] * ROUNDS
    yield paired("diff of all older versions, bound", speeds, bound, unit="rows/s", bound=(">=", 1.0))
    yield paired("diff of all older versions, by hand", speeds, by_hand, unit="rows/s")


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


def _by_hand(config: Config, mirror: BinlogServer, count: int) -> float:
    """Seconds for what a script would do: all of the log in memory, and each version of the shards held against it."""
    begun = time.perf_counter()
    log = dict[tuple[bytes, int], dict[str, Any]]()
    with closing(psycopg2.connect(config["legacy"]["postgres"])) as here, here.cursor("log") as cursor:
        cursor.itersize = 10_000
        cursor.execute("SELECT row_key, ref_key, row FROM tripstore.log WHERE column_name = 'BASE'")
        for row_key, ref_key, row in cursor:
            log[bytes.fromhex(row_key.replace("-", "")), ref_key] = json.loads(row)
    equal = 0
    with closing(pymysql.connect(**arguments_of(mirror))) as there, there.cursor(SSCursor) as shards:
        for shard in range(SHARDS):
            shards.execute(f"SELECT row_key, ref_key, body FROM flat_{shard:04d}.cell WHERE column_name = 'BASE'")
            for row_key, ref_key, body in shards:
                row = log.get((row_key, ref_key))
                equal += row is not None and _is_same(row, json.loads(body))
    seconds = time.perf_counter() - begun
    assert equal == count * CHANGES, f"{equal} versions are equal"
    return seconds


def _is_same(row: dict[str, Any], body: dict[str, Any]) -> bool:
    return bool(
        row["status"] == body["status"]
        and int(row["city"]) == body["city"]
        and Decimal(row["fare"]) == Decimal(body["fare"])
        and datetime.fromisoformat(row["request_at"]) == datetime.fromisoformat(body["request_at"])
    )
