"""`BackupSource`: a datastore as a backup reads it: each shard from the primary that leads it, at the topology's epoch.

The control database decides who leads before any server hears of it. So what was read at an epoch was acknowledged
there, as long as the topology says the same epoch afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from schemaless_core.backups.files import FilePage
from schemaless_core.backups.records import encoded
from schemaless_core.cell.standing import ShardStatus
from schemaless_core.cell.stored import StoredCell
from schemaless_core.control.database import ControlDatabase
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import Node
from schemaless_core.engine.copies import Beside, CopySeen, CopyTables, MendedLines, Row, Rows
from schemaless_core.errors import LogHole, NodeUnavailable, SchemaMissing, Unavailable
from schemaless_core.failpoints import reach
from schemaless_core.logcopy.ends import CALL_SECONDS, ClusterEnd, copies_of
from schemaless_core.servers.clusters import Cluster
from schemaless_core.servers.leaders import Leaders
from schemaless_core.servers.places import check_topology
from schemaless_core.servers.topologies import Topologies
from schemaless_core.servers.topology import Placement, Topology

#: Records that one answer brings, if they are as large as those before them. Servers take 16 MiB for one.
BYTES_PER_PAGE = 4 * 1024 * 1024
#: Where cells are read one by one.
CELLS_PER_PAGE = 2_000
#: Of what stands beside a log, in one answer.
BESIDE_ROWS = 20_000


class ShardChanged(Unavailable):
    """The shard is led by another server than a moment ago, or at another epoch: look again."""

    def __init__(self, shard: int, reason: str) -> None:
        super().__init__(f"Shard {shard} {reason}.", hint="Another server is about to lead it, or it moves: try again.")


class Led(NamedTuple):
    """Who leads a shard."""

    cluster: str
    epoch: int


class BackupSource:
    """Safe to share by threads."""

    def __init__(self, clusters: Mapping[str, Cluster], control: ControlDatabase) -> None:
        self._clusters = clusters
        self._topologies = Topologies(control)
        self._leaders = Leaders(control)
        #: As the last page had them; before the first it may be more.
        self._bytes_per_id = BYTES_PER_PAGE / CELLS_PER_PAGE

    def topology(self) -> Topology:
        """Where all shards are; which servers lead is known from here on, too."""
        found = self._topologies.find_newest()
        if found is None:
            raise SchemaMissing("There are no shards yet.", hint="Run `tripstore schema apply`.")
        check_topology(found, found.shards, self._clusters)
        for name, (leader, is_leased) in self._leaders.find_all().items():
            if name in self._clusters:
                self._clusters[name].hear(leader, is_leased=is_leased)
        return found

    def led(self, shard: int) -> Led:
        for at in self.topology().placements:
            if at.first <= shard <= at.last:
                return _led(at)
        raise SchemaMissing(f"There is no shard {shard}.", hint="Run `tripstore schema apply`.")

    def look(self, shard: int, led: Led) -> CopySeen:
        """Return the shard's row, if it is as the topology says."""
        seen = self._end(led).look(shard)
        _check(shard, led, seen.epoch, seen.state)
        return seen

    def beside(self, shard: int, led: Led) -> Beside:
        """Return what stands beside the log, lines of repair without bodies. What may be much is read in pages."""
        return look_beside(self._end(led), shard)

    def page(self, shard: int, led: Led, after: int, until: int) -> FilePage:
        """Read what comes after an added id, and not behind `until`, which the head has reached."""
        last = min(until, after + max(1, int(BYTES_PER_PAGE / self._bytes_per_id)))
        deadline = Deadline(CALL_SECONDS)
        try:
            found = self._end(led).ask(lambda copies: copies.records(shard, after + 1, last, deadline))
        except NodeUnavailable as error:
            if error.is_timeout:  # the cells here are larger than those before
                self._bytes_per_id = min(BYTES_PER_PAGE, 4 * self._bytes_per_id)
            raise
        _check(shard, led, found.seen.epoch, found.seen.state)
        # Too much for one answer, or some was purged meanwhile, or is not there.
        if found.records is None or found.cells + len(found.purged) != last - after:
            self._bytes_per_id = BYTES_PER_PAGE / CELLS_PER_PAGE if found.records is not None else BYTES_PER_PAGE
            return self._page_of_cells(shard, led, after, last)
        page = FilePage(after + 1, last, found.purged, found.cells, found.records)
        self._bytes_per_id = max(1.0, page.bytes / (last - after), self._bytes_per_id / 2)
        return page

    def _page_of_cells(self, shard: int, led: Led, after: int, until: int) -> FilePage:
        """The same, cell by cell."""
        page = self._end(led).page(shard, after, CELLS_PER_PAGE)
        state, head = page.slice.head
        _check(shard, led, state.epoch, state.status)
        end = min(page.end, until)
        cells = [cell for cell in page.slice.cells if cell.added_id <= end]
        purged = sorted(each for each in page.slice.purged if after < each <= end)
        ids = {cell.added_id for cell in cells}.union(purged)
        if end <= after or len(ids) != end - after:
            missing = next((each for each in range(after + 1, end + 1) if each not in ids), after + 1)
            raise LogHole(shard, missing, head)
        return FilePage(after + 1, end, purged, len(cells), encoded(cells))

    def fork(self, shard: int, led: Led, epoch: int) -> int | None:
        """The last added id that is the same as at an earlier epoch; None: all are."""
        openings = self._end(led).cluster.ask(lambda node: node.epochs(shard, Deadline(CALL_SECONDS)))
        return min((each.first_added_id - 1 for each in openings if epoch < each.epoch <= led.epoch), default=None)

    def waiting(self, shard: int) -> Iterator[list[StoredCell]]:
        """Yield cells of a shard that wait in buffers of any cluster; numbers stand for added ids."""
        return self._by_number(lambda copies, after, deadline: copies.waiting(shard, after, deadline))

    def conflicts(self) -> Iterator[list[StoredCell]]:
        """Yield cells that waited, and whose shard had another body under their key."""
        return self._by_number(lambda copies, after, deadline: copies.conflicts(after, deadline))

    def _by_number(self, verb: Callable[[CopyTables, int, Deadline], list[StoredCell]]) -> Iterator[list[StoredCell]]:
        for cluster in self._clusters.values():
            after = 0
            while cells := cluster.ask(partial(_portion, verb, after)):
                yield cells
                after = cells[-1].added_id
                reach("backup.waiting_read")

    def _end(self, led: Led) -> ClusterEnd:
        return ClusterEnd(self._clusters[led.cluster])


