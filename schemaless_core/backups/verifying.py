"""`verify`: reads each file of a backup back, and says what is not as it was written.

A file that cannot be read is named like one that is damaged: nothing else is known of it. Where the folder itself does
not answer, nothing is known of any file, and `verify` says that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

from schemaless_core.backups.beside import read_beside
from schemaless_core.backups.files import StoredFile, pages
from schemaless_core.backups.folders import BackupFolder
from schemaless_core.backups.manifest import LogFile, Manifest, ShardBackup
from schemaless_core.cell.sharding import shard_of_bytes
from schemaless_core.errors import BackupDamaged, FolderUnavailable

#: Checksums and decompression are done beside each other.
THREADS = 2
#: A file that is not handed over is asked for so often, with a pause between.
TRIES, PAUSE_SECONDS = 3, 1.0


class DamagedFile(NamedTuple):
    """What is wrong with a file."""

    file: str
    reason: str


class VerifiedBackup(NamedTuple):
    """What was read."""

    files: int
    cells: int
    bytes: int
    damages: tuple[DamagedFile, ...]


def verify(
    folder: BackupFolder,
    manifest: Manifest,
    hear: Callable[[int, int], None] = lambda done, total: None,
    *,
    sleep: Callable[[float], object] = time.sleep,
) -> VerifiedBackup:
    """Read all of a backup, earlier files that it builds upon too. `hear`: how many files are done, of how many.

    `FolderUnavailable`: it does not even say which backups it has.
    """
    damages = list(_gaps(manifest))
    looks = list(_looks(folder, manifest))
    cells = 0
    with ThreadPoolExecutor(THREADS) as threads:
        for done, answer in enumerate(threads.map(partial(_heard, folder, sleep), looks), 1):
            if isinstance(answer, BackupDamaged):
                damages.append(DamagedFile(answer.file, answer.reason))
            else:
                cells += answer
            hear(done, len(looks))
    return VerifiedBackup(len(looks), cells, sum(each.bytes for each in manifest.files), tuple(damages))


def _heard(folder: BackupFolder, sleep: Callable[[float], object], look: Callable[[], int]) -> int | BackupDamaged:
    for attempt in range(1, TRIES + 1):
        try:
            return look()
        except BackupDamaged as damage:
            return damage
        except FolderUnavailable as problem:
            unread = problem
        if attempt < TRIES:
            sleep(PAUSE_SECONDS)
    folder.backups()
    return BackupDamaged(unread.file, f"cannot be read ({unread.reason})")


def _looks(folder: BackupFolder, manifest: Manifest) -> Iterator[Callable[[], int]]:
    shards = len(manifest.shards)
    for shard in manifest.shards:
        for each in shard.log:
            yield partial(_log, folder, each, shard, shards)
        yield partial(_beside, folder, shard)
        if shard.buffered is not None:
            yield partial(_waiting, folder, shard.buffered)
    if manifest.conflicts is not None:
        yield partial(_waiting, folder, manifest.conflicts)


def _log(folder: BackupFolder, log: LogFile, shard: ShardBackup, shards: int) -> int:
    reached, count = log.first - 1, 0
    for page in pages(folder, log.file):
        try:
            cells = page.decoded()
        except ValueError as problem:
            raise BackupDamaged(log.file.name, f"is not what it says: {problem}") from problem
        if page.first != reached + 1:
            raise BackupDamaged(log.file.name, f"has no added id {reached + 1}")
        strays = [cell for cell in cells if shard_of_bytes(cell.row_key, shards) != shard.shard]
        if strays:
            raise BackupDamaged(log.file.name, f"has a row of another shard at {strays[0].added_id}")
        reached, count = page.last, count + len(cells)
    if (reached, count) != (log.last, log.cells):
        raise BackupDamaged(log.file.name, f"ends at {reached}, and not at {log.last}")
    return count


def _beside(folder: BackupFolder, shard: ShardBackup) -> int:
    read_beside(folder, shard.beside)
    return 0


def _waiting(folder: BackupFolder, file: StoredFile) -> int:
    try:
        for page in pages(folder, file):
            page.decoded()
    except ValueError as problem:
        raise BackupDamaged(file.name, f"is not what it says: {problem}") from problem
    return 0


def _gaps(manifest: Manifest) -> Iterator[DamagedFile]:
    for shard in manifest.shards:
        if (gap := shard.gap()) is not None:
            yield DamagedFile(manifest.backup, f"has no added ids {gap[0]} to {gap[1]} of shard {shard.shard}")
