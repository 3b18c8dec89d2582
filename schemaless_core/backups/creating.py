"""`ShardReading`: one shard on its way into a backup, step by step; each step may be the last of its process.

First what may leave its place: cells that wait in buffers, then what stands beside the log, then the log up to where it
ended after that. A cell that was acknowledged before the backup began, and is not among those that wait, is in the log
by then. What repair does to cells meanwhile leaves a line that the file beside the log lacks, and the next backup goes
by that.
"""

from __future__ import annotations

import itertools
import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import msgspec

from schemaless_core.backups.beside import is_history_of, keep_beside, mended_between, read_beside
from schemaless_core.backups.files import FilePage, StoredFile, frame_of, keep
from schemaless_core.backups.folders import BackupFolder
from schemaless_core.backups.manifest import LogFile, ShardBackup
from schemaless_core.backups.records import encoded
from schemaless_core.backups.source import BackupSource, Led
from schemaless_core.cell.stored import StoredCell
from schemaless_core.engine.copies import Beside
from schemaless_core.failpoints import reach
from schemaless_core.logcopy.throttle import CopyThrottle

#: Records in one file, before they are compressed: what a kill loses, and what is in memory.
BYTES_PER_FILE = 32 * 1024 * 1024


class ShardRead(NamedTuple):
    """How far a shard is; what the step read; whether it was the last one."""

    shard: ShardBackup
    cells: int = 0
    bytes: int = 0
    is_end: bool = False


class ShardReading:
    """Of one backup, for any of its shards. `attempt`: no other claim of the shard's part has this number."""

    def __init__(
        self,
        source: BackupSource,
        folder: BackupFolder,
        backup: str,
        throttle: CopyThrottle,
        bytes_per_file: int = BYTES_PER_FILE,
    ) -> None:
        self._source = source
        self._folder = folder
        self._backup = backup
        self._throttle = throttle
        self._bytes_per_file = bytes_per_file
        self._writes = itertools.count(1)

    def begin(self, shard: int, base: ShardBackup | None, attempt: int) -> ShardRead:
        """Read what stands beside the log, and where that ends. `base`: what is kept of the shard already."""
        led = self._source.led(shard)
        name = self._name(f"{shard:04d}-buffered", attempt)
        buffered, waiting = keep_waiting(self._folder, name, self._source.waiting(shard))
        reach("backup.buffers_read")
        beside = self._source.beside(shard, led)
        last = self._source.look(shard, led).head
        log = () if base is None else self._still_right(base, led, beside, last)
        kept_beside = keep_beside(self._folder, self._name(f"{shard:04d}-beside", attempt), beside)
        reach("backup.shard_begun")
        begun = ShardBackup(shard, led.epoch, beside.authority_epoch, last, log, kept_beside, buffered, waiting)
        return ShardRead(begun, bytes=sum(each.bytes for each in (kept_beside, buffered) if each is not None))

    def go_on(self, found: ShardBackup, attempt: int) -> ShardRead | None:
        """Read the next file of the log, or see that there is none; None: another server leads, so begin anew."""
        led = self._source.led(found.shard)
        if led.epoch != found.epoch:
            return None
        if (gap := found.gap()) is None:
            return self._ended(found, led, attempt)
        file = self._written(found.shard, led, *gap, attempt)
        log = sorted((*found.log, file), key=lambda each: each.first)
        return ShardRead(msgspec.structs.replace(found, log=tuple(log)), file.cells, file.file.bytes)

    def conflicts(self, attempt: int) -> tuple[StoredFile | None, int]:
        """Read the ledger of conflicts; how many cells it has."""
        return keep_waiting(self._folder, self._name("conflicts", attempt), self._source.conflicts())

    def _page(self, shard: int, led: Led, after: int, last: int) -> tuple[FilePage, float]:
        begun = time.monotonic()
        page = self._source.page(shard, led, after, last)
        return page, time.monotonic() - begun

    def _ended(self, found: ShardBackup, led: Led, attempt: int) -> ShardRead:
        """The end, unless repair has changed something since the look beside the log: what has that is read again.

        So files and lines of the audit table say the same, and the next backup may go by the lines.
        """
        beside = self._source.beside(found.shard, led)
        changed = mended_between(read_beside(self._folder, found.beside), beside)
        log = _without(found.log, changed)
        if log == found.log:
            return ShardRead(found, is_end=True)
        kept = keep_beside(self._folder, self._name(f"{found.shard:04d}-beside", attempt), beside)
        return ShardRead(msgspec.structs.replace(found, log=log, beside=kept), bytes=kept.bytes)

    def _still_right(self, base: ShardBackup, led: Led, beside: Beside, last: int) -> tuple[LogFile, ...]:
        """The files of a log that is a part of this one, but for those with a cell that repair has changed since."""
        before = read_beside(self._folder, base.beside)
        reached = base.log[-1].last if base.log else 0
        if base.epoch > led.epoch or reached > last or not is_history_of(before, beside):
            return ()  # of another datastore, or of one that was restored meanwhile
        fork = self._source.fork(base.shard, led, base.epoch)
        if fork is not None and reached > fork:
            return ()
        return _without(base.log, mended_between(before, beside))

    def _written(self, shard: int, led: Led, first: int, last: int, attempt: int) -> LogFile:
        frames: list[bytes] = []
        after, cells, size = first - 1, 0, 0
        with ThreadPoolExecutor(1, "backup-page") as ahead:
            coming = ahead.submit(self._page, shard, led, after, last)
            while after < last and size < self._bytes_per_file:
                begun = time.monotonic()
                page, read_seconds = coming.result()
                after, cells, size = page.last, cells + page.cells, size + page.bytes
                if after < last and size < self._bytes_per_file:
                    coming = ahead.submit(self._page, shard, led, after, last)  # while this one is compressed
                frames.append(frame_of(page))
                reach("backup.page_read")
                self._throttle.rest(page.cells, read_seconds, time.monotonic() - begun)
        file = keep(self._folder, self._name(f"{shard:04d}-{first:012d}", attempt), frames)
        reach("backup.file_written")
        return LogFile(first, after, cells, file)

    def _name(self, what: str, attempt: int) -> str:
        """Return a name that no other write has: one whose answer did not come may reach an object store later."""
        return f"{self._backup}/{what}-{attempt}-{next(self._writes)}"


def _without(log: tuple[LogFile, ...], changed: set[int]) -> tuple[LogFile, ...]:
    """The files that have none of these added ids."""
    ids = sorted(changed)
    return tuple(each for each in log if bisect_left(ids, each.first) == bisect_right(ids, each.last))


def keep_waiting(
    folder: BackupFolder, name: str, portions: Iterable[list[StoredCell]]
) -> tuple[StoredFile | None, int]:
    """Write cells that are in no log, if there are any; how many they are."""
    frames: list[bytes] = []
    count = 0
    for cells in portions:
        frames.append(frame_of(FilePage(0, 0, (), len(cells), encoded(cells))))
        count += len(cells)
    return (keep(folder, name, frames) if frames else None), count
