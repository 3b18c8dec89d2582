"""What commands take beside many jobs in the control database."""

from __future__ import annotations

from benchmarks.cells import SHARDS, config_of
from benchmarks.growth.commands import commanded
from benchmarks.growth.figures import Growth
from schemaless_core import Datastore
from schemaless_core.control.jobs.jobs import Jobs
from tripstore.local.servers import LocalServers

JOBS = (10, 1_000, 10_000)
PARTS = 4


def measure(scale: float) -> Growth:
    sizes = tuple(max(round(size * scale), 10) for size in JOBS)
    growth = Growth(f"A control database with jobs, of {PARTS} parts each", "jobs", sizes)
    with LocalServers() as servers:
        clusters = servers.clusters("mariadb", ["a"], replicas=0)
        config = config_of("jobs", SHARDS, clusters)
        with Datastore.open(config) as store, commanded(config) as command:
            store.create_schema()
            jobs = Jobs(store.control)
            made = 0
            for size in sizes:
                for _ in range(made, size):
                    _ended(jobs)
                made = size
                growth.note("`tripstore status` (s)", command.seconds("status"))
                growth.note("`tripstore fsck` of nothing (s)", command.seconds("fsck"))
                growth.note("`tripstore fsck --show last` (s)", command.seconds("fsck", "--show", "last"))
                growth.note("`tripstore doctor` (s)", command.seconds("doctor"))
    return growth


def _ended(jobs: Jobs) -> None:
    job = jobs.create("fsck", {"unit": "rows"}, [{"shards": [n]} for n in range(PARTS)])
    for _ in range(PARTS):
        part = jobs.claim(job.id, "growth", 60.0)
        assert part is not None
        jobs.save(part, "growth", checkpoint=None, counts={"cells": 1}, findings=[], is_done=True, lease_seconds=60.0)
