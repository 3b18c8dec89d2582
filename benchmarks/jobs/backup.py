"""A backup against `mariadb-dump` piped to zstd, and its restore against the import of that dump.

One process of ours each. The dump is of the same databases, and its import fills the same tables on another server.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

from benchmarks.cells import body_of, config_of
from benchmarks.timing import Comparison, paired
from schemaless_core import Cell, Datastore
from schemaless_core.backups.backups import BackupOrder, RestoreOrder
from schemaless_core.cell.encoded import encode_cell
from schemaless_core.control.jobs.records import JobState
from tripstore.local.replication import LocalCluster

SHARDS = 16
CELLS = 1_000_000
CELLS_PER_PUT = 5_000
BODY_BYTES_MAX = 100_000
BACKUP_MIN, RESTORE_MIN = 0.7, 1.0
NAME = "kept"
PROGRAMS = ("mariadb-dump", "mariadb", "zstd")


def measure(source: LocalCluster, target: LocalCluster, *, scale: float, rounds: int) -> Iterator[Comparison]:
    """At scale 1 a million cells, in turn by us and by the tools."""
    dump, client, zstd = PROGRAMS
    cells = max(CELLS_PER_PUT, round(CELLS * scale))
    times: dict[str, list[float]] = {"backup": [], "dump": [], "restore": [], "import": []}
    with Datastore.open(config_of(NAME, SHARDS, [source])) as store, TemporaryDirectory() as place:
        folder = Path(place)
        _fill(store, cells)
        for number in range(rounds):
            kept, file = folder / f"kept-{number}", folder / "dump.sql.zst"
            times["backup"].append(_timed(lambda: _back_up(store, kept)))  # noqa: B023  # called in this round
            command = f"{dump} {_login(source)} --single-transaction --databases {_databases()}"
            times["dump"].append(_timed(lambda: _shell(f"{command} | {zstd} -q -3 -f -o {file}")))  # noqa: B023  # called at once
            _drop(target)
            times["restore"].append(_timed(lambda: _restore(target, kept)))  # noqa: B023  # called at once
            _drop(target)
            into = f"{client} {_login(target)}"
            times["import"].append(_timed(lambda: _shell(f"{zstd} -dcq {file} | {into}")))  # noqa: B023  # called at once
            shutil.rmtree(kept)
    speeds = {name: [cells / seconds for seconds in found] for name, found in times.items()}
    name = f"backup of {cells:,} cells, against mariadb-dump | zstd"
    yield paired(name, speeds["backup"], speeds["dump"], unit="c/s", bound=(">=", BACKUP_MIN))
    name = "restore, against the import of the dump"
    yield paired(name, speeds["restore"], speeds["import"], unit="c/s", bound=(">=", RESTORE_MIN))


def _fill(store: Datastore, cells: int) -> None:
    store.create_schema()
    for first in range(0, cells, CELLS_PER_PUT):
        some = [Cell(uuid4(), "BASE", 1, body_of(first + n)) for n in range(CELLS_PER_PUT)]
        assert store.put_encoded([encode_cell(cell, BODY_BYTES_MAX) for cell in some]).created == CELLS_PER_PUT


def _back_up(store: Datastore, folder: Path) -> None:
    backups = store.backups()
    job = backups.begin(backups.plan(BackupOrder(str(folder), is_full=True)))
    assert backups.runner(job, "benchmark").run() is JobState.DONE


def _restore(target: LocalCluster, folder: Path) -> None:
    with Datastore.open(config_of(NAME, SHARDS, [target])) as store:
        backups = store.backups()
        job = backups.begin_restore(backups.plan_restore(RestoreOrder(str(folder), "last")))
        assert backups.restore_runner(job, "benchmark").run() is JobState.DONE


def _drop(cluster: LocalCluster) -> None:
    names = "SELECT schema_name AS name FROM information_schema.schemata WHERE schema_name LIKE %s"
    for row in cluster.primary.query(names, f"{NAME}\\_%"):
        cluster.primary.query(f"DROP DATABASE `{row['name']}`")


def _databases() -> str:
    return " ".join([f"{NAME}_meta", *(f"{NAME}_{shard:04d}" for shard in range(SHARDS))])


def _login(cluster: LocalCluster) -> str:
    server = cluster.primary
    return f"--no-defaults -h 127.0.0.1 -P {server.port} -u root -p{server.password}"


def _timed(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def _shell(command: str) -> None:
    subprocess.run(["bash", "-o", "pipefail", "-c", command], check=True)


def missing() -> str:
    """The first of the tools that this machine lacks; "": none."""
    return next((name for name in PROGRAMS if shutil.which(name) is None), "")
