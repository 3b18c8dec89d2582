"""Backups for tests: made and restored in this process, and what a datastore holds, to compare two."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from schemaless_core import Cell, Datastore, Json
from schemaless_core.backups.backups import BackupOrder, RestoreOrder
from schemaless_core.backups.folders import LocalFolder
from schemaless_core.backups.kept import find_backup
from schemaless_core.backups.manifest import Manifest
from schemaless_core.backups.verifying import verify
from schemaless_core.cell.standing import Gate, Kind
from schemaless_core.cell.stored import NewCell
from schemaless_core.control.jobs.records import Job, JobState
from schemaless_core.control.tables import job_part
from schemaless_core.deadline import Deadline
from schemaless_core.engine.buffers import Offered
from tests.fscks import row_of
from tests.stores import ServerEngine, Stores

SECONDS = 20.0
SHARDS = 4
INDEX: dict[str, Json] = {
    "table": "trips_of_driver",
    "column_defs": [{"column_key": "BASE", "fields": [{"field": "driver", "type": "string"}]}],
}
#: A cell for a buffer, but for its row key.
WAITING = NewCell(b"", b"BASE", 7, b'{"driver":"late"}')


def filled(store: Datastore, count: int = 40, first: int = 0) -> list[UUID]:
    """Rows in all shards, a cell in each."""
    rows = [row_of(store, n % SHARDS) for n in range(first, first + count)]
    store.put_cells([Cell(row, "BASE", 1, {"driver": f"driver {n % 3}", "ü": "'\\\0"}) for n, row in enumerate(rows)])
    return rows


def begun(store: Datastore, folder: Path, *, is_full: bool = False) -> Job:
    """A backup that no process works at yet."""
    backups = store.backups()
    return backups.begin(backups.plan(BackupOrder(str(folder), is_full)))


def backed_up(store: Datastore, folder: Path, *, is_full: bool = False) -> Manifest:
    """A backup, which is whole."""
    job = begun(store, folder, is_full=is_full)
    assert store.backups().runner(job, "test").run() is JobState.DONE
    made = find_backup(LocalFolder(str(folder)), "last")
    assert made.backup.endswith(job.id.removeprefix("backup-")), "the newest is the one that was made now"
    assert verify(LocalFolder(str(folder)), made).damages == (), "each file is as it was written"
    return made


@contextmanager
def empty(
    stores: Stores, engine: ServerEngine, *, shards: int, clusters: str = "ab", **options: Any
) -> Iterator[Datastore]:
    """A datastore that has no shards."""
    config = stores.config(engine, shards=shards, **options)
    config["clusters"] = {name: config["clusters"][name] for name in clusters}
    with Datastore.open(config) as store:
        yield store


def restore_begun(store: Datastore, folder: Path, until: datetime | None = None, name: str = "last") -> Job:
    """A restore that no process works at yet."""
    backups = store.backups()
    plan = backups.plan_restore(RestoreOrder(str(folder), name, until))
    assert plan.refusals == ()
    return backups.begin_restore(plan)


def restored(store: Datastore, folder: Path, until: datetime | None = None, name: str = "last") -> Job:
    """A restore, to its end."""
    job = restore_begun(store, folder, until, name)
    assert store.backups().restore_runner(job, "test").run() is JobState.DONE
    return job


def logs_of(store: Datastore) -> dict[int, list[tuple[object, ...]]]:
    """The logs of all shards, with all that a cell has: bytes, added ids, times."""
    found: dict[int, list[tuple[object, ...]]] = {}
    for shard in range(store.config.shards):
        slices = store._router.read(
            shard,
            lambda node, shard=shard: _Seen(node.log({shard: 0}, 100_000, Deadline(SECONDS))[shard]),  # type: ignore[misc]  # bound at once
            store._standing,
            "primary_only",
            Deadline(SECONDS),
        )
        found[shard] = [tuple(cell) for cell in slices.slice.cells]
    return found


class _Seen:
    """A page in the shape that the router wants."""

    def __init__(self, found: Any) -> None:
        self.slice = found
        self.state = found.head.state


def buffered(store: Datastore, shard: int, cell: NewCell, *, in_own_cluster: bool = False) -> None:
    """Have a cell of a shard wait in the buffer of the other cluster, or of its own."""
    topology = store.schema.plan().topology
    owner = next(at.cluster for each, at in topology if each == shard)
    other = next(name for name in store.clusters if (name == owner) == in_own_cluster)
    host = topology.shards_of(other)[0]
    node = store.clusters[other].primary.node
    state = node.heads([host], Deadline(SECONDS))[host].state
    gate = Gate(host, state.epoch, Kind.OWNER, state.authority_epoch)
    assert node.buffers.keep(gate, [Offered(shard, cell)], Deadline(SECONDS)) == [None], "it waits"


def expire(store: Datastore) -> None:
    """The leases of all parts of jobs are over."""
    with store.control.begin() as connection:
        connection.execute(sa.update(job_part).values(until_ms=0))
