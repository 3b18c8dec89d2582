"""`ShardCopies`: the log of a shard and what stands beside it, from its cluster to another one."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from schemaless_core import metrics
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import IndexTable, Node
from schemaless_core.engine.copies import Beside, CopySeen
from schemaless_core.engine.primacy import Lead
from schemaless_core.errors import LogHole
from schemaless_core.logcopy.checks import check, recopy
from schemaless_core.logcopy.ends import ClusterEnd, LogPage, copies_of
from schemaless_core.logcopy.throttle import CopyThrottle
from schemaless_core.moves.closed_time import PRACTICE_SHARE, ClosedTime
from schemaless_core.moves.entries import EntryCopies
from schemaless_core.moves.ports import PageRead, ShardSeen
from schemaless_core.moves.shards import ClusterShards
from schemaless_core.promotion.ports import Silent, Unheard
from schemaless_core.servers.clusters import Cluster

CELLS_PER_PAGE = 2_000
BESIDE_SECONDS = 60.0
#: Column of `mended` lines: token, shard, added id …
_ADDED_ID = 2


class ShardCopies:
    """A `MoveCopiesPort` of one shard. What it has compared it knows as long as it lives; another one compares anew."""

    def __init__(
        self,
        clusters: Mapping[str, Cluster],
        shard: int,
        rows: ClusterShards,
        tables: Callable[[], Sequence[IndexTable]],
        patience: ClosedTime,
        throttle: Callable[[], CopyThrottle],
    ) -> None:
        self._ends = {name: ClusterEnd(cluster, rows.claim, patience.deadline) for name, cluster in clusters.items()}
        self._shard = shard
        self._rows = rows
        self._tables = tables
        self._patience = patience
        self._throttle = throttle()
        self.entries = EntryCopies(shard, rows.claim, throttle())
        self._forks: dict[tuple[str, int], tuple[tuple[int, int], ...]] = {}
        self._read_seconds = 0.0
        self._begun_at = 0.0
        #: Up to which added id the copy was compared, and up to which line of the audit table.
        self._checked = 0
        self._mark = 0
        #: The line of the copy's audit table behind which its own lines are. None: none was written yet.
        self._since: int | None = None
        #: Who led the two clusters then: a server that leads later may lack what was compared.
        self._leaders: tuple[Lead, ...] = ()
        #: Cells copied so far, for those that tell of it.
        self.cells = 0

    def hears_by(self, hear: Callable[[], None]) -> None:
        """`hear`: is told between two pages, and while it rests; may end the move by raising."""
        self.entries.hears_by(hear)
        self._throttle.hear = hear

    # ---- the log -------------------------------------------------------------------------------------------------

    def read(self, cluster: str, after: int) -> PageRead | Silent:
        self._begun_at = time.monotonic()

        def read() -> PageRead:
            page = self._ends[cluster].page(self._shard, after, CELLS_PER_PAGE)
            state, head = page.slice.head
            if page.end <= after < head:
                raise LogHole(self._shard, after + 1, head)
            seen = ShardSeen(state.epoch, state.status, head)
            return PageRead(seen, self._forks_of(cluster, state.epoch), (page,), page.end)

        found = self._rows.tried(cluster, read)
        self._read_seconds = time.monotonic() - self._begun_at
        return found

    def _forks_of(self, cluster: str, epoch: int) -> tuple[tuple[int, int], ...]:
        if (cluster, epoch) not in self._forks:
            openings = self._ends[cluster].cluster.ask(
                lambda node: node.epochs(self._shard, self._patience.deadline(BESIDE_SECONDS))
            )
            self._forks[cluster, epoch] = tuple((each.epoch, each.first_added_id) for each in openings)
        return self._forks[cluster, epoch]

    def write(self, cluster: str, page: PageRead, after: int, epoch: int) -> ShardSeen | Silent:
        (its,) = page.cells
        assert isinstance(its, LogPage)
        found = self._rows.tried(cluster, lambda: self._ends[cluster].write(self._shard, after, epoch, its))
        if isinstance(found, Unheard):
            return found
        count = len(its.slice.cells)
        self.cells += count
        metrics.cells_copied(count)
        if not self._patience.is_closed:
            self._throttle.rest(count, self._read_seconds, time.monotonic() - self._begun_at)
        return ShardSeen(*found)

    def cut(self, cluster: str, before: ShardSeen, epoch: int, last: int) -> ShardSeen | Silent:
        self._checked = min(self._checked, last)

        def cut(node: Node, deadline: Deadline) -> CopySeen | None:
            return copies_of(node).cut(self._shard, self._rows.claim, CopySeen(*before), epoch, last, deadline)

        found = self._rows.asked(cluster, cut, self._patience.deadline(BESIDE_SECONDS))
        if isinstance(found, Unheard):
            return found
        return before if found is None else ShardSeen(*found)

    # ---- beside it -----------------------------------------------------------------------------------------------

    def beside(self, source: str, target: str, epoch: int) -> bool | Silent:
        if epoch:
            return self._copied(source, target, epoch)
        copied = self._copied(source, target, 0, by_pages=True)
        begun = time.monotonic()
        if copied is not True:
            return copied
        copied = self._copied(source, target, 0)
        if isinstance(copied, Unheard):
            return copied
        return copied and time.monotonic() - begun <= PRACTICE_SHARE * self._patience.hold_seconds

    def _forget_checks(self, *ends: ClusterEnd) -> None:
        """What was compared on servers that lead no more."""
        leaders = tuple(end.cluster.leader for end in ends)
        if leaders != self._leaders:
            self._leaders, self._checked, self._mark, self._since = leaders, 0, 0, None
            self.entries.forget()

    def _copied(self, source: str, target: str, epoch: int, *, by_pages: bool = False) -> bool | Silent:
        def copy() -> bool:
            here, there = self._ends[source], self._ends[target]
            self._forget_checks(here, there)
            seen = there.look(self._shard)
            beside = self._beside(here)
            for added_id in sorted({line[_ADDED_ID] for line in beside.mended if line[_ADDED_ID] <= self._checked}):
                recopy(here, there, self._shard, added_id, added_id)
            check(here, there, self._shard, self._checked + 1, seen.head, self.entries.hear_page)
            for table in self._tables():
                self.entries.copy(table, here, there, by_pages=by_pages)
            if not self._put_beside(there, self._with_keys(here, there, beside), epoch):
                return False
            self._checked, self._mark = seen.head, beside.mark
            return True

        return self._rows.tried(target, copy)

    def _beside(self, here: ClusterEnd) -> Beside:
        deadline = self._patience.deadline(BESIDE_SECONDS)
        return here.ask(lambda copies: copies.beside(self._shard, self._mark, deadline))

    def _with_keys(self, here: ClusterEnd, there: ClusterEnd, beside: Beside) -> Beside:
        """The same with purged keys that the copy lacks, or has otherwise."""
        shard = self._shard
        wanted, found = (
            end.ask(lambda copies: copies.key_sums(shard, end.deadline(BESIDE_SECONDS)))  # noqa: B023  # called at once
            for end in (here, there)
        )
        buckets = [bucket for bucket, its in wanted.items() if its != found.get(bucket)]
        if not buckets:
            return beside
        keys = here.ask(lambda copies: copies.keys(shard, buckets, here.deadline(BESIDE_SECONDS)))
        return beside._replace(tables={**beside.tables, "purged_key": keys})

    def _put_beside(self, there: ClusterEnd, beside: Beside, epoch: int) -> bool:
        deadline = there.deadline(BESIDE_SECONDS)
        since = self._since = (
            there.ask(lambda copies: copies.newest_line(deadline)) if self._since is None else self._since
        )
        put = (self._shard, self._rows.claim, beside, epoch, deadline, since)
        return there.ask(lambda copies: copies.put_beside(*put))

    def late(self, source: str, target: str) -> None | Silent:
        def copy() -> None:
            offsets = self._beside(self._ends[source]).tables["trigger_offset"]
            if offsets:
                self._ends[target].ask(
                    lambda copies: copies.put_late(self._shard, offsets, self._patience.deadline(BESIDE_SECONDS))
                )

        return self._rows.tried(source, copy)

    def forget(self, source: str, epoch: int) -> None | Silent:
        return self._rows.asked(
            source, lambda node, deadline: copies_of(node).forget_beside(self._shard, epoch, deadline)
        )
