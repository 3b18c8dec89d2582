"""A backup that builds upon the ones before it reads what came since, and nothing that was made anew (I1, I3)."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from schemaless_core import Datastore
from schemaless_core.backups import source as source_module
from schemaless_core.backups.backups import BackupOrder
from schemaless_core.backups.folders import LocalFolder
from schemaless_core.backups.kept import find_backup
from schemaless_core.backups.verifying import verify
from schemaless_core.control.jobs.records import JobState
from schemaless_core.errors import BackupDamaged, BackupRefused, FolderUnavailable
from schemaless_core.servers.topologies import Topologies
from schemaless_core.servers.topology import with_place
from tests.backups import (
    SHARDS,
    WAITING,
    backed_up,
    begun,
    buffered,
    empty,
    filled,
    logs_of,
    restored,
)
from tests.damage import execute
from tests.fscks import kinds_in, row_of
from tests.integration.test_moves import moved, purge
from tests.repairs import doing_at
from tests.stores import ServerEngine, Stores


def test_i3_what_a_promotion_took_from_the_log_is_read_anew(store: Datastore, tmp_path: Path) -> None:
    rows = filled(store)
    job = begun(store, tmp_path)

    def fork() -> None:
        """Another server leads shard 0 at epoch 2; it lacks all above the third cell, and has taken another one."""
        topologies = Topologies(store.control)
        known = topologies.find_newest()
        assert known is not None
        topologies.put_next(with_place(known, 0, known.placements[0].cluster, 2), why="test", action="test")
        execute(store, 0, "DELETE FROM {cell} WHERE added_id > 3")
        history = "{state}".replace("{state}", f"`{store.config.datastore}_meta`.shard_epoch")
        execute(store, 0, f"INSERT INTO {history} VALUES (0, 2, 4, UTC_TIMESTAMP(6), 'promoted')")
        execute(store, 0, "UPDATE {state} SET epoch = 2, next_added_id = 4 WHERE shard = 0")
        store.put_cell(rows[0], "BASE", 2, "at epoch 2")

    with doing_at("backup.file_written", fork):
        assert store.backups().runner(job, "test").run() is JobState.DONE

    shard = find_backup(LocalFolder(str(tmp_path)), "last").shards[0]
    assert (shard.epoch, shard.last, shard.cells) == (2, 4, 4)


def test_i1_the_next_backup_reads_what_came_since_and_what_repair_changed(
    store: Datastore, server_engine: ServerEngine, stores: Stores, tmp_path: Path
) -> None:
    rows = filled(store)
    first = backed_up(store, tmp_path)
    more = filled(store, 8)
    purge(store, 0, rows[0], None)
    purge(store, 1, rows[1], b'{"driver":"driver 9"}')

    second = backed_up(store, tmp_path)

    assert (second.base, second.cells) == (first.backup, 47)
    kept = [[each.file.name in {file.name for file in first.files} for each in shard.log] for shard in second.shards]
    assert kept == [[False], [False], [True, False], [True, False]]
    store.put_cell(more[0], "BASE", 2, {"driver": "driver 1"})
    execute(store, 1, "DELETE FROM {mended} WHERE {of}")  # as by a promotion of a server that had not heard of it
    third = backed_up(store, tmp_path)
    own = {each.name for each in third.own_files}
    read = [sum(each.cells for each in shard.log if each.file.name in own) for shard in third.shards]
    assert read == [1, 12, 0, 0], "the cell that came, and the shard whose repair was undone"
    with empty(stores, server_engine, shards=SHARDS) as copy:
        restored(copy, tmp_path)
        assert logs_of(copy) == logs_of(store)
    with empty(stores, server_engine, shards=SHARDS) as copy:
        restored(copy, tmp_path, name=first.backup)
        assert sum(map(len, logs_of(copy).values())) == 40


def test_damage_of_the_newest_backup_stops_the_next_one_and_no_full_one(store: Datastore, tmp_path: Path) -> None:
    filled(store)
    first = backed_up(store, tmp_path)
    (tmp_path / first.shards[0].log[0].file.name).unlink()

    with pytest.raises(BackupDamaged, match="is missing, or cut"):
        backed_up(store, tmp_path)
    manifest = tmp_path / first.backup / "manifest.json"
    manifest.write_bytes(manifest.read_bytes().replace(b"trips", b"tripz").replace(b'"cells":10', b'"cells":11'))
    with pytest.raises(BackupDamaged, match=r"manifest\.json"):
        backed_up(store, tmp_path)

    assert backed_up(store, tmp_path, is_full=True).base == ""


def test_a_backup_whose_base_was_removed_meanwhile_says_what_it_lacks(store: Datastore, tmp_path: Path) -> None:
    filled(store)
    first = backed_up(store, tmp_path)
    paused = begun(store, tmp_path)
    lost = first.shards[1].log[0].file.name
    (tmp_path / lost).unlink()

    with pytest.raises(BackupRefused, match=f"lacks {lost}, upon which this backup builds") as refused:
        store.backups().runner(paused, "test").run()

    assert "--full" in str(refused.value.hint)


def test_a_folder_takes_backups_of_one_datastore_full_ones_too(
    store: Datastore, server_engine: ServerEngine, stores: Stores, tmp_path: Path
) -> None:
    first = backed_up(store, tmp_path)
    other = stores.fresh(server_engine, shards=SHARDS)

    for is_full in (False, True):
        with pytest.raises(BackupRefused, match=f"has backups of datastore {store.config.datastore}"):
            backed_up(other, tmp_path, is_full=is_full)

    (tmp_path / first.backup / "manifest.json").write_bytes(b"damaged")
    assert backed_up(other, tmp_path, is_full=True).datastore == other.config.datastore


def test_a_plan_counts_the_shards_where_they_are_and_no_copies_that_moves_have_left(
    store: Datastore, tmp_path: Path
) -> None:
    filled(store)
    moved(store, 3, to="a")
    store.put_cell(row_of(store, 3), "BASE", 1, "after")

    assert store.backups().plan(BackupOrder(str(tmp_path))).cells == 41


def test_i1_a_write_whose_answer_did_not_come_and_that_arrives_later_damages_nothing(
    store: Datastore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a PUT does that an object store works at when its caller has given it up, and has written something else."""
    filled(store)
    late: list[tuple[LocalFolder, str, bytes]] = []
    write = LocalFolder.write

    def writes(folder: LocalFolder, name: str, data: bytes) -> None:
        if "/0000-0" in name and not late:
            late.append((folder, name, data))
            monkeypatch.setattr(source_module, "BYTES_PER_PAGE", 500)
            raise FolderUnavailable(folder.place, "no answer", name)
        write(folder, name, data)

    monkeypatch.setattr(LocalFolder, "write", writes)
    job = begun(store, tmp_path)
    assert store.backups().runner(job, "test").run() is JobState.DONE

    for each in late:
        write(*each)

    folder = LocalFolder(str(tmp_path))
    assert len(late) == 1
    assert verify(folder, find_backup(folder, "last")).damages == ()


