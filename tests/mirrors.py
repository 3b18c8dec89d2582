"""The mirror at work in tests: relays and reverse mirrors in threads and in processes, and what came of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from uuid import UUID

from prometheus_client import REGISTRY

from schemaless_core import Cell, CellKey
from schemaless_core.failpoints import use_folder
from tests.chaos.actors import wait_until
from tests.crew import quick, wait_until_caught_up
from tests.facades import Migration
from tests.forking import FORK_SERVER
from tripstore.backends.postgres.layout.layout import LEGACY_ID
from tripstore.backends.schemaless.shards import REVERSE_GROUP
from tripstore.migration.mirror.mirror import Mirror
from tripstore.wiring import connect

#: Of the reverse mirror's group: no test waits as long as production does.
QUICK = quick(retry_seconds=60.0)


def relay_for_ever(document: Mapping[str, Any], failpoints: str) -> None:
    """A process that carries forward."""
    use_folder(Path(failpoints))
    with connect(document) as store:
        store.facade.begin()
        Mirror(store.facade).relay().run()


def reverse_for_ever(document: Mapping[str, Any], failpoints: str) -> None:
    """A process that carries back."""
    use_folder(Path(failpoints))
    with connect(document) as store:
        store.facade.begin()
        store.facade.store.triggers.worker(Mirror(store.facade).groups()).run()


def process(work: Any, migration: Migration, failpoints: Path) -> BaseProcess:
    return FORK_SERVER.Process(target=work, args=(migration.document, str(failpoints)), daemon=True)


@contextmanager
def relaying(migration: Migration, relays: int = 1) -> Iterator[None]:
    """Relays in threads of the test's own process."""
    with ExitStack() as running:
        for number in range(relays):
            running.enter_context(Mirror(migration.facade, f"relay {number}").relay())
        yield


@contextmanager
def reversing(migration: Migration) -> Iterator[None]:
    """The reverse mirror, served by a worker of the test's own process."""
    worker = migration.facade.store.triggers.worker(Mirror(migration.facade).groups())
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        worker.stop()
        thread.join(60)
    assert not thread.is_alive()


def wait_until_delivered(migration: Migration, parked: int = 0, seconds: float = 30) -> None:
    """Until nothing is in the queue but so many parked changes."""
    queue = Mirror(migration.facade).parked(is_reverse=False)

    def is_so() -> bool:
        ((count,),) = migration.legacy.sql("SELECT count(*) FROM tripstore.queue")
        return bool(count == parked == len(queue.listed(parked + 1)))

    wait_until("the queue is delivered", is_so, seconds)


def wait_until_only_parked(migration: Migration, seconds: float = 60) -> None:
    """Until relays have nothing left to do: what is in the queue waits for a person."""

    def is_so() -> bool:
        return not migration.legacy.sql("SELECT 1 FROM tripstore.queue WHERE parked IS NULL LIMIT 1")

    wait_until("only parked changes are queued", is_so, seconds)


def wait_until_mirrored_back(migration: Migration, seconds: float = 30) -> None:
    """Until the reverse mirror has passed every cell, parked ones included."""
    wait_until_caught_up(migration.facade.store, REVERSE_GROUP, seconds)


def changed_keys(migration: Migration) -> list[CellKey]:
    """Of every change there ever was, and of every legacy id."""
    changes = migration.legacy.changes()
    keys = [CellKey(change.row_key, change.column, change.ref_key) for change in changes]
    ids = {change.row_key for change in changes if change.column == "BASE" and change.row is not None}
    return [*keys, *(CellKey(row_key, LEGACY_ID, 0) for row_key in ids)]


def missing(migration: Migration) -> list[CellKey]:
    """What Schemaless does not have as Postgres has it."""
    keys = changed_keys(migration)
    theirs, ours = migration.duo.legacy.get_cells(keys), migration.facade.store.get_cells(keys)
    assert keys
    assert None not in theirs  # or two that are missing would be called equal
    return [key for key, there, here in zip(keys, theirs, ours, strict=True) if there != here]


def log_of(migration: Migration) -> list[Cell]:
    """Every cell that Schemaless has."""
    shards = range(migration.facade.config.core.shards)
    pages = migration.facade.store.get_cells_for_shards(dict.fromkeys(shards, 0), 10_000)
    return [cell for page in pages.values() for cell in page.cells]


def different(migration: Migration) -> list[CellKey]:
    """What Postgres does not have as Schemaless has it."""
    cells = log_of(migration)
    found = migration.duo.legacy.get_cells([CellKey(*cell.key) for cell in cells])
    assert cells
    return [CellKey(*cell.key) for cell, there in zip(cells, found, strict=True) if cell != there]


def rows_of(migration: Migration, row_key: UUID, table: str = "trips") -> list[tuple[Any, ...]]:
    """Status and version of a trip, or text and number of its notes, as the company's own SQL sees them."""
    fields = {"trips": "status, base_version", "notes": "text, n", "attempts": "result, attempt_no"}[table]
    return migration.legacy.sql(f"SELECT {fields} FROM {table} WHERE trip_uuid = %s ORDER BY 2", str(row_key))


def counted(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0
