"""Purges for tests: a row that is to be forgotten, a purge to its end, and what must hold after it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from unittest.mock import patch
from uuid import UUID

import pytest

from schemaless_core import Cell, CellPurged, Datastore, Json
from schemaless_core.control.jobs.records import Job, JobState
from schemaless_core.engine.mysql.guard import Guard
from schemaless_core.engine.sqlite import mending as sqlite_mending
from schemaless_core.engine.sqlite import writes as sqlite_writes
from schemaless_core.purging.purge_jobs import PurgeOrder
from schemaless_core.purging.runner import LEFT
from tests.fscks import row_of

SHARDS = 4
SECONDS = 20.0
INDEX: dict[str, Json] = {
    "table": "trips_of_driver",
    "column_defs": [{"column_key": "BASE", "fields": [{"field": "driver", "type": "string"}]}],
}
SECRET = b"Ada Lovelace"
LATER = timedelta(days=1)


def person(row_key: UUID) -> list[Cell]:
    """A row with versions, and two values under which an index had it."""
    drivers = ["driver 1", "driver 2", "driver 2"]
    base = [Cell(row_key, "BASE", n, {"driver": name, "name": SECRET.decode()}) for n, name in enumerate(drivers, 1)]
    return [*base, Cell(row_key, "NOTE", 1, SECRET.decode())]


def filled(store: Datastore, *, shard: int = 0) -> UUID:
    """One that is to be forgotten, with neighbours in its shard."""
    row_key = row_of(store, shard)
    neighbours = [Cell(row_of(store, shard), "BASE", 1, {"driver": "driver 1"}) for _ in range(3)]
    store.put_cells([neighbours[0], *person(row_key)[:2], neighbours[1], *person(row_key)[2:], neighbours[2]])
    return row_key


def begun(store: Datastore, *rows: UUID) -> Job:
    purges = store.purge_jobs
    return purges.begin(purges.plan(PurgeOrder(rows)))


def versions(*columns: str) -> PurgeOrder:
    """Superseded ones of columns that hold one thing of a row."""
    return PurgeOrder((), columns, datetime.now(UTC) + LATER, versioned=columns)


def of_versions(store: Datastore, column: str) -> Job:
    """A purge of superseded ones, begun."""
    its = store.purge_jobs
    return its.begin(its.plan(versions(column)))


def run(store: Datastore, job: Job) -> None:
    """To its end, with nothing left."""
    runner = store.purge_jobs.runner(job, "test", settle_seconds=0.0, replica_seconds=0.0)
    assert runner.run() is JobState.DONE, "it comes to its end"
    assert store.purge_jobs.jobs.findings(job.id, kinds=[LEFT]) == [], "nothing is left of any row"


def purge(store: Datastore, *rows: UUID) -> Job:
    job = begun(store, *rows)
    run(store, job)
    return job


def bodies_of_lines(store: Datastore) -> list[bytes]:
    """Bodies that the audit table has kept."""
    lines = store.mends.lines()
    return [body for line in lines for body in (line.old_body, line.new_body) if body is not None]


def check_gone(store: Datastore, row_key: UUID) -> None:
    """Nothing of the row is there, for any reader, and nothing of it is taken."""
    assert store.get_row(row_key) == {}, "no reader finds it"
    assert store.get_history(row_key, "BASE") == [], "nor its history"
    page = store.get_cells_for_shard(store.shard_of(row_key), 0, 10_000)
    assert row_key not in {cell.row_key for cell in page.cells}, "nor a reader of the log"
    assert page.next_location == page.head, "a reader of the log waits for what was purged"
    for cell in person(row_key):
        with pytest.raises(CellPurged):
            store.put_cell(*cell.key, cell.body)
    assert store.get_row(row_key) == {}, "a put brings nothing back"


def is_back(store: Datastore, row_key: UUID) -> bool:
    return bool(store.get_row(row_key))


@contextmanager
def looking_at_no_key() -> Iterator[None]:
    """The rule is broken: no put looks at purged keys. For the controls."""

    def look(guard: Guard, _connection: object, *, again: bool = False) -> None:
        guard.is_told, guard.condition, guard.shards = False, "", set()

    def none(*_args: object) -> None:
        return None

    with (
        patch.object(Guard, "look", look),
        patch.object(Guard, "is_told", property(lambda _guard: False, lambda _guard, _told: None), create=True),
        patch.object(Guard, "condition", property(lambda _guard: "", lambda _guard, _said: None), create=True),
        patch.object(Guard, "shards", property(lambda _guard: set(), lambda _guard, _shards: None), create=True),
        patch.object(sqlite_writes, "purged_up_to", none),
        patch.object(sqlite_mending, "purged_up_to", none),
    ):
        yield
