"""Files of backups without servers: what is read back is what was written, and every flipped bit is found."""

from __future__ import annotations

import errno
import traceback
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemaless_core.backups.beside import for_restored, keep_beside, mended_between, read_beside
from schemaless_core.backups.creating import keep_waiting
from schemaless_core.backups.files import FilePage, StoredFile, frame_of, keep, pages
from schemaless_core.backups.folders import BackupFolder, LocalFolder, UrlFolder, open_folder
from schemaless_core.backups.kept import find_backup, kept_backups, lacking
from schemaless_core.backups.manifest import FORMAT, LogFile, Manifest, ShardBackup, find_manifest, write_manifest
from schemaless_core.backups.records import cell_of, decoded, encoded
from schemaless_core.backups.verifying import verify
from schemaless_core.cell.sharding import shard_of_bytes
from schemaless_core.cell.stored import StoredCell
from schemaless_core.engine.copies import Beside
from schemaless_core.errors import BackupDamaged, BackupRefused, FolderUnavailable, InvalidRequest

AT = datetime(2026, 11, 29, 12, 0, 0, 123456, UTC)
NAME = "backup-20261129T120000-00000001"
SHARDS = 2

cells = st.builds(
    StoredCell,
    st.integers(1, 2**63 - 1),
    st.binary(min_size=16, max_size=16),
    st.binary(max_size=64),
    st.integers(-(2**63), 2**63 - 1),
    st.binary(max_size=200),
    st.datetimes(timezones=st.just(UTC)),
)


@given(st.lists(cells, max_size=5))
def test_a_record_has_all_that_a_cell_has(some: list[StoredCell]) -> None:
    assert [cell_of(record) for record in decoded(encoded(some))] == some


@given(st.lists(cells, min_size=1, max_size=3), st.integers(min_value=1))
def test_records_that_end_within_a_cell_are_refused(some: list[StoredCell], cut: int) -> None:
    records = encoded(some)
    last = len(encoded(some[-1:]))

    with pytest.raises(ValueError, match="cut"):
        list(decoded(records[: len(records) - 1 - cut % (last - 1)]))


@pytest.mark.parametrize("place", ["local", "memory"])
def test_a_folder_keeps_files_whole_and_lists_backups(place: str, tmp_path: Path) -> None:
    folder = open_folder(str(tmp_path / "kept")) if place == "local" else open_folder(f"memory://{tmp_path}")
    assert isinstance(folder, LocalFolder if place == "local" else UrlFolder)

    assert (folder.backups(), folder.size("a/b")) == ([], None)
    folder.write("a/b", b"first")
    folder.write("a/b", b"second")
    folder.write("c/d", b"")

    assert (folder.read("a/b"), folder.size("a/b"), folder.backups()) == (b"second", 6, ["a", "c"])
    with pytest.raises(BackupDamaged, match="a/c is not in"):
        folder.read("a/c")


def test_files_are_their_owners_alone_and_nothing_else_is_left(tmp_path: Path) -> None:
    LocalFolder(str(tmp_path / "kept")).write("a/b", b"rows of users")

    (file,) = (tmp_path / "kept" / "a").iterdir()
    assert [path.stat().st_mode & 0o777 for path in (file, file.parent)] == [0o600, 0o700]


