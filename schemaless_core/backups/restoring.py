"""`ShardRestoring`: one shard of a backup on its way into a datastore, as a copy that takes part in nothing.

The copy says by itself how far it is, and is written by the workers of one job alone: each page is added where the copy
ends, under the lock of its row. It has the whole log before it may arrive; it takes no writes before it is opened.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple

from schemaless_core.backups.beside import for_restored, read_beside
from schemaless_core.backups.files import FilePage, StoredFile, pages
from schemaless_core.backups.folders import BackupFolder
from schemaless_core.backups.manifest import ShardBackup
from schemaless_core.backups.purged import TABLE, KnownPurges
from schemaless_core.backups.records import cell_of, text_of
from schemaless_core.backups.waiting import WaitingAgain
from schemaless_core.cell.standing import ShardStatus
from schemaless_core.cell.stored import StoredCell
from schemaless_core.deadline import Deadline
from schemaless_core.engine.copies import CellRecord, CopySeen, CopyTables, RecordPart, Rows
from schemaless_core.engine.primacy import Opening
from schemaless_core.errors import BackupDamaged, BackupRefused
from schemaless_core.failpoints import reach
from schemaless_core.logcopy.ends import CALL_SECONDS, ClusterEnd
from schemaless_core.servers.clusters import Cluster

BESIDE_SECONDS = 60.0
#: Lines of the audit table of repair, by one transaction each.
LINES_PER_CALL = 20_000
_OPEN = (ShardStatus.RW.value, ShardStatus.COPY.value)
_COPY, _COMES = ShardStatus.MOVED.value, ShardStatus.COMES.value


class WrittenPart(NamedTuple):
    """A page of a shard that is restored, and where the copy ends then."""

    cells: int
    head: int


class ShardRestoring:
    """Of one restore, for any of its shards."""

    def __init__(
        self,
        clusters: Mapping[str, Cluster],
        folder: BackupFolder,
        job: str,
        purges: KnownPurges,
        until: datetime | None = None,
        opens_at: int = 0,
    ) -> None:
        """`until`: cells that were stored later are left out. `opens_at`: see `next_epoch`."""
        self._ends = {name: ClusterEnd(cluster, claim_of(job)) for name, cluster in clusters.items()}
        self._waiting_again = WaitingAgain(self._ends)
        self._folder = folder
        self._claim = claim_of(job)
        self._purges = purges
        self._until = until
        self._opens_at = opens_at

    def prepare(self, shard: ShardBackup, cluster: str, *, is_begun: bool) -> CopySeen:
        """Have the copy written by this job alone. `BackupRefused`: the shard is there, and not of this job.

        What is written must wait until the worker has saved that it has begun, and holds its part.
        """
        end = self._ends[cluster]
        epoch = next_epoch(shard, self._opens_at)
        end.ask(lambda copies: copies.prepare(shard.shard, self._claim, epoch, Deadline(BESIDE_SECONDS)))
        seen = end.look(shard.shard)
        if is_begun:
            return seen
        if seen.state != _COPY or seen.head:
            what = "takes part in calls" if seen.state != _COPY else f"has {seen.head:,} cells"
            hint = "A restore makes all shards itself: give it a datastore that has none."
            raise BackupRefused(f"Shard {shard.shard} {what} on {cluster} already.", hint=hint)
        return seen

    def look(self, shard: ShardBackup, cluster: str) -> CopySeen:
        """Return the shard's row."""
        return self._ends[cluster].look(shard.shard)

    def write(self, shard: ShardBackup, cluster: str, seen: CopySeen) -> Generator[WrittenPart]:
        """Add what the copy lacks, page by page."""
        end = self._ends[cluster]
        if seen.state == _COPY and seen.epoch != shard.epoch:
            if seen.head:
                raise _other(shard.shard)
            last = seen.head
            end.ask(
                lambda copies: copies.cut(shard.shard, self._claim, seen, shard.epoch, last, Deadline(CALL_SECONDS))
            )
        if seen.state != _COPY:
            return
        head, parts = seen.head, self._parts(shard, end, seen.head)
        with ThreadPoolExecutor(1, "restore-part") as ahead:
            part = next(parts, None)
            while part is not None:
                coming = ahead.submit(next, parts, None)  # it is read while the server stores this one
                if self._added(end, shard, head, part) != (shard.epoch, _COPY, part.last):
                    raise _other(shard.shard)
                head = part.last
                reach("restore.page_written")
                yield WrittenPart(part.cells, head)
                part = coming.result()

    def _added(self, end: ClusterEnd, shard: ShardBackup, head: int, part: RecordPart) -> CopySeen | None:
        deadline = Deadline(CALL_SECONDS)
        return end.ask(lambda copies: copies.write_records(shard.shard, self._claim, head, shard.epoch, part, deadline))

    def arrive(self, shard: ShardBackup, cluster: str) -> None:
        """Give the copy what stood beside the log, and make it a shard that is about to be opened."""
        end = self._ends[cluster]
        seen = end.look(shard.shard)
        epoch = next_epoch(shard, self._opens_at)
        if seen.state != _COPY and seen.epoch == epoch:
            return
        given = for_restored(read_beside(self._folder, shard.beside), seen.head, self._last_created_at(shard, end))
        given = given._replace(tables={**given.tables, TABLE: self._purges.of(shard).rows})
        for first in range(0, len(given.mended), LINES_PER_CALL):
            some = given.mended[first : first + LINES_PER_CALL]
            end.ask(partial(_put_lines, shard.shard, self._claim, some))
            reach("restore.lines_written")
        rest = given._replace(mended=[])
        is_given = end.ask(
            lambda copies: copies.put_beside(shard.shard, self._claim, rest, epoch, Deadline(BESIDE_SECONDS))
        )
        reach("restore.beside_written")
        come = end.ask(
            lambda copies: copies.arrive(shard.shard, epoch, shard.epoch, seen.head, Deadline(BESIDE_SECONDS))
        )
        if not is_given or come is None or come.state == _COPY:
            raise _other(shard.shard)
        reach("restore.arrived")

    def open(self, shard: ShardBackup, cluster: str, opening: Opening | None) -> CopySeen:
        """Open the shard to callers; one that is open stays so."""
        why = f"restored from {shard.beside.name.partition('/')[0]}"
        epoch = next_epoch(shard, self._opens_at)
        end = self._ends[cluster]
        seen = end.look(shard.shard)
        if seen.state in _OPEN and seen.epoch >= epoch:
            return seen  # a promotion may have gone on since
        found = end.ask(lambda copies: copies.open(shard.shard, epoch, opening, why, Deadline(CALL_SECONDS)))
        if found is None or found.state not in _OPEN:
            raise BackupRefused(
                f"Shard {shard.shard} does not open at authority epoch "
                f"{'of its own' if opening is None else opening.authority_epoch}; the backup has it at "
                f"{shard.authority_epoch}.",
                hint="Restore Postgres from a backup that is no older than this one, then go on with --resume.",
            )
        return found

    def keep(self, shard: ShardBackup, cluster: str, cells: list[StoredCell]) -> list[StoredCell]:
        """Have cells wait again; return those that are nowhere, since the body of a later put waits under their key."""
        return self._waiting_again.keep(shard.shard, cluster, cells)

    def wanted(self, shard: ShardBackup, cells: list[StoredCell]) -> list[StoredCell]:
        """Those that began to wait before the moment up to which is restored, and were not purged since."""
        in_time = [each for each in cells if self._until is None or each.created_at <= self._until]
        if not in_time:
            return []
        purged = self._purges.of(shard)
        return [each for each in in_time if not purged.has(each)]

    def waiting(self, shard: ShardBackup) -> list[StoredCell]:
        """Cells of the shard that were in buffers when it was backed up."""
        if shard.buffered is None:
            return []
        return cells_in(self._folder, shard.buffered)

    def _parts(self, shard: ShardBackup, end: ClusterEnd, head: int) -> Iterator[RecordPart]:
        """What comes after an added id: of files that are whole, pages that are whole, none left out between."""
        if (gap := shard.gap()) is not None:
            raise BackupDamaged(shard.beside.name, f"comes with a log of shard {shard.shard} that lacks {gap[0]}")
        reached, of_shard = head, self._purges.of(shard)
        for each in shard.log:
            if each.last <= reached:
                continue
            for page in pages(self._folder, each.file):
                if page.last <= reached:
                    continue
                if page.first > reached + 1:
                    raise BackupDamaged(each.file.name, f"has no added id {reached + 1}")
                last, cells, purged = self._lacking(each.file.name, page, reached)
                purged = sorted({*purged, *(cell.added_id for cell in cells if of_shard.has(cell))})
                cells = [cell for cell in cells if not of_shard.has(cell)]
                yield from _parts_of(end, last, cells, purged)
                if last < page.last:
                    return
                reached = last
            if reached < each.last:
                raise BackupDamaged(each.file.name, f"ends at {reached}, and not at {each.last}")

    def _lacking(self, name: str, page: FilePage, reached: int) -> tuple[int, list[CellRecord], list[int]]:
        """What of a page a copy lacks, and is not too late: up to which added id, its cells, its purged ids."""
        try:
            cells = page.decoded()
        except ValueError as problem:
            raise BackupDamaged(name, f"is not what it says: {problem}") from problem
        late = None if self._until is None else _first_after(cells, text_of(self._until))
        last = page.last if late is None else late.added_id - 1
        if reached >= page.first or late is not None:
            cells = [each for each in cells if reached < each.added_id <= last]
        return last, cells, [each for each in page.purged if reached < each <= last]

    def _last_created_at(self, shard: ShardBackup, end: ClusterEnd) -> datetime | str:
        """Of the last cell: what is put next is no earlier."""
        head = end.look(shard.shard).head
        cells = end.page(shard.shard, head - 1, 1).slice.cells if head else []
        if cells:
            return cells[-1].created_at.astimezone(UTC).replace(tzinfo=None)
        return str(read_beside(self._folder, shard.beside).last_created_at)


