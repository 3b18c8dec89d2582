"""`Manifest`: all that a backup is made of, written when all of its files are there. Without one there is no backup.

It names each file of each shard, those of earlier backups that it builds upon too: to restore, or to verify, no other
manifest is read.
"""

from __future__ import annotations

import hashlib
from datetime import datetime

import msgspec

from schemaless_core.backups.files import StoredFile
from schemaless_core.backups.folders import BackupFolder
from schemaless_core.errors import BackupDamaged

NAME = "manifest.json"
FORMAT = 1


class LogFile(msgspec.Struct, frozen=True):
    """A file that leads from one added id of a shard's log to another."""

    first: int
    last: int
    cells: int
    file: StoredFile


class ShardBackup(msgspec.Struct, frozen=True):
    """A shard: its log from its first added id to its last one, in order; and what stood beside it before that."""

    shard: int
    #: Of the log.
    epoch: int
    authority_epoch: int
    #: The last added id.
    last: int
    log: tuple[LogFile, ...]
    beside: StoredFile
    #: Cells that waited in buffers; None: none did.
    buffered: StoredFile | None = None
    buffered_cells: int = 0

    @property
    def cells(self) -> int:
        return sum(each.cells for each in self.log)

    @property
    def files(self) -> tuple[StoredFile, ...]:
        more = () if self.buffered is None else (self.buffered,)
        return (*(each.file for each in self.log), self.beside, *more)

    def gap(self) -> tuple[int, int] | None:
        """The first added ids that no file has; None: all are there."""
        reached = 0
        for each in self.log:
            if each.first != reached + 1:
                return reached + 1, each.first - 1
            reached = each.last
        return None if reached >= self.last else (reached + 1, self.last)


class Manifest(msgspec.Struct, frozen=True):
    """A backup. Times are the control database's."""

    format: int
    backup: str
    #: The newest backup that it builds upon; empty: it is a full one.
    base: str
    datastore: str
    version: str
    begun_at: datetime
    ended_at: datetime
    shards: tuple[ShardBackup, ...]
    #: Cells whose shard had another body under their key.
    conflicts: StoredFile | None
    #: Names of indexes that had entries. Entries are made from cells, and are no part of a backup.
    indexes: tuple[str, ...]

    @property
    def files(self) -> tuple[StoredFile, ...]:
        more = () if self.conflicts is None else (self.conflicts,)
        return (*(file for shard in self.shards for file in shard.files), *more)

    @property
    def own_files(self) -> tuple[StoredFile, ...]:
        """Those that were written for it."""
        return tuple(file for file in self.files if file.name.startswith(f"{self.backup}/"))

    @property
    def cells(self) -> int:
        return sum(shard.cells for shard in self.shards)

    @property
    def authority_epoch(self) -> int:
        return max((shard.authority_epoch for shard in self.shards), default=0)


class _Sealed(msgspec.Struct, frozen=True):
    sha256: str
    manifest: Manifest


def write_manifest(folder: BackupFolder, manifest: Manifest) -> None:
    """From here on it is a backup. Any worker writes the same bytes."""
    folder.write(f"{manifest.backup}/{NAME}", _sealed(manifest))


def find_manifest(folder: BackupFolder, backup: str) -> Manifest | None:
    """Return the manifest of a backup that is whole; None: it has none. `BackupDamaged`."""
    name = f"{backup}/{NAME}"
    if folder.size(name) is None:
        return None
    try:
        return _opened(backup, name, folder.read(name))
    except BackupDamaged:
        return _opened(backup, name, folder.read(name))  # an object store's answer may have been cut on its way


def _opened(backup: str, name: str, data: bytes) -> Manifest:
    try:
        manifest = msgspec.json.decode(data, type=_Sealed).manifest
    except (msgspec.MsgspecError, ValueError) as problem:  # bytes that are no UTF-8 are the second
        raise BackupDamaged(name, f"cannot be read ({problem})") from problem
    if manifest.format != FORMAT:
        raise BackupDamaged(name, f"is of format {manifest.format}, and this version knows {FORMAT}")
    if _sealed(manifest) != data or manifest.backup != backup:
        raise BackupDamaged(name, "has other bytes than were written: its checksum differs")
    return manifest


def _sealed(manifest: Manifest) -> bytes:
    digest = hashlib.sha256(msgspec.json.encode(manifest)).hexdigest()
    return msgspec.json.encode(_Sealed(digest, manifest))
