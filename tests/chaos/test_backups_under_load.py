"""kill -9 of processes that back up, and restore, while others put: nothing acknowledged is missing (I1, I2, I3)."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from schemaless_core import Cell, Datastore
from schemaless_core.backups.folders import LocalFolder
from schemaless_core.backups.kept import find_backup
from schemaless_core.control.jobs.records import JobState
from schemaless_core.failpoints import use_folder
from tests.backups import backed_up, begun, logs_of, restore_begun
from tests.factories import make_trip
from tests.forking import FORK_SERVER
from tests.fscks import kinds_in
from tests.scale import SCALE, scaled
from tests.stores import ServerEngine, Stores

CELLS = scaled(5_000_000, short=10_000)
SHARDS = scaled(16, short=4)
KILLS = scaled(20, short=4)
#: A failpoint kills at one of so many times that it is reached: of a few cells there are few pages.
LATER = scaled(3, short=1)
CELLS_PER_PUT = 500
CREATED_AT = ("backup.page_read", "backup.file_written", "jobs.before_save", "backup.shard_begun", "jobs.saved")
RESTORED_AT = (
    "restore.page_written",
    "copies.written",
    "jobs.before_save",
    "restore.arrived",
    "restore.beside_written",
)
#: An increment after a hundredth has changed.
SHARE_MAX = 0.02


def serve_until_killed(config: Mapping[str, Any], failpoints: str, kind: str, job_id: str) -> None:
    """Serve the job; the armed failpoint ends the process, or the job is done."""
    use_folder(Path(failpoints))
    with Datastore.open(config) as store:
        backups = store.backups()
        job = backups.jobs.find(kind, job_id)
        runner = backups.runner(job, "killed") if kind == "backup" else backups.restore_runner(job, "killed")
        runner.run()


def kill(config: Mapping[str, Any], folder: Path, points: Iterator[str], kind: str, job: str, kills: int) -> int:
    """Kill so many processes that serve a job, each somewhere else; how many were."""
    killed = 0
    for number, point in zip(range(kills), points, strict=False):
        failpoints = folder / f"{kind}-{number}"
        failpoints.mkdir()
        (failpoints / point).write_text(f"kill after={number % LATER}")
        process = FORK_SERVER.Process(target=serve_until_killed, args=(config, str(failpoints), kind, job), daemon=True)
        process.start()
        process.join(60)
        killed += process.exitcode == -9
    return killed


@contextmanager
def putting(store: Datastore) -> Iterator[list[Cell]]:
    """A service that puts cells all the time; those that were acknowledged."""
    acknowledged: list[Cell] = []
    ended, failures = threading.Event(), list[BaseException]()

    def put() -> None:
        try:
            for number in itertools.count():
                cell = Cell(uuid4(), "BASE", 1, make_trip(number))
                store.put_cell(*cell.key, cell.body)
                acknowledged.append(cell)
                if ended.wait(0.01):
                    return
        except BaseException as failure:  # noqa: BLE001  # it is raised below
            failures.append(failure)

    thread = threading.Thread(target=put)
    thread.start()
    try:
        yield acknowledged
    finally:
        ended.set()
        thread.join()
    assert failures == [], failures


def test_i1_i2_i3_a_backup_and_a_restore_survive_kills_and_hold_what_was_acknowledged(
    server_engine: ServerEngine, stores: Stores, tmp_path: Path
) -> None:
    config = stores.config(server_engine, shards=SHARDS)
    with Datastore.open(config) as store:
        store.create_schema()
        for first in range(0, CELLS, CELLS_PER_PUT):
            store.put_cells([Cell(uuid4(), "BASE", 1, make_trip(first + n)) for n in range(CELLS_PER_PUT)])
        with putting(store) as acknowledged:
            while len(acknowledged) < SHARDS:
                time.sleep(0.01)  # until the service is at work
            before, heads = list(acknowledged), {shard: len(log) for shard, log in logs_of(store).items()}
            job = begun(store, tmp_path / "kept")
            killed = kill(config, tmp_path, itertools.cycle(CREATED_AT), "backup", job.id, KILLS)
            assert store.backups().runner(job, "last").run() is JobState.DONE
        made = find_backup(LocalFolder(str(tmp_path / "kept")), "last")
        assert killed == KILLS
        assert all(shard.last >= heads[shard.shard] for shard in made.shards), "what was acknowledged before it began"
        assert made.cells >= CELLS + SHARDS

        there = stores.config(server_engine, shards=SHARDS)
        with Datastore.open(there) as copy:
            restore = restore_begun(copy, tmp_path / "kept")
            killed = kill(there, tmp_path, itertools.cycle(RESTORED_AT), "restore", restore.id, KILLS)
            assert copy.backups().restore_runner(restore, "last").run() is JobState.DONE
            assert killed == KILLS
            wanted = {shard: log[: made.shards[shard].last] for shard, log in logs_of(store).items()}
            assert logs_of(copy) == wanted
            assert [found is not None for found in copy.get_cells([cell.key for cell in before])].count(False) == 0
            assert kinds_in(copy) == []

        full = sum(each.bytes for each in made.own_files)
        backed_up(store, tmp_path / "kept")
        store.put_cells([Cell(uuid4(), "BASE", 1, make_trip(n)) for n in range(CELLS // 100)])
        more = backed_up(store, tmp_path / "kept")
        logs = sum(each.file.bytes for shard in more.shards for each in shard.log if each.file in more.own_files)
        whole = sum(each.bytes for each in more.own_files)
        print(
            f"an increment after a hundredth has come: {logs / full:.2%} of the full one, with all {whole / full:.2%}"
        )
        # Of a few cells, what stands beside the logs is as much as they are.
        assert (whole if SCALE >= 1 else logs) / full <= SHARE_MAX
