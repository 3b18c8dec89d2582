"""`PurgedKeys`: what was purged of a shard, as a backup and all later ones in its folder say it.

A restore leaves it out, of whatever time the backup is: what had to be forgotten does not come back by an old file.
Where a later one cannot be read, it is unknown what that is: a restore is refused then, unless an operator accepts it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from schemaless_core.backups.beside import read_beside
from schemaless_core.backups.folders import BackupFolder
from schemaless_core.backups.kept import KeptBackup, kept_backups, unlike
from schemaless_core.backups.manifest import NAME, Manifest, ShardBackup
from schemaless_core.engine.copies import CellRecord, Row
from schemaless_core.errors import BackupDamaged, BackupRefused

logger = logging.getLogger(__name__)

#: The table, among those beside a shard.
TABLE = "purged_key"
# Columns of its rows: shard, row key, column name, ref key, and two that say nothing here.
_ROW_KEY, _COLUMN, _REF_KEY = 1, 2, 3


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

    def has(self, cell: CellRecord) -> bool:
        """Whether a cell is one of those that are never stored again."""
        found = (self._of.get((cell.row_key, name)) for name in (b"", cell.column_name))
        return any(row is not None and cell.ref_key <= row[_REF_KEY] for row in found)


def read_purged(folder: BackupFolder, shard: ShardBackup, *, despite_lost: bool = False) -> PurgedKeys:
    """Of a shard of a backup. `BackupRefused`: a later backup may know of more; `despite_lost`: then without that."""
    rows = list(read_beside(folder, shard.beside).tables.get(TABLE, ()))
    for each in _later(folder, shard.beside.name.partition("/")[0]):
        if each.manifest is None:
            _lost(f"{each.name}/{NAME}", each.damage, is_accepted=despite_lost)
            continue
        for file in (other.beside for other in each.manifest.shards if other.shard == shard.shard):
            try:
                rows += read_beside(folder, file).tables.get(TABLE, ())
            except BackupDamaged as damage:
                _lost(file.name, damage.reason, is_accepted=despite_lost)
    return PurgedKeys(rows)


def lost_purges(folder: BackupFolder, manifest: Manifest) -> list[str]:
    """Files of later backups that may know of purges, and are damaged, missing or cut. Not all is read for that."""
    later = _later(folder, manifest.backup)
    damaged = [f"{each.name}/{NAME}" for each in later if each.manifest is None]
    files = [shard.beside for each in later if each.manifest is not None for shard in each.manifest.shards]
    return damaged + unlike(folder, files)


def _later(folder: BackupFolder, name: str) -> list[KeptBackup]:
    """Backups, whole or damaged; not the folders of such as never became one."""
    return [each for each in kept_backups(folder) if each.name > name and (each.manifest is not None or each.damage)]


def _lost(file: str, reason: str, *, is_accepted: bool) -> None:
    if not is_accepted:
        raise BackupRefused(
            f"{file} {reason}: it may know of rows that were purged, and they would come back.",
            hint="Mend the file and go on with --resume. Or give the restore up, and begin one in an empty datastore"
            " with --despite-lost-purges; then purge these rows again.",
        )
    extra = {"event": "restore.purged_unknown", "file": file, "reason": reason}
    logger.warning("what a later backup knows to be purged cannot be read", extra=extra)
