"""What backups a folder has: whole ones, damaged ones, and folders of such as never became one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from schemaless_core.backups.files import StoredFile
from schemaless_core.backups.folders import BackupFolder
from schemaless_core.backups.manifest import NAME, Manifest, find_manifest
from schemaless_core.errors import BackupDamaged, BackupRefused

LAST = "last"
PREFIX = "backup-"
#: Sizes are asked for so many at a time: object stores take a while for each.
THREADS = 16


class KeptBackup(NamedTuple):
    """A folder of a backup. Without a manifest it is none: its job goes on, or never will."""

    name: str
    manifest: Manifest | None
    damage: str = ""


def kept_backups(folder: BackupFolder) -> Iterator[KeptBackup]:
    """Yield all, the newest first; the manifest of each is read when its turn comes."""
    names = sorted((name for name in folder.backups() if name.startswith(PREFIX)), reverse=True)
    return (_kept(folder, name) for name in names)


def find_newest(folder: BackupFolder) -> Manifest | None:
    """Return the manifest of the newest backup; None: there is none. `BackupDamaged`: it cannot be read."""
    for each in kept_backups(folder):
        if each.damage:
            raise BackupDamaged(f"{each.name}/{NAME}", each.damage)
        if each.manifest is not None:
            return each.manifest
    return None


def find_backup(folder: BackupFolder, name: str) -> Manifest:
    """Return the manifest of a backup; `last` is the newest that has one, damaged or not."""
    manifest = find_newest(folder) if name == LAST else find_manifest(folder, name)
    if manifest is None:
        which = "no backup" if name == LAST else f"no backup {name}"
        raise BackupRefused(f"{folder.place} has {which}.", hint=_LIST)
    return manifest


def lacking(folder: BackupFolder, manifest: Manifest) -> list[str]:
    """The files of a backup that are not there, or of another size. To read them all is `verify`'s."""
    return unlike(folder, manifest.files)


def unlike(folder: BackupFolder, files: Sequence[StoredFile]) -> list[str]:
    """Those of some files that are not there, or of another size."""
    with ThreadPoolExecutor(THREADS) as threads:
        sizes = threads.map(lambda file: folder.size(file.name), files)
        return [file.name for file, size in zip(files, sizes, strict=True) if size != file.bytes]


def _kept(folder: BackupFolder, name: str) -> KeptBackup:
    try:
        return KeptBackup(name, find_manifest(folder, name))
    except BackupDamaged as damage:
        return KeptBackup(name, None, damage.reason)


_LIST = "`tripstore backup list` shows those that are there."
