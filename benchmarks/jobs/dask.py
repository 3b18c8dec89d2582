"""A backfill by tasks of Dask against one left to `worker run --only jobs`: cells a second, with as many processes.

Both have their processes when a job begins, and copy in turn a part of the company that is not copied yet. The time is
that of the job, by the control database: how long it took until a process had it counts.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import yaml

from benchmarks.bulk import company
from benchmarks.cells import PATIENT
from benchmarks.timing import Comparison, paired
from schemaless_core import Datastore, Json, ShardStatus
from schemaless_core.control.jobs.jobs import Job, Jobs, JobState
from tests.dasks import dask_hosts
from tripstore.cli.elsewhere.dask_engine import DaskEngine
from tripstore.cli.jobs.hands import HandsElsewhere
from tripstore.local.binlog import BinlogServer
from tripstore.local.postgres import PostgresServer
from tripstore.migration.backfill.backfill import Backfill, BackfillPlan, Wanted
from tripstore.migration.mirror.reverse import register_reverse
from tripstore.phase import Phase
from tripstore.wiring import connect

TRIPS, TRIPS_LEAST = 600_000, 6_000
SHARDS = 64
PROCESSES = (1, 2, 4)
ROUNDS = 3
#: Of each job.
PARTS = 16
COMMAND = [sys.executable, "-c", "from tripstore.cli import main; main()"]

Copy = Callable[[Job], None]


def measure(postgres: PostgresServer, mirror: BinlogServer, *, scale: float) -> Iterator[Comparison]:
    """At scale 1 with as many trips as take some seconds each."""
    trips, rounds = max(round(TRIPS * scale), TRIPS_LEAST), ROUNDS if scale >= 0.2 else 1
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = _config(postgres, mirror, trips)
        (folder / "tripstore.yaml").write_text(yaml.safe_dump(config))
        with connect(config) as store:
            register_reverse(store.facade.store)
            store.facade.flags.change(lambda flags: flags.with_phase(Phase.DUALWRITE), "benchmark")
            backfill = Backfill(store.facade)
            plans = _plans(backfill, 2 * rounds * len(PROCESSES))
            for processes in PROCESSES:
                with _dask(folder, processes, backfill.jobs) as ours:
                    speeds = [_speed(backfill, plans.pop(), ours, is_detached=False) for _ in range(rounds)]
                with _workers(folder, processes, backfill.jobs) as theirs:
                    others = [_speed(backfill, plans.pop(), theirs, is_detached=True) for _ in range(rounds)]
                line = f"backfill by {processes} of Dask, against worker run (cells)"
                yield paired(line, speeds, others, unit="/s")


def _config(postgres: PostgresServer, mirror: BinlogServer, trips: int) -> dict[str, Any]:
    url, layout = company(postgres, "on_dask", trips)
    core: dict[str, Any] = {
        "datastore": "on_dask",
        "shards": SHARDS,
        "clusters": {"a": {"primary": mirror.url}},
        "deadlines": PATIENT,
    }
    with Datastore.open(core) as store:
        store.create_schema(status=ShardStatus.COPY)
    parts = {"parts": PARTS * 2 * ROUNDS * len(PROCESSES)}
    return {**core, "legacy": {"postgres": url, "layout": layout.to_document()}, "backfill": parts}


def _plans(backfill: Backfill, number: int) -> list[BackfillPlan]:
    """Jobs that copy everything together."""
    whole = backfill.plan(Wanted(walk="keys", processes=PARTS * number))
    slices: list[Sequence[Json]] = [whole.parts[first::number] for first in range(number)]
    return [BackfillPlan(whole.spec, list(parts), whole.estimate // number) for parts in slices]


def _speed(backfill: Backfill, plan: BackfillPlan, copy: Copy, *, is_detached: bool) -> float:
    job = backfill.begin(plan, is_detached=is_detached)
    copy(job)
    seen = backfill.jobs.progress(job.id)
    assert seen.job.ended_at is not None, seen.job
    return seen.counts["equal"] / (seen.job.ended_at - seen.job.begun_at).total_seconds()


@contextmanager
def _dask(folder: Path, processes: int, jobs: Jobs) -> Iterator[Copy]:
    with dask_hosts(folder / f"dask-{processes}") as hosts:
        for _ in range(processes):
            hosts.add(folder / "tripstore.yaml")
        hosts.wait_for(processes)
        with closing(DaskEngine(hosts.address)) as engine:
            engine.hosts()  # they have imported everything by then, as workers have that run
            yield lambda job: _check(HandsElsewhere(jobs, job, engine, None, {}).run())


@contextmanager
def _workers(folder: Path, processes: int, jobs: Jobs) -> Iterator[Copy]:
    log = folder / f"workers-{processes}.log"
    said = ["-c", str(folder / "tripstore.yaml"), "worker", "run", "--only", "jobs", "--workers", str(processes)]
    with log.open("w") as file:
        fleet = subprocess.Popen([*COMMAND, *said], stdout=file, stderr=file)
    try:
        while log.read_text().count(" serves ") < processes:
            assert fleet.poll() is None, log.read_text()
            time.sleep(0.1)  # a log has no event
        yield lambda job: _wait(jobs, job)
    finally:
        fleet.terminate()
        fleet.wait()


def _wait(jobs: Jobs, job: Job) -> None:
    while jobs.state(job.id) is not JobState.DONE:
        time.sleep(0.1)  # a job of other processes has no event


def _check(is_whole: bool) -> None:
    assert is_whole, "a task is still in the midst"