def _put_lines(shard: int, claim: int, lines: Rows, copies: CopyTables) -> bool:
    return copies.put_lines(shard, claim, lines, Deadline(BESIDE_SECONDS))


def next_epoch(shard: ShardBackup, opens_at: int) -> int:
    """The epoch at which a restored shard is opened.

    `opens_at`: one that no shard ever had. After the backup moves and promotions have opened shards at later epochs
    than the backup knows, and gave ids there that are other cells' now: a position of such an epoch must be unknown.
    """
    return max(shard.epoch + 1, opens_at)


def claim_of(job: str) -> int:
    """A number that is the job's alone: all its workers write to its copies, and no other job's."""
    return int.from_bytes(hashlib.sha256(job.encode()).digest()[:7], "big") + 1


def cells_in(folder: BackupFolder, file: StoredFile) -> list[StoredCell]:
    """The cells of a file that is no log."""
    return [cell_of(record) for page in pages(folder, file) for record in page.decoded()]


def _parts_of(end: ClusterEnd, last: int, cells: list[CellRecord], purged: list[int]) -> Iterator[RecordPart]:
    reached = cells[-1].added_id if cells else 0
    if cells:
        before = frozenset(each for each in purged if each < reached)
        yield RecordPart(reached, len(cells), end.ask(lambda copies: copies.row_values(cells)), before)
    if reached < last and purged:
        yield RecordPart(last, 0, (), frozenset(each for each in purged if each > reached))


def _first_after(cells: list[CellRecord], moment: bytes) -> CellRecord | None:
    return next((each for each in cells if each.created_at > moment), None)


def _other(shard: int) -> BackupRefused:
    return BackupRefused(
        f"The copy of shard {shard} is not as this restore has left it.",
        hint="Another one writes to it: end that, then go on with --resume.",
    )
