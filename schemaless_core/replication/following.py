"""`LogFollowing`: the logs of the datastore that leads, page by page into copies, which take part in nothing.

A round asks each of its clusters once for what is new in all of its shards: over a long way that is what costs. The
copies say by themselves how far they are, so nothing is kept of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import NamedTuple

from schemaless_core import metrics
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import EpochOpening, LogSlice, Node
from schemaless_core.engine.buffers import BufferSize
from schemaless_core.engine.copies import CopySeen
from schemaless_core.engine.purged import page_end
from schemaless_core.errors import LogHole, ReplicationRefused, SchemaMissing
from schemaless_core.failpoints import reach
from schemaless_core.logcopy.ends import CALL_SECONDS, ClusterEnd, LogPage
from schemaless_core.logcopy.throttle import CopyThrottle
from schemaless_core.replication.beside import THREADS, BesideLogs
from schemaless_core.replication.copied import StandbyCopies
from schemaless_core.replication.forks import are_apart, fork, history_of
from schemaless_core.replication.led import LedPlacesOf
from schemaless_core.servers.topology import Topology

#: Of each shard, in one round.
CELLS_PER_PAGE = 500
#: For how long the places of the other one are taken as read: to ask takes as long as to copy a page. Whatever does not
#: answer, or is at another epoch, has them asked for at once.
PLACES_SECONDS = 10.0
#: A copy that has more than its log for so long is none.
AHEAD_SECONDS = 30.0
HISTORY_SECONDS = 60.0


class RoundSeen(NamedTuple):
    """What a round has copied, and how far the copies are behind then."""

    cells: int
    #: Cells that the logs have and the copies lack.
    behind: int
    #: All that was stored until then is here, by the clock of the server that stored it.
    whole_until: datetime


class WaitingThere(NamedTuple):
    """Cells that the other one has acknowledged, and keeps in its buffers: no copy has them."""

    cells: int
    #: When the oldest of them was kept.
    since: datetime | None


class LogFollowing:
    """Of one process. Not safe to share by threads."""

    def __init__(
        self,
        led: LedPlacesOf,
        others: Mapping[str, ClusterEnd],
        copies: StandbyCopies,
        throttle: CopyThrottle,
        may_cut: Callable[[int], bool],
    ) -> None:
        """`others`: the primaries of the clusters that lead. `may_cut`: whether copies may go to an epoch by now."""
        self._may_cut = may_cut
        self._led = led
        self._others = others
        self._copies = copies
        self._throttle = throttle
        self._seen: dict[int, CopySeen] = {}
        self._topology: Topology | None = None
        self._asked_at = float("-inf")
        self._beside = BesideLogs(others, copies)
        #: By shard: since when its copy has more than its log.
        self._ahead: dict[int, float] = {}
        #: Whether all servers were at the epochs of their topology, in the last round.
        self.is_at_epochs = False

    def begin(self) -> None:
        """Have the copies be this job's. `ReplicationRefused`: one is of a later epoch than the log to be copied."""
        topology = self._places(is_new=True)
        epochs = {shard: at.epoch for shard, at in topology}
        with ThreadPoolExecutor(THREADS) as threads:
            seen = threads.map(lambda shard: self._copies.prepare(shard, epochs[shard]), range(topology.shards))
            self._seen = dict(enumerate(seen))
        later = next((n for n, each in self._seen.items() if each.epoch > epochs[n]), None)
        if later is not None:
            raise ReplicationRefused(
                f"The copy of shard {later} is of epoch {self._seen[later].epoch}, and its log of {epochs[later]}.",
                hint="The other datastore is older than this one: let that one follow this one.",
            )
        self._check_logs(topology)

    def round(self) -> RoundSeen:
        """Copy what is new, a page of each shard at most."""
        if not self._seen:
            self.begin()
        begun, begun_at = time.monotonic(), datetime.now(UTC)
        topology = self._places()
        clusters = topology.clusters
        with ThreadPoolExecutor(THREADS) as threads:
            found = dict(
                each
                for slices in threads.map(lambda name: self._read(name, topology.shards_of(name)), clusters)
                for each in slices.items()
            )
            read_seconds = time.monotonic() - begun
            reach("replicate.read")
            epochs = {shard: at.epoch for shard, at in topology}
            self.is_at_epochs = all(
                epochs[shard] == each.head.state.epoch == self._seen[shard].epoch for shard, each in found.items()
            )
            news = [(shard, each) for shard, each in found.items() if self._is_news(shard, each, epochs[shard])]
            cells = sum(threads.map(lambda each: self._copied(*each), news))
        metrics.cells_copied(cells)
        self._throttle.rest(cells, read_seconds, time.monotonic() - begun)
        return self._result(cells, found, begun_at)

    def _result(self, cells: int, found: Mapping[int, LogSlice], begun_at: datetime) -> RoundSeen:
        behind, until = 0, begun_at
        self._ahead = {shard: since for shard, since in self._ahead.items() if self._is_ahead(shard, found)}
        for shard, each in found.items():
            if self._is_ahead(shard, found):
                self._note_ahead(shard, each)
            its = max(0, each.head.head - self._seen[shard].head)
            if its and each.cells:
                until = min(until, each.cells[-1].created_at)
            behind += its
        return RoundSeen(cells, behind, until)

    def _is_ahead(self, shard: int, found: Mapping[int, LogSlice]) -> bool:
        head, seen = found[shard].head, self._seen[shard]
        return head.state.epoch == seen.epoch and head.head < seen.head

    def _note_ahead(self, shard: int, found: LogSlice) -> None:
        """A replica of the other one that is about to lead lacks cells, and says the epoch of before. Not for long."""
        self.look_again()
        now = time.monotonic()
        if now - self._ahead.setdefault(shard, now) > AHEAD_SECONDS:
            raise ReplicationRefused(
                f"The copy of shard {shard} has {self._seen[shard].head:,} added ids, and its log {found.head.head:,}.",
                hint="The other datastore has lost cells that are here, or was made anew: compare both, and let this "
                "one lead, or have a new standby follow it.",
            )

    @property
    def is_ahead(self) -> bool:
        """Whether a copy had more than its log, in the last round."""
        return bool(self._ahead)

    def _read(self, cluster: str, shards: Iterable[int]) -> dict[int, LogSlice]:
        starts = {shard: self._seen[shard].head for shard in shards}

        def read(node: Node) -> dict[int, LogSlice]:
            return dict(node.log(starts, CELLS_PER_PAGE, Deadline(CALL_SECONDS)))

        return self._others[cluster].cluster.ask(read)

    def _is_news(self, shard: int, found: LogSlice, epoch: int) -> bool:
        """What a server says at another epoch than the control database is of one that led before, or is about to."""
        seen = self._seen[shard]
        if found.head.state.epoch != epoch:
            self.look_again()
            return False
        return epoch > seen.epoch or found.head.head > seen.head

    def _copied(self, shard: int, found: LogSlice) -> int:
        seen = self._seen[shard]
        if found.head.state.epoch > seen.epoch:
            # Asked after the log was read. One that is about to lead would find copies of its own epoch, or a later
            # one, where the other one leads again by force; what is about to lead later than this log is given it.
            if not self._may_cut(found.head.state.epoch):
                self.is_at_epochs = False
                return 0
            self._seen[shard] = self._cut(shard, seen, found.head.state.epoch)
            self._beside.forget(shard)
            reach("replicate.cut")
            return 0  # what was read may begin above the fork
        end = page_end(found, seen.head)
        if end <= seen.head < found.head.head:
            raise LogHole(shard, seen.head + 1, found.head.head)
        after = self._copies.write(shard, seen, LogPage(found, end))
        self._seen[shard] = after
        reach("replicate.page_written")
        return len(found.cells) if after.head == end else 0

    def _cut(self, shard: int, seen: CopySeen, epoch: int) -> CopySeen:
        """Keep what is the same in both: their histories tell where they forked. Then the copy has the log's."""
        if not seen.head:
            return self._copies.cut(shard, seen, epoch, 0, ())
        theirs = self._history(shard)
        kept = min(seen.head, fork(self._copies.history(shard), history_of(theirs)))
        return self._copies.cut(shard, seen, epoch, kept, [each for each in theirs if each.epoch <= epoch])

    def _history(self, shard: int) -> list[EpochOpening]:
        cluster = next(at.cluster for each, at in self._places() if each == shard)
        deadline = Deadline(HISTORY_SECONDS)
        return self._others[cluster].cluster.ask(lambda node: node.epochs(shard, deadline))

    def _check_logs(self, topology: Topology) -> None:
        """One log of each cluster is looked at: another datastore, or one that was made anew, has none of these."""
        for cluster in topology.clusters:
            shard = next((each for each in topology.shards_of(cluster) if self._seen[each].head), None)
            if shard is None:
                continue
            ours, theirs = self._copies.history(shard), history_of(self._history(shard))
            is_level = max(epoch for epoch, _first, _at in theirs) == self._seen[shard].epoch
            if are_apart(ours, theirs) or (ours and is_level and ours != theirs):
                raise ReplicationRefused(
                    f"The copy of shard {shard} is of another log than the one that is to be copied.",
                    hint="Name the configuration of the datastore that this one followed. Where that one was made "
                    "anew, have a new standby follow it.",
                )

    def beside(self) -> int:
        """Copy what stands beside the logs and is not here; return of how many shards that was."""
        # A copy that has not come to the epoch of its log, and has heard of it, would not know where the two forked.
        places = {shard: at.cluster for shard, at in self._places() if self._seen[shard].epoch == at.epoch}
        return self._beside.copy(places, {shard: self._seen[shard].head for shard in places})

    def waiting(self) -> WaitingThere:
        """Ask what waits in the buffers of the other one: it is acknowledged, and in no log yet."""
        sizes = [end.cluster.ask(_waiting) for end in self._others.values()]
        since = min((each.oldest_at for each in sizes if each and each.oldest_at is not None), default=None)
        return WaitingThere(sum(each.cells for each in sizes if each), since)

    def look_again(self) -> None:
        """Take no place of the other one as read."""
        self._asked_at = float("-inf")

    def _places(self, *, is_new: bool = False) -> Topology:
        now = time.monotonic()
        if self._topology is None or is_new or now - self._asked_at > PLACES_SECONDS:
            self._topology, self._asked_at = self._led.topology(), now
        return self._topology

    def hears_by(self, hear: Callable[[], object]) -> None:
        """`hear`: is told while it rests; may end the copy by raising."""
        self._throttle.hear = hear


def _waiting(node: Node) -> BufferSize | None:
    try:
        return node.buffers.size(Deadline(CALL_SECONDS))
    except SchemaMissing:
        return None  # a server that never had a buffer
