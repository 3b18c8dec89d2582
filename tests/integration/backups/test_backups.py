"""Backups of real servers, and datastores that are made of them (I1, I2, I3, I7)."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from uuid import UUID

import pytest

from schemaless_core import Cell, Datastore
from schemaless_core.backups import restoring as restoring_module
from schemaless_core.backups import source as source_module
from schemaless_core.backups.backups import BackupOrder
from schemaless_core.backups.beside import read_beside
from schemaless_core.backups.folders import LocalFolder
from schemaless_core.backups.kept import find_backup
from schemaless_core.backups.source import BackupSource
from schemaless_core.control.jobs.records import JobState, PartLost
from schemaless_core.deadline import Deadline
from schemaless_core.engine.mysql.copies.waiting import CELLS_PER_PORTION
from schemaless_core.engine.mysql.node import MySQLNode
from schemaless_core.errors import InvalidRequest, LogHole
from schemaless_core.failpoints import FailpointReached
from tests.backups import (
    INDEX,
    SHARDS,
    WAITING,
    backed_up,
    begun,
    buffered,
    empty,
    expire,
    filled,
    logs_of,
    restore_begun,
    restored,
)
from tests.crew import Notebook, noting, quick, wait_until_caught_up, working
from tests.damage import execute, lose
from tests.fscks import kinds_in, row_of
from tests.indexing import catch_up
from tests.integration.test_moves import purge
from tests.repairs import doing_at, failing_at
from tests.serving import told
from tests.stores import ServerEngine, Stores


def test_i1_i3_a_datastore_is_restored_as_it_was_into_one_cluster(
    server_engine: ServerEngine, stores: Stores, tmp_path: Path
) -> None:
    notebook = Notebook()
    with stores.fresh(server_engine, shards=SHARDS, indexes=[INDEX], triggers=quick(attempts=1)) as store:
        rows = filled(store)
        notebook.failing = lambda cell: cell.row_key == rows[0]
        with working(store, [noting(notebook)]):
            wait_until_caught_up(store, "noted")
        purge(store, 0, rows[4], None)
        purge(store, 0, rows[8], b'{"driver":"driver 9"}')
        waits = WAITING._replace(row_key=row_of(store, 1).bytes)
        buffered(store, 1, waits)
        before, offset = logs_of(store), told(store.triggers.offsets.find("noted", [2]))[2]

        made = backed_up(store, tmp_path)

        assert (made.cells, made.base, made.indexes) == (39, "", ("trips_of_driver",))
        with empty(
            stores, server_engine, shards=SHARDS, clusters="a", indexes=[INDEX], triggers=quick(attempts=1)
        ) as copy:
            job = restored(copy, tmp_path)

            assert logs_of(copy) == before
            assert copy.backups().jobs.progress(job.id).counts["waiting"] == 1
            assert copy.put_cell(rows[1], "BASE", 2, {"driver": "driver 1"}).epoch > 1
            there = told(copy.triggers.offsets.find("noted", [2]))[2]
            assert there.offset is not None
            assert offset.offset is not None
            assert (there.offset.added_id, there.offset.fence) == (offset.offset.added_id, 0)
            delivered = len(notebook.cells)
            with working(copy, [noting(notebook)]):
                wait_until_caught_up(copy, "noted")
            assert [each.row_key for each in copy.triggers.parked("noted")] == [rows[0].bytes]
            assert [cell.ref_key for cell in notebook.cells[delivered:]] == [2], "nothing is delivered again"
            assert copy.replayer().round().cells == 1
            assert copy.get_cell(UUID(bytes=waits.row_key), "BASE", 7) is not None
            catch_up(copy)
            copy.indexes.verify("trips_of_driver")
            copy.indexes.promote("trips_of_driver", 1)
            assert len(copy.query_index("trips_of_driver", "driver 9").entries) == 1
            assert kinds_in(copy) == ["parked"]


CREATED_AT_POINTS = (
    "jobs.created",
    "backup.buffers_read",
    "backup.shard_begun",
    "backup.page_read",
    "backup.file_written",
    "jobs.before_save",
    "jobs.saved",
    "backup.before_manifest",
    "backup.manifest_written",
)
RESTORED_AT_POINTS = (
    "restore.prepared",
    "copies.written",
    "restore.page_written",
    "restore.beside_written",
    "restore.arrived",
    "restore.saved",
    "restore.topology_written",
    "restore.shard_opened",
    "index.version_reserved",
    "jobs.before_save",
)


def test_i1_a_backup_and_a_restore_go_on_wherever_they_ended(
    server_engine: ServerEngine, stores: Stores, tmp_path: Path
) -> None:
    with stores.fresh(server_engine, shards=SHARDS, indexes=[INDEX]) as store:
        filled(store)
        before = logs_of(store)
        with failing_at("jobs.created"), suppress(FailpointReached):
            begun(store, tmp_path)
        backups = store.backups()
        job = backups.jobs.find("backup", "last")
        for point in CREATED_AT_POINTS[1:]:
            expire(store)
            with failing_at(point), suppress(FailpointReached):
                backups.runner(job, point).run()
        expire(store)
        assert backups.runner(job, "test").run() is JobState.DONE
        made = find_backup(LocalFolder(str(tmp_path)), "last")
        assert made.cells == sum(map(len, before.values()))

        with empty(stores, server_engine, shards=SHARDS, indexes=[INDEX]) as copy:
            restoring, restore = copy.backups(), restore_begun(copy, tmp_path)
            for point in RESTORED_AT_POINTS:
                expire(copy)
                with failing_at(point), suppress(FailpointReached):
                    restoring.restore_runner(restore, point).run()
            expire(copy)
            assert restoring.restore_runner(restore, "test").run() is JobState.DONE
            assert logs_of(copy) == before
            assert kinds_in(copy) == []


def test_i1_a_cell_that_is_carried_between_two_reads_is_in_the_backup(
    store: Datastore, server_engine: ServerEngine, stores: Stores, tmp_path: Path
) -> None:
    waits = WAITING._replace(row_key=row_of(store, 0).bytes)
    job = begun(store, tmp_path)
    buffered(store, 0, waits)

    with doing_at("backup.buffers_read", lambda: store.replayer().round()):
        assert store.backups().runner(job, "test").run() is JobState.DONE

    with empty(stores, server_engine, shards=SHARDS) as copy:
        restored(copy, tmp_path)
        assert [cell[1] for cell in logs_of(copy)[0]] == [waits.row_key]


def test_i1_cells_that_are_carried_while_a_buffer_is_read_are_in_the_log_and_those_behind_in_the_file(
    store: Datastore, server_engine: ServerEngine, stores: Stores, tmp_path: Path
) -> None:
    rows = [row_of(store, 0).bytes for _ in range(3 * CELLS_PER_PORTION)]
    job = begun(store, tmp_path)
    for row in rows:
        buffered(store, 0, WAITING._replace(row_key=row))
    carried: list[int] = []

    def carry() -> None:
        """All but the last portion, those that were read and those that come next."""
        node = store.clusters["b"].primary.node
        waiting = node.buffers.waiting([0], 2 * CELLS_PER_PORTION, 1 << 20, Deadline(20))
        cells = [Cell(UUID(bytes=each.cell.row_key), "BASE", 7, {"driver": "late"}) for each in waiting]
        store.put_cells(cells)
        node.buffers.settle([each.number for each in waiting], {}, Deadline(20))
        carried.append(len(cells))

    with doing_at("backup.waiting_read", carry):
        assert store.backups().runner(job, "test").run() is JobState.DONE

    made = find_backup(LocalFolder(str(tmp_path)), "last").shards[0]
    assert carried == [2 * CELLS_PER_PORTION]
    assert (made.cells, made.buffered_cells) == (2 * CELLS_PER_PORTION, 2 * CELLS_PER_PORTION)
    with empty(stores, server_engine, shards=SHARDS) as copy:
        restored(copy, tmp_path)
        copy.replayer().round()
        assert {cell[1] for cell in logs_of(copy)[0]} == set(rows)
        assert copy.clusters["a"].primary.node.buffers.conflicts(10, Deadline(20)) == []


def test_i1_repair_that_is_done_while_a_shard_is_read_is_read_again(store: Datastore, tmp_path: Path) -> None:
    rows = filled(store)
    job = begun(store, tmp_path)

    with doing_at("backup.page_read", lambda: purge(store, 0, rows[4], None)):
        assert store.backups().runner(job, "test").run() is JobState.DONE

    shard = find_backup(LocalFolder(str(tmp_path)), "last").shards[0]
    assert (shard.last, shard.cells) == (10, 9)
    kept = read_beside(LocalFolder(str(tmp_path)), shard.beside)
    assert [line[2] for line in kept.mended] == [2]


def test_i3_pages_with_purged_ids_are_put_together_by_the_server(
    store: Datastore, server_engine: ServerEngine, stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a purge of superseded versions all pages have some: cell by cell they would take much longer."""
    rows = filled(store)
    for n in (0, 4, 16, 36, 1, *range(2, 40, 4)):
        purge(store, n % SHARDS, rows[n], None)
    monkeypatch.setattr(BackupSource, "_page_of_cells", lambda *_page: pytest.fail("it was read cell by cell"))

    made = backed_up(store, tmp_path)

    assert [(shard.last, shard.cells) for shard in made.shards] == [(10, 6), (10, 9), (10, 0), (10, 10)]
    with empty(stores, server_engine, shards=SHARDS) as copy:
        restored(copy, tmp_path)
        assert logs_of(copy) == logs_of(store)
        assert copy.get_cells_for_shard(2, 0, 100).next_location == 10
        assert kinds_in(copy) == []