def look_beside(end: ClusterEnd, shard: int, mark: int = 0) -> Beside:
    """Read what stands beside the log of a shard, in pages. `mark`: of the audit table what comes behind that line."""
    few = look_few(end, shard)
    lines: list[Row] = []
    is_end = False
    while not is_end:
        some, mark, is_end = end.ask(partial(_lines, shard, mark))
        lines += some
    return few._replace(mended=lines, mark=mark)


def look_few(end: ClusterEnd, shard: int) -> Beside:
    """The same without lines of repair."""
    few = end.ask(lambda copies: copies.few_beside(shard, Deadline(CALL_SECONDS)))
    parked: list[Row] = []
    while page := end.ask(partial(_parked, shard, parked[-1] if parked else None)):
        parked += page
        reach("backup.parked_read")
    return few._replace(tables={**few.tables, "trigger_parked": parked})


def _parked(shard: int, after: Row | None, copies: CopyTables) -> Rows:
    return copies.parked_after(shard, after, BESIDE_ROWS, Deadline(CALL_SECONDS))


def _lines(shard: int, mark: int, copies: CopyTables) -> MendedLines:
    return copies.lines_after(shard, mark, BESIDE_ROWS, Deadline(CALL_SECONDS))


def _portion(verb: Callable[[CopyTables, int, Deadline], list[StoredCell]], after: int, node: Node) -> list[StoredCell]:
    try:
        return verb(copies_of(node), after, Deadline(CALL_SECONDS))
    except SchemaMissing:
        return []  # a cluster that has no shard yet


def _led(at: Placement) -> Led:
    return Led(at.cluster, at.epoch)


def _check(shard: int, led: Led, epoch: int, state: str) -> None:
    if epoch != led.epoch:
        raise ShardChanged(shard, f"is at epoch {epoch} on {led.cluster}, and the topology says {led.epoch}")
    if state == ShardStatus.MOVED.value:
        raise ShardChanged(shard, f"has left {led.cluster}")
