"""kill -9 between a cell and its entries, and index servers that are down: I6 holds, and puts do not notice."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from schemaless_core import BatchFailed, Cell, CellConflict, Datastore, Json, MemoryStore, Unavailable
from schemaless_core.definitions.index import load_definitions
from schemaless_core.definitions.values import IndexFieldType, index_shard_of
from schemaless_core.failpoints import use_folder
from tests.chaos.actors import running, wait_until
from tests.chaos.test_unresponsive_server import rows_on, stopped
from tests.forking import FORK_SERVER
from tests.fscks import found_in
from tests.indexing import catch_up, nothing_after_commit
from tests.scale import scaled
from tests.stores import ServerEngine, Stores

KILLS = scaled(200)
SHARDS = 4
#: Rows that all writers change, and those that each has for itself.
ROWS = 6
NEW_ROWS = 6
DRIVERS = [f"driver {n}" for n in range(6)]
#: From the caller's thread, after the commit, to the thread that writes entries, before, between and after its steps.
POINTS = [
    "put.acknowledged",
    "index.queued",
    "index.read",
    "index.before_write",
    "entries.before_send",
    "entries.answered",
    "index.written",
]
DEFINITION: dict[str, Json] = {
    "table": "trips_of_driver",
    "column_defs": [
        {"column_key": "BASE", "fields": [{"field": "driver", "type": "string"}, {"field": "seats", "type": "int"}]},
        {"column_key": "STATUS", "fields": [{"field": "status", "type": "string"}]},
    ],
}


def cells_for_ever(choose: random.Random, rows: list[UUID]) -> Iterator[Cell]:
    """Versions in any order, of rows whose driver changes, is deleted, and comes back."""
    while True:
        row, ref_key = choose.choice(rows), choose.randrange(1, 10_000)
        if choose.random() < 0.3:
            status: Json = {"status": f"status {ref_key}"}
            yield Cell(row, "STATUS", ref_key, choose.choice([None, status]))
        else:
            body: Json = {"driver": choose.choice(DRIVERS), "seats": ref_key}
            yield Cell(row, "BASE", ref_key, choose.choice([None, body, body, body, body]))


def write_until_killed(config: Mapping[str, Any], failpoints: str, seed: int, rows: list[UUID]) -> None:
    """Put cells one by one and in batches; the armed failpoint ends the process."""
    use_folder(Path(failpoints))
    choose = random.Random(seed)
    cells = cells_for_ever(choose, [*rows, *(uuid4() for _ in range(NEW_ROWS))])
    with Datastore.open(config) as store:
        while True:
            try:
                if choose.random() < 0.5:
                    cell = next(cells)
                    store.put_cell(*cell.key, cell.body)
                else:
                    store.put_cells([next(cells) for _ in range(choose.randrange(2, 8))])
            except (CellConflict, BatchFailed):
                continue  # another body is under the key


def stored_cells(store: Datastore) -> list[Cell]:
    """All there are, from the logs."""
    pages = store.get_cells_for_shards(dict.fromkeys(range(store.config.shards), 0), 100_000)
    return [cell for page in pages.values() for cell in page.cells]


def wrong_drivers(store: Datastore, consistency: Any = "fast") -> list[str]:
    """The drivers whose entries are not those of a brute-force scan of all cells.

    A server may still run the last packets of a client that was killed: then they are compared again.
    """
    while True:
        cells = stored_cells(store)
        oracle = MemoryStore(
            shards=SHARDS, indexes=load_definitions([DEFINITION], Path.cwd(), "any"), lagging_indexes=False
        )
        oracle.put_cells(cells)
        wrong = [
            driver
            for driver in DRIVERS
            if store.query_index("trips_of_driver", driver, consistency=consistency, limit=10_000).entries
            != oracle.query_index("trips_of_driver", driver, limit=10_000).entries
        ]
        if len(stored_cells(store)) == len(cells):
            return wrong


def wrong_after_the_maintainer(store: Datastore) -> list[str]:
    """The same, once the maintainer has passed all cells."""
    catch_up(store)
    wrong = wrong_drivers(store)
    while wrong and catch_up(store):
        wrong = wrong_drivers(store)
    return wrong


def test_entries_of_writers_that_were_killed_are_neither_missing_nor_stale(
    datastore_engine: str, stores: Stores, failpoints: Path
) -> None:
    config = stores.config(datastore_engine, shards=SHARDS, indexes=[DEFINITION])
    rows, choose = [uuid4() for _ in range(ROWS)], random.Random()
    wrong_before = 0
    with Datastore.open(config) as store:
        store.create_schema()
        for number in range(KILLS):
            point = POINTS[number % len(POINTS)]
            (failpoints / point).write_text(f"kill after={choose.randrange(6)}")
            killed_writer(config, failpoints, number, rows)
            (failpoints / f"{point}.hit").unlink()
            wrong_before += bool(wrong_drivers(store))
            assert wrong_drivers(store, "verified") == []
            if number % 3 == 0:
                assert wrong_after_the_maintainer(store) == []

        assert wrong_after_the_maintainer(store) == []
        report = store.indexes.verify("trips_of_driver")
        assert report.is_clean
        assert found_in(store) == []

    figures = f"{wrong_before} left entries missing or stale, {report.entries} entries right after the maintainer"
    print(f"{datastore_engine}: {KILLS} writers killed, {figures}")
    assert wrong_before  # else nothing was shown


def killed_writer(config: Mapping[str, Any], failpoints: Path, seed: int, rows: list[UUID]) -> None:
    process: BaseProcess = FORK_SERVER.Process(target=write_until_killed, args=(config, str(failpoints), seed, rows))
    with running([process]):
        process.join(60)
        assert process.exitcode == -9


def test_many_writers_and_workers_at_once_leave_the_right_entries(datastore_engine: str, stores: Stores) -> None:
    """Few rows, so that those who read and write their entries meet: two threads after commits, and two workers."""
    config = stores.config(
        datastore_engine, shards=SHARDS, indexes=[DEFINITION], triggers={"lease_seconds": 1.5, "poll_seconds": 0.002}
    )
    rows, each = [uuid4() for _ in range(ROWS)], scaled(4_000)
    with Datastore.open(config) as one, Datastore.open(config) as other, ThreadPoolExecutor(6) as threads:
        one.create_schema()
        workers = [store.triggers.worker(store.indexes.groups) for store in (one, other)]
        running_workers = [threads.submit(worker.run) for worker in workers]
        try:
            writers = [
                threads.submit(put_some, store, random.Random(n), rows, each)
                for n, store in enumerate([one, other, one, other])
            ]
            for writer in writers:
                writer.result()
            wait_until("the workers have caught up", lambda: one.indexes.status()[0].versions[0].lag_cells == 0)
        finally:
            for worker in workers:
                worker.stop()
            for done in running_workers:
                done.result()
        report = one.indexes.verify("trips_of_driver")
        assert wrong_drivers(one) == []
        assert report.is_clean
        assert report.late == 0
        assert found_in(one) == []

    print(
        f"{datastore_engine}: {4 * each} puts of {ROWS} rows by 4 threads, {report.entries} entries, all of them right"
    )


def put_some(store: Datastore, choose: random.Random, rows: list[UUID], count: int) -> None:
    cells = cells_for_ever(choose, rows)
    for _n in range(count):
        cell = next(cells)
        with suppress(CellConflict):
            store.put_cell(*cell.key, cell.body)


def driver_with_entries_on(store: Datastore, cluster: str) -> str:
    """A driver whose entries this cluster holds."""
    shards = set(store.schema.plan().topology.shards_of(cluster))
    number = 0
    while index_shard_of(IndexFieldType.STRING, f"driver {number}", store.config.shards) not in shards:
        number += 1
    return f"driver {number}"


@pytest.fixture
def impatient(server_engine: ServerEngine, stores: Stores) -> Iterator[Datastore]:
    """Default deadlines, no replicas, and the index."""
    config = stores.config(server_engine, shards=SHARDS, indexes=[DEFINITION])
    for cluster in config["clusters"].values():
        cluster["replicas"] = []
    with Datastore.open(config) as patient:
        patient.create_schema()
    config["deadlines"] = {"put_seconds": 0.25, "read_seconds": 1.0}
    with Datastore.open(config) as store:
        for name in ("a", "b"):
            for row in rows_on(store, name, 3):
                store.using(deadline=10.0).put_cell(row, "BASE", 1, {"driver": "another"})
        yield store


def test_puts_neither_fail_nor_wait_while_the_server_of_their_entries_is_silent_or_dead(
    server_engine: ServerEngine, stores: Stores, impatient: Datastore
) -> None:
    cluster_b = stores.clusters(server_engine)[1]
    driver, rows = driver_with_entries_on(impatient, "b"), rows_on(impatient, "a", scaled(2_000))
    half = len(rows) // 2
    patient = impatient.using(deadline=10.0)

    def put(row: UUID) -> float:
        started = time.perf_counter()
        patient.put_cell(row, "BASE", 1, {"driver": driver})
        return time.perf_counter() - started

    with stopped(cluster_b):
        silent = sorted(put(row) for row in rows[:half])
    cluster_b.primary.kill()
    try:
        dead = sorted(put(row) for row in rows[half:])
    finally:
        cluster_b.primary.start()

    figures = f"p50 {silent[half // 2] * 1e3:.2f} and {dead[half // 2] * 1e3:.2f} ms"
    print(f"{server_engine}: puts with the index server silent and dead: {figures}, slowest {silent[-1]:.3f} s")
    assert max(silent[half // 2], dead[half // 2]) < 0.05
    assert silent[-1] < 1.0  # one that waits would wait for the index server's deadline
    wait_until("the server answers again", lambda: _caught_up(impatient))
    page = patient.query_index("trips_of_driver", driver, limit=len(rows) + 1)
    assert sorted(entry.row_key for entry in page.entries) == sorted(rows)


def _caught_up(store: Datastore) -> bool:
    try:
        catch_up(store)
    except Unavailable:
        return False
    return True


def test_without_the_maintainer_entries_of_a_killed_writer_stay_wrong(stores: Stores) -> None:
    """The control: an entry that the writer did not write after its commit is written by no other process."""
    store = stores.fresh("sqlite", shards=SHARDS, indexes=[DEFINITION])
    with nothing_after_commit():
        store.put_cell(uuid4(), "BASE", 1, {"driver": DRIVERS[0], "seats": 1})

    assert wrong_drivers(store) == [DRIVERS[0]]
    assert wrong_drivers(store, "verified") == []
