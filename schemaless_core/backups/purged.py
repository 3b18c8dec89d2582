"""`KnownPurges`: what was purged of each shard, as a backup and all that ended after it began say it.

A restore leaves it out, of whatever time the backup is: what had to be forgotten does not come back by an old file.
Where one of the others cannot be read, it is unknown what that is: a restore is refused then, unless an operator
accepts it.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from typing import Protocol

from schemaless_core.backups.beside import read_beside
from schemaless_core.backups.files import StoredFile
from schemaless_core.backups.folders import BackupFolder
from schemaless_core.backups.kept import KeptBackup, kept_backups, unlike
from schemaless_core.backups.manifest import NAME, Manifest, ShardBackup
from schemaless_core.engine.copies import Row
from schemaless_core.errors import BackupDamaged, BackupRefused

logger = logging.getLogger(__name__)

#: The table, among those beside a shard.
TABLE = "purged_key"
# Columns of its rows: shard, row key, column name, ref key, and two that say nothing here.
_ROW_KEY, _COLUMN, _REF_KEY = 1, 2, 3


class Keyed(Protocol):
    """A cell, in a log or waiting for one."""

    @property
    def row_key(self) -> bytes: ...

    @property
    def column_name(self) -> bytes: ...

    @property
    def ref_key(self) -> int: ...


class PurgedKeys:
    """Of one shard."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._of: dict[tuple[bytes, bytes], Row] = {}
        for row in rows:
            key = bytes(row[_ROW_KEY]), bytes(row[_COLUMN])
            if key not in self._of or row[_REF_KEY] > self._of[key][_REF_KEY]:
                self._of[key] = row

    @property
    def rows(self) -> list[Row]:
        return list(self._of.values())

    def has(self, cell: Keyed) -> bool:
        """Whether a cell is one of those that are never stored again."""
        found = (self._of.get((cell.row_key, name)) for name in (b"", cell.column_name))
        return any(row is not None and cell.ref_key <= row[_REF_KEY] for row in found)


class KnownPurges:
    """Of one backup that is restored. The manifests of the others are read once, for all shards."""

    def __init__(self, folder: BackupFolder, manifest: Manifest, *, despite_lost: bool = False) -> None:
        """`despite_lost`: what a backup knows that cannot be read is done without."""
        self._folder = folder
        self._manifest = manifest
        self._despite_lost = despite_lost
        self._others: dict[int, list[StoredFile]] | None = None
        #: Of the shard that was asked for last.
        self._last: tuple[int, PurgedKeys] | None = None

    def of(self, shard: ShardBackup) -> PurgedKeys:
        """Of a shard. `BackupRefused`: another backup may know of more, and cannot be read."""
        if self._last is None or self._last[0] != shard.shard:
            self._last = shard.shard, self._read(shard)
        return self._last[1]

    def lost(self) -> list[str]:
        """Files of the others that may know of purges, and are damaged, missing or cut. Not all is read for that."""
        others = _others(self._folder, self._manifest)
        damaged = [f"{each.name}/{NAME}" for each in others if each.manifest is None]
        files = [shard.beside for each in others if each.manifest is not None for shard in each.manifest.shards]
        return damaged + unlike(self._folder, files)

    def _read(self, shard: ShardBackup) -> PurgedKeys:
        rows = list(read_beside(self._folder, shard.beside).tables.get(TABLE, ()))
        for file in self._files().get(shard.shard, ()):
            try:
                rows += read_beside(self._folder, file).tables.get(TABLE, ())
            except BackupDamaged as damage:
                self._miss(file.name, damage.reason)
        return PurgedKeys(rows)

    def _files(self) -> dict[int, list[StoredFile]]:
        """What stood beside each shard when the others were made."""
        if self._others is None:
            found = defaultdict[int, list[StoredFile]](list)
            for each in _others(self._folder, self._manifest):
                if each.manifest is None:
                    self._miss(f"{each.name}/{NAME}", each.damage)
                    continue
                for other in each.manifest.shards:
                    found[other.shard].append(other.beside)
            self._others = dict(found)
        return self._others

    def _miss(self, file: str, reason: str) -> None:
        if not self._despite_lost:
            raise BackupRefused(
                f"{file} {reason}: it may know of rows that were purged, and they would come back.",
                hint="Mend the file and go on with --resume. Or give the restore up, and begin one in an empty"
                " datastore with --despite-lost-purges; then purge these rows again.",
            )
        extra = {"event": "restore.purged_unknown", "file": file, "reason": reason}
        logger.warning("what a later backup knows to be purged cannot be read", extra=extra)


def _others(folder: BackupFolder, made: Manifest) -> list[KeptBackup]:
    """Backups, whole or damaged, that may know of a later purge; not the folders of such as never became one."""
    return [each for each in kept_backups(folder) if each.name != made.backup and _may_know(each, made)]


def _may_know(other: KeptBackup, made: Manifest) -> bool:
    """Whether it was begun later, or ended later: one that was paused has read shards long after it was begun."""
    if other.manifest is None:
        return bool(other.damage) and other.name > made.backup
    return other.name > made.backup or other.manifest.ended_at >= made.begun_at