def test_i1_what_stands_beside_a_log_is_read_and_written_in_pages(
    store: Datastore, server_engine: ServerEngine, stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = filled(store)
    for n in range(12):
        purge(store, n % SHARDS, rows[n], None)
    parked = f"`{store.config.datastore}_meta`.trigger_parked"
    for group, added_id in (("a", 3), ("a", 9), ("b", 1), ("b", 9), ("c", 4)):
        row = "%s, 0, %s, %s, 'BASE', 1, 1, 0, 'e', UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), 7"
        execute(store, 0, f"INSERT INTO {parked} VALUES ({row})", group, added_id, rows[0].bytes)
    beside = (
        "SELECT token, added_id FROM {mended} WHERE shard = 0 ORDER BY id",
        (f"SELECT group_name, added_id FROM {parked} WHERE shard = 0 ORDER BY 1, 2"),
    )
    wanted = [execute(store, 0, statement) for statement in beside]
    node = store.clusters["a"].primary.node
    assert isinstance(node, MySQLNode)
    pages = [node.copies.lines_after(0, mark, 4, Deadline(20)) for mark in (0, 4)]
    assert max(len(each.lines) for each in pages) <= 4, "of all shards, so many lines"
    monkeypatch.setattr(source_module, "BESIDE_ROWS", 2)
    monkeypatch.setattr(restoring_module, "LINES_PER_CALL", 2)

    backed_up(store, tmp_path)

    with empty(stores, server_engine, shards=SHARDS) as copy:
        job = restore_begun(copy, tmp_path)
        with failing_at("restore.lines_written"), pytest.raises(FailpointReached):
            copy.backups().restore_runner(job, "killed").run()
        expire(copy)
        assert copy.backups().restore_runner(job, "test").run() is JobState.DONE
        there = [execute(copy, 0, each.replace(store.config.datastore, copy.config.datastore)) for each in beside]
    assert ([len(each) for each in wanted], there) == ([3, 5], wanted)


def test_the_control_reads_the_log_first_and_loses_what_is_carried_meanwhile(store: Datastore) -> None:
    source = BackupSource(store.clusters, store.control)
    waits = WAITING._replace(row_key=row_of(store, 0).bytes)
    buffered(store, 0, waits)

    last = source.look(0, source.led(0)).head
    store.replayer().round()

    assert (last, list(source.waiting(0))) == (0, [])


def test_i1_a_worker_that_has_lost_its_shard_changes_nothing_of_a_backup(store: Datastore, tmp_path: Path) -> None:
    filled(store)
    backups, job = store.backups(), begun(store, tmp_path)

    def take_over() -> None:
        expire(store)
        assert backups.runner(job, "other").run() is JobState.DONE

    lost: list[PartLost] = []
    runner = backups.runner(job, "slow")
    runner._lost = lambda part: lost.append(PartLost(part, "slow"))  # type: ignore[method-assign]  # to be seen
    with doing_at("backup.file_written", take_over):
        assert runner.run() is JobState.DONE

    made = find_backup(LocalFolder(str(tmp_path)), "last")
    assert (len(lost), made.cells) == (1, 40)
    assert store.backups().plan(BackupOrder(str(tmp_path))).base == made.backup


def test_i3_a_log_with_a_hole_is_no_backup(store: Datastore, tmp_path: Path) -> None:
    rows = filled(store)
    lose(store, Cell(rows[4], "BASE", 1, {}))

    with pytest.raises(LogHole):
        backed_up(store, tmp_path)


def test_a_cluster_that_has_no_shard_yet_is_passed(server_engine: ServerEngine, stores: Stores, tmp_path: Path) -> None:
    config = stores.config(server_engine, shards=SHARDS)
    with Datastore.open({**config, "clusters": {"a": config["clusters"]["a"]}}) as store:
        store.create_schema()
    with Datastore.open(config) as store:
        assert backed_up(store, tmp_path).cells == 0


def test_files_are_copied_by_other_means(stores: Stores, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="Cluster a is a file"):
        stores.fresh("sqlite", shards=SHARDS).backups().plan(BackupOrder(str(tmp_path)))