def test_what_cannot_be_written_or_opened_says_why(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(FolderUnavailable, match="Not a directory"):
        LocalFolder(str(tmp_path / "file")).write("a/b", b"")
    with pytest.raises(InvalidRequest, match="nothing://"):
        open_folder("nothing://there")


@pytest.mark.parametrize(
    "url",
    [
        "sftp://user:s3cr3t@host/trips",
        "simplecache::sftp://user:s3cr3t@host/trips",
        "zip://trips::sftp://user:s3cr3t@host/trips.zip",
        "sftp://user:sec/s3cr3t@host/trips",
        "sftp://user:sec#s3cr3t@host/trips",
        "abfs://trips@account.dfs.core.windows.net/kept?sig=s3cr3t",
        "simplecache::https://host/trips?token=s3cr3t",
    ],
)
def test_a_url_with_what_may_be_a_secret_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(InvalidRequest, match=r"has a password|has a query") as refused:
        open_folder(url)

    assert "s3cr3t" not in "".join(traceback.format_exception(refused.value))


def test_words_of_a_library_are_not_repeated_but_what_went_wrong_is(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = open_folder("memory://trips")
    assert isinstance(folder, UrlFolder)
    problems: list[Exception] = [
        PermissionError(errno.EACCES, "PUT https://host/trips?sig=s3cr3t"),
        RuntimeError("login of user:s3cr3t"),
    ]
    for problem, told in zip(problems, (r"PermissionError: Permission denied", r"RuntimeError\."), strict=True):
        monkeypatch.setattr(folder._files, "cat_file", failing(problem))
        with pytest.raises(FolderUnavailable, match=told) as failed:
            folder.read("a/b")
        assert "s3cr3t" not in "".join(traceback.format_exception(failed.value))
    monkeypatch.setattr(folder._files, "pipe_file", failing(FileNotFoundError("no bucket s3cr3t")))
    with pytest.raises(FolderUnavailable, match=r"FileNotFoundError\."):
        folder.write("a/b", b"")


def failing(problem: Exception) -> Callable[..., bytes]:
    """A library that says no."""

    def verb(*_names: str | bytes) -> bytes:
        raise problem

    return verb


def test_a_folder_of_this_machine_is_one_by_a_url_too(tmp_path: Path) -> None:
    for scheme in ("file", "local"):
        open_folder(f"{scheme}://{tmp_path}/{scheme}").write("a/b", b"rows of users")
        assert (tmp_path / scheme / "a" / "b").stat().st_mode & 0o777 == 0o600


def test_a_page_that_lacks_or_doubles_an_added_id_is_refused() -> None:
    some = [cell(n, 0) for n in (1, 2, 4)]
    assert FilePage(1, 4, [3], 3, encoded([some[1], some[0], some[2]])).decoded() == list(decoded(encoded(some)))

    for page in (
        FilePage(1, 4, [], 3, encoded(some)),
        FilePage(1, 5, [3], 3, encoded(some)),
        FilePage(1, 4, [2], 3, encoded(some)),
        FilePage(1, 4, [3], 2, encoded(some)),
        FilePage(2, 5, [3], 3, encoded(some)),
    ):
        with pytest.raises(ValueError, match=r"missing|are not those"):
            page.decoded()


def test_i2_each_flipped_bit_of_each_file_is_found(backup: Backup) -> None:
    assert verify(backup.folder, backup.manifest).damages == ()
    for file in backup.path.rglob("*"):
        if file.is_dir():
            continue
        whole = file.read_bytes()
        for at in range(0, len(whole), max(1, len(whole) // 64)):
            file.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
            assert backup.damaged() == [f"{NAME}/{file.name}"], f"byte {at} of {file.name}"
        file.write_bytes(whole)
    assert backup.damaged() == []


def test_i2_a_file_that_is_gone_cut_or_another_one_is_found(backup: Backup) -> None:
    log = backup.path / NAME / "log"
    whole = log.read_bytes()
    log.write_bytes(whole[:-1])
    assert (backup.damaged(), lacking(backup.folder, backup.manifest)) == ([f"{NAME}/log"], [f"{NAME}/log"])
    log.unlink()
    assert (backup.damaged(), lacking(backup.folder, backup.manifest)) == ([f"{NAME}/log"], [f"{NAME}/log"])


def test_i12_a_file_that_cannot_be_read_is_named_and_the_others_are_looked_at(backup: Backup) -> None:
    log, waiting = backup.path / NAME / "log", backup.path / NAME / "waiting"
    log.unlink()
    log.symlink_to(log)  # it cannot be read
    waiting.write_bytes(b"damaged")
    rested: list[float] = []

    found = verify(backup.folder, backup.manifest, sleep=rested.append)

    assert {each.file for each in found.damages} == {f"{NAME}/log", f"{NAME}/waiting"}
    assert any("cannot be read (Too many levels of symbolic links)" in each.reason for each in found.damages)
    assert len(rested) == 2
    with pytest.raises(FolderUnavailable, match=f"is asked of {NAME}/log: Too many levels"):
        lacking(backup.folder, backup.manifest)


def test_i12_a_folder_that_does_not_answer_is_no_damage_of_its_files(backup: Backup) -> None:
    backup.path.rename(backup.path.with_name("away"))
    backup.path.symlink_to(backup.path)

    with pytest.raises(FolderUnavailable, match="Too many levels"):
        verify(backup.folder, backup.manifest, sleep=lambda _seconds: None)


def test_an_answer_that_was_cut_is_asked_for_again(backup: Backup, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    read = LocalFolder.read

    def cut_once(folder: LocalFolder, name: str) -> bytes:
        asked.append(name)
        return read(folder, name)[: 10 if asked.count(name) == 1 else None]

    monkeypatch.setattr(LocalFolder, "read", cut_once)

    assert find_manifest(backup.folder, NAME) == backup.manifest
    assert verify(backup.folder, backup.manifest).damages == ()
    assert {asked.count(name) for name in asked} == {2}


def test_the_newest_backup_is_found_by_its_own_manifest_alone(backup: Backup, monkeypatch: pytest.MonkeyPatch) -> None:
    for later in ("backup-20261130T120000-00000002", "backup-20261130T120000-00000003"):
        write_manifest(backup.folder, msgspec.structs.replace(backup.manifest, backup=later))
    asked: list[str] = []
    read = LocalFolder.read

    def reads(folder: LocalFolder, name: str) -> bytes:
        asked.append(name)
        return read(folder, name)

    monkeypatch.setattr(LocalFolder, "read", reads)

    assert find_backup(backup.folder, "last").backup == later
    assert asked == [f"{later}/manifest.json"]


def test_i3_a_manifest_that_leaves_added_ids_out_is_no_backup(backup: Backup) -> None:
    shard = backup.manifest.shards[0]
    shorter = msgspec.structs.replace(shard, last=shard.last + 1)
    found = verify(
        backup.folder, msgspec.structs.replace(backup.manifest, shards=(shorter, *backup.manifest.shards[1:]))
    )

    assert [each.reason for each in found.damages] == ["has no added ids 41 to 41 of shard 0"]
    files = (LogFile(1, 4, 4, shard.beside), LogFile(7, 9, 3, shard.beside))
    assert msgspec.structs.replace(shard, log=files, last=9).gap() == (5, 6)


def test_i2_a_row_of_another_shard_is_found(backup: Backup) -> None:
    stray = keep(backup.folder, f"{NAME}/log", [frame_of(FilePage(1, 1, [], 1, encoded([cell(1, 1)])))])
    shard = msgspec.structs.replace(backup.manifest.shards[0], last=1, log=(LogFile(1, 1, 1, stray),))

    found = verify(backup.folder, msgspec.structs.replace(backup.manifest, shards=(shard, backup.manifest.shards[1])))

    assert [each.reason for each in found.damages] == ["has a row of another shard at 1"]


def test_the_last_backup_is_the_newest_one_that_has_a_manifest(backup: Backup) -> None:
    backup.folder.write("backup-20261130T120000-00000002/0000-beside-1", b"")
    later = "backup-20261128T120000-00000003"
    write_manifest(backup.folder, msgspec.structs.replace(backup.manifest, backup=later))

    assert find_backup(backup.folder, "last") == backup.manifest
    states = [(each.name[-1], each.manifest is not None, each.damage) for each in kept_backups(backup.folder)]
    assert states == [("2", False, ""), ("1", True, ""), ("3", True, "")]
    with pytest.raises(BackupRefused, match="has no backup backup-0"):
        find_backup(backup.folder, "backup-0")


def test_a_file_has_no_bodies_that_repair_replaced_or_deleted(tmp_path: Path) -> None:
    line = (b"token", 0, 3, "purge", b"key", b"BASE", 1, b"a body", None, "job", "who", "host", AT)
    folder = LocalFolder(str(tmp_path))

    file = keep_beside(folder, "a/b", Beside(0, AT, {"purged": [(0, 3, AT)]}, [line], 0))

    kept = read_beside(folder, file)
    assert kept.mended[0][:9] == (b"token", 0, 3, "purge", b"key", b"BASE", 1, None, None)
    assert kept.tables == {}
    assert mended_between(kept, Beside(0, AT, {}, [], 0)) == {3}


def test_a_restored_shard_gets_no_fences_and_nothing_of_indexes() -> None:
    at = AT
    beside = Beside(
        3,
        at,
        {
            "trigger_offset": [(b"bills", 0, 2, 9, 77, 5, at), (b"index:drivers:v1", 0, 2, 9, 77, 0, at)],
            "trigger_parked": [
                (b"bills", 0, 4, b"", b"", 1, 1, 0, "", at, at, 8),
                (b"bills", 0, 8, b"", b"", 1, 1, 0, "", at, at, 8),
            ],
            "trigger_call": [(b"bills", 0, 2, 9, 1, 0, 0, 0)],
            "index_error": [("drivers",)],
            "shard_epoch": [(0, 1, 1, at, "created"), (0, 2, 8, at, "promoted")],
            "shard_authority": [(0, 3, "RW", 7, at)],
            "purged_key": [(0, b"row", b"", 2**63 - 1, 1, at)],
        },
        [(b"1", 0, 2), (b"2", 0, 9)],
        0,
    )

    given_ = for_restored(beside, 5, at)

    assert given_.tables == {
        "trigger_offset": [(b"bills", 0, 2, 5, 0, 0, at)],
        "trigger_parked": [(b"bills", 0, 4, b"", b"", 1, 1, 0, "", at, at, 0)],
        "trigger_call": [],
        "index_error": [],
        "shard_epoch": [(0, 1, 1, at, "created"), (0, 2, 6, at, "promoted")],
        "shard_authority": [(0, 3, "RW", 6, at)],
        "purged": [],
        "purged_key": [(0, b"row", b"", 2**63 - 1, 1, at)],
    }
    assert given_.mended == [(b"1", 0, 2)]


class Backup:
    """Two shards, forty cells in the first, one that waits, a conflict."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.folder: BackupFolder = LocalFolder(str(path))
        some = [cell(n, 0) for n in range(1, 41)]
        frames = [frame_of(FilePage(n + 1, n + 20, [], 20, encoded(some[n : n + 20]))) for n in (0, 20)]
        log = LogFile(1, 40, 40, keep(self.folder, f"{NAME}/log", frames))
        waiting, _count = keep_waiting(self.folder, f"{NAME}/waiting", [[cell(7, 0)]])
        shards = (
            ShardBackup(0, 1, 0, 40, (log,), self._beside("beside-0"), waiting, 1),
            ShardBackup(1, 1, 0, 0, (), self._beside("beside-1")),
        )
        conflicts, _count = keep_waiting(self.folder, f"{NAME}/conflicts", [[cell(8, 1)]])
        self.manifest = Manifest(FORMAT, NAME, "", "trips", "1", AT, AT, shards, conflicts, ("drivers",))
        write_manifest(self.folder, self.manifest)

    def _beside(self, name: str) -> StoredFile:
        return keep_beside(self.folder, f"{NAME}/{name}", Beside(0, AT, {"shard_epoch": []}, [], 0))

    def damaged(self) -> list[str]:
        """The files that are not as they were written."""
        try:
            found = find_manifest(self.folder, NAME)
        except BackupDamaged as damage:
            return [damage.file]
        assert found is not None
        return [each.file for each in verify(self.folder, found).damages]


@pytest.fixture
def backup(tmp_path: Path) -> Backup:
    made = Backup(tmp_path / "kept")
    assert list(pages(made.folder, made.manifest.shards[0].log[0].file))[1].first == 21
    assert read_beside(made.folder, made.manifest.shards[0].beside).authority_epoch == 0
    return made


def cell(added_id: int, shard: int) -> StoredCell:
    """One whose row belongs to that shard."""
    key = next(n for n in range(1000 * added_id, 1000 * added_id + 1000) if _shard(n) == shard)
    at = AT + timedelta(seconds=added_id)
    return StoredCell(added_id, UUID(int=key).bytes, b"BASE", 1, b'{"fare":%d}' % added_id, at)


def _shard(key: int) -> int:
    return shard_of_bytes(UUID(int=key).bytes, SHARDS)
