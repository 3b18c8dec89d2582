"""What a service's process takes, by the number of its clusters: memory, connections, threads, and its start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import yaml

from benchmarks.cells import BODY, PATIENT
from benchmarks.growth.figures import Growth
from schemaless_core import Datastore
from tripstore.local.servers import LocalServers

SHARDS, CLUSTERS = 4096, (1, 4, 20)
THREADS, CALLS = 8, 4_000
_SELF = Path("/proc/self")


def measure(scale: float) -> Growth:
    shards = max(round(SHARDS * scale), 64)
    growth = Growth(f"A process, {shards:,} shards, {THREADS} threads that put and get", "clusters", CLUSTERS)
    for count in CLUSTERS:
        with LocalServers() as servers, tempfile.TemporaryDirectory() as folder:
            names = [f"c{number}" for number in range(count)]
            clusters = servers.clusters("mariadb", names, replicas=0, shards=shards // count + 100)
            nodes = {cluster.name: {"primary": cluster.primary.url} for cluster in clusters}
            config = {"datastore": "grown", "shards": shards, "clusters": nodes, "deadlines": PATIENT}
            with Datastore.open(config) as store:
                store.create_schema()
            file = Path(folder) / "tripstore.yaml"
            file.write_text(yaml.safe_dump(config))
            command = [sys.executable, "-m", "benchmarks.growth.processes", str(file)]
            told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            for name, value in json.loads(told).items():
                growth.note(name, value)
    return growth


def _serve(file: str) -> dict[str, float]:
    """As a service does: it opens the store, and its threads work."""
    started = time.perf_counter()
    with Datastore.open(file) as store:
        opened = time.perf_counter() - started
        store.get_cell_latest(uuid4(), "BASE")
        first = time.perf_counter() - started
        fresh = _kilobytes()

        def work(_number: int) -> None:
            row_key = uuid4()
            store.put_cell(row_key, "BASE", 1, BODY)
            store.get_cell_latest(row_key, "BASE")

        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(work, range(CALLS)))
            return {
                "open (ms)": opened * 1e3,
                "open and first read (ms)": first * 1e3,
                "memory after the first read (MB)": fresh / 1024,
                f"memory after {CALLS:,} puts and reads (MB)": _kilobytes() / 1024,
                "connections then": _sockets(),
                "threads then, those that put apart": len(list((_SELF / "task").iterdir())) - THREADS,
            }


def _kilobytes() -> int:
    lines = (_SELF / "status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


def _sockets() -> int:
    links = (_SELF / "fd" / name for name in os.listdir(_SELF / "fd"))
    return sum(link.is_symlink() and os.readlink(link).startswith("socket:") for link in links)


if __name__ == "__main__":
    json.dump(_serve(sys.argv[1]), sys.stdout)