def test_i1_a_shard_that_was_made_anew_builds_upon_no_backup_of_the_old_one(store: Datastore, tmp_path: Path) -> None:
    filled(store)
    first = backed_up(store, tmp_path)
    history = f"`{store.config.datastore}_meta`.shard_epoch"
    execute(store, 0, f"UPDATE {history} SET opened_at = opened_at + INTERVAL 1 SECOND WHERE shard = 0")

    second = backed_up(store, tmp_path)

    assert second.base == first.backup
    assert [new.log == old.log for new, old in zip(second.shards, first.shards, strict=True)] == [False, *[True] * 3]


def test_i1_until_leaves_out_what_was_stored_later_and_nothing_else(
    store: Datastore, server_engine: ServerEngine, stores: Stores, tmp_path: Path
) -> None:
    filled(store)
    before = logs_of(store)
    times = [cell.created_at for shard in range(SHARDS) for cell in store.get_cells_for_shard(shard, 0, 100).cells]
    until = max(at for at in times if at is not None)
    rows = filled(store, 8)
    waits = WAITING._replace(row_key=row_of(store, 1).bytes)
    buffered(store, 1, waits)
    made = backed_up(store, tmp_path)

    with empty(stores, server_engine, shards=SHARDS) as copy:
        job = restored(copy, tmp_path, until=until)

        assert logs_of(copy) == before
        assert copy.backups().jobs.progress(job.id).counts.get("waiting", 0) == 0
        assert copy.put_cell(rows[0], "BASE", 3, "after").added_id == 11
        assert kinds_in(copy) == []
    shard = made.shards[2]
    for file in (shard.log[0].file, shard.beside):
        path = tmp_path / file.name
        whole = path.read_bytes()
        path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        with empty(stores, server_engine, shards=SHARDS) as copy, pytest.raises(BackupDamaged):
            restored(copy, tmp_path, until=until - timedelta(days=1))
        path.write_bytes(whole)
