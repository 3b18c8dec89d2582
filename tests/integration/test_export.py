"""Exports of a cluster whose primary is lost: its tail was exported, and is in no log any more."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from unittest.mock import patch
from uuid import uuid4

import pytest

from schemaless_core import Datastore
from schemaless_core.failpoints import FailpointReached
from schemaless_core.logcopy.throttle import CopyThrottle
from schemaless_core.urls import parse_node_url
from tests.exports import POINTS, export_into, exported, exporter_into, logged
from tests.factories import make_cell
from tests.integration.test_moves import moved
from tests.promoted import Promotable, promotable
from tests.repairs import failing_at
from tests.stores import ServerEngine, Stores
from tripstore.export.commits import ExportFolder
from tripstore.export.exporter import Exporter


@pytest.fixture
def made(server_engine: ServerEngine, tmp_path: Path) -> Iterator[Promotable]:
    with promotable(server_engine, tmp_path / "control", replicas=1) as made:
        yield made


def salvage(made: Promotable) -> None:
    made.old.start()
    url = parse_node_url("old", made.old.url)
    made.store.promotions.salvage("a", url).run(lambda done, total: None)
    made.store.replayer().round()


@contextmanager
def writing(store: Datastore) -> Iterator[None]:
    """Another thread puts cells until the block ends."""
    ended = threading.Event()

    def write() -> None:
        while not ended.is_set():
            store.put_cells([make_cell(uuid4(), ref_key=n) for n in range(20)])

    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(write)
        try:
            yield
        finally:
            ended.set()
        writer.result()


def test_beside_writers_runs_that_die_anywhere_miss_and_double_no_cell(
    stores: Stores, server_engine: ServerEngine, tmp_path: Path
) -> None:
    died = Counter[str]()
    with closing(stores.fresh(server_engine, shards=4)) as store:
        with writing(store), patch("tripstore.export.exporter.CELLS_PER_PAGE", 20):
            for point in 3 * POINTS:
                try:
                    with failing_at(point):
                        exporter_into(store, tmp_path / "out", commit_bytes=1).run(lambda done: None)
                except FailpointReached:
                    died[point] += 1
                seen = exported(tmp_path / "out")
                assert len(seen) == len(set(seen)), point
        export_into(store, tmp_path / "out")

        assert died == dict.fromkeys(POINTS, 3)
        assert exported(tmp_path / "out") == logged(store)
        assert len(logged(store)) > 20


def test_a_rate_counts_what_is_read_and_not_what_is_chosen(stores: Stores, tmp_path: Path) -> None:
    slept = list[float]()
    throttle = CopyThrottle(lambda: None, 10.0, sleep=slept.append)
    with closing(stores.fresh("sqlite", shards=4)) as store:
        store.put_cells([make_cell(uuid4()) for _n in range(40)])
        report = Exporter(
            store, ExportFolder(tmp_path / "out"), (), columns=("RARE",), commit_bytes=1, throttle=throttle
        ).run(lambda done: None)

    assert report.cells == 0
    assert sum(slept) > 2


def test_shards_that_move_go_on_where_they_were(stores: Stores, server_engine: ServerEngine, tmp_path: Path) -> None:
    with closing(stores.fresh(server_engine, shards=4)) as store:
        for to in ("b", "a"):
            store.put_cells([make_cell(uuid4()) for _n in range(20)])
            export_into(store, tmp_path / "out")
            moved(store, 0, 1, to=to)
        store.put_cells([make_cell(uuid4()) for _n in range(20)])
        report = export_into(store, tmp_path / "out")

        assert (report.cells, report.lost) == (20, ())
        assert exported(tmp_path / "out") == logged(store)


def test_a_replica_that_is_behind_gives_what_it_has_and_the_next_run_the_rest(made: Promotable, tmp_path: Path) -> None:
    made.put(6)
    made.cluster.wait_for_replicas()
    made.replica().query("STOP REPLICA SQL_THREAD")
    made.put(4)

    behind = export_into(made.store.using(read="replica"), tmp_path / "out")
    made.replica().query("START REPLICA SQL_THREAD")
    made.cluster.wait_for_replicas()
    rest = export_into(made.store.using(read="replica"), tmp_path / "out")

    assert (behind.cells, behind.left) == (6, 4)
    assert (rest.cells, rest.left) == (4, 0)
    assert exported(tmp_path / "out") == logged(made.store)


def test_what_a_promotion_took_away_leaves_the_files_and_is_named(made: Promotable, tmp_path: Path) -> None:
    folder, careless = tmp_path / "out", tmp_path / "careless"
    kept = made.put(6)
    made.cluster.wait_for_replicas()
    assert export_into(made.store, folder).cells == 6
    made.replica().query("STOP REPLICA IO_THREAD")
    lost = made.put(8)
    for each in (folder, careless):
        export_into(made.store, each)
    assert exported(folder) == logged(made.store)
    made.old.kill()
    made.promote(made.order(dead=(made.old,)))
    # One of the lost cells is put again by its caller; others take added ids that lost ones had.
    made.store.put_cell(*lost[0].key, lost[0].body)
    made.put(3, "new")

    planned = exporter_into(made.store, folder).plan()
    with failing_at("export.file_written"), pytest.raises(FailpointReached):
        export_into(made.store, folder)
    with failing_at("export.file_moved"), pytest.raises(FailpointReached):
        export_into(made.store, folder)
    seen = exported(folder)
    last = exporter_into(made.store, folder)
    report = last.run(lambda done: None)
    last.note_told()
    with patch.object(Exporter, "_take_back"):
        export_into(made.store, careless)

    shards = {made.store.shard_of(cell.row_key) for cell in lost}
    assert set(planned.forked) == shards
    assert len(seen) == len(set(seen))
    assert exported(folder) == logged(made.store)
    named = [each for commit in ExportFolder(folder).commits() for each in commit.lost]
    assert {(each.row_key, each.column, each.ref_key) for each in named} == {cell.key for cell in lost}
    assert len(named) == len(lost)
    assert len(shards) > 1
    assert sum(bool(commit.lost) for commit in ExportFolder(folder).commits()) == 1, "all shards by one"
    told = [(each.row_key, each.column, each.ref_key) for each in report.lost]
    assert sorted(told) == sorted(cell.key for cell in lost), "also what runs took back that died"
    assert report.found_again == {lost[0].key}
    assert {cell.key for cell in kept} <= {(row[2], row[3], row[4]) for row in exported(folder)}
    assert exported(careless) != logged(made.store), "the control has lost cells in its files"

    salvage(made)
    again = export_into(made.store, folder)
    assert (again.cells, again.lost) == (len(lost) - 1, ()), "they are in the log once more, and in one file"
    assert exported(folder) == logged(made.store)
