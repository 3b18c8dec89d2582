"""`Bringing`: what a datastore alone has that led before goes to the one that leads, by the keys of its cells.

Its logs from the forks on, what waits in its buffers, and what was purged there. All of it may be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from itertools import groupby
from typing import TypeVar

from schemaless_core.cell.sharding import shard_of_bytes
from schemaless_core.cell.standing import Standing
from schemaless_core.cell.stored import NewCell
from schemaless_core.config import DatastoreConfig
from schemaless_core.control.database import ControlDatabase
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import Node
from schemaless_core.engine.buffers import BufferedCell
from schemaless_core.engine.open import open_node
from schemaless_core.errors import LedElsewhere, StaleEpoch, Unavailable
from schemaless_core.failpoints import reach
from schemaless_core.indexes.indexes import Indexes
from schemaless_core.promotion.ports import SILENT, AuthorityPort, Silent
from schemaless_core.promotion.salvage import CALL_SECONDS, Salvage
from schemaless_core.purging.carried import CarriedPurges
from schemaless_core.purging.purges import Purges
from schemaless_core.replication.forks import History, fork, history_of
from schemaless_core.replication.other import close
from schemaless_core.replication.ports import StandbyState
from schemaless_core.replication.record import StandbyRecord
from schemaless_core.servers.clusters import Cluster
from schemaless_core.servers.leaders import Leaders
from schemaless_core.servers.routing import Router

T = TypeVar("T")

#: Of a buffer, at once.
WAITING_CELLS, WAITING_BYTES = 500, 4 * 1024 * 1024


class BroughtCells:
    """How many so far."""

    def __init__(self) -> None:
        self.cells = self.brought = self.conflicts = 0


class _OfCluster(Salvage):
    """What one of its clusters has. Forks are told by both histories: it may have promoted servers of its own."""

    def bring(self, count: BroughtCells) -> None:
        with closing(self._old):
            standing = self._standing()
            for shard, cells in self._lost(self._forks()):
                self._bring(shard, cells, standing, count)
            while waiting := self._old.buffers.waiting(None, WAITING_CELLS, WAITING_BYTES, Deadline(CALL_SECONDS)):
                for shard, some in groupby(sorted(waiting, key=self._shard_of), self._shard_of):
                    self._bring(shard, [each.cell for each in some], standing, count)
                numbers = [each.number for each in waiting]
                self._old.buffers.settle(numbers, {}, Deadline(CALL_SECONDS), second=numbers)
            # A purge gives no added id: each shard may have one, whether its log forked or not.
            self._carried.carry(self._firsts())

    def _shard_of(self, waits: BufferedCell) -> int:
        return shard_of_bytes(waits.cell.row_key, self._shards)

    def _bring(self, shard: int, cells: list[NewCell], standing: Standing, count: BroughtCells) -> None:
        there, new = self._put(shard, cells, standing, is_dry=False)
        count.cells += len(cells)
        count.brought += new
        count.conflicts += len(cells) - there - new
        reach("replicate.brought")

    def _forks(self) -> dict[int, int]:
        """Of each shard that has added ids behind the fork the first one of them."""
        heads = self._old.heads(self._placed, Deadline(CALL_SECONDS))
        return {shard: first for shard, first in self._firsts().items() if first <= heads[shard].head}

    def _firsts(self) -> dict[int, int]:
        """Of each shard the first added id from which on the two logs differ, whether the old one has any or not."""
        deadline = Deadline(CALL_SECONDS)
        firsts: dict[int, int] = {}
        for shard in self._old.heads(self._placed, deadline):
            cluster = self._router.cluster_of(shard, deadline)
            theirs = self._router.ask_cluster(cluster, partial(_history, shard))
            firsts[shard] = fork(_history(shard, self._old), theirs) + 1
        return firsts


class Bringing:
    """A `BringPort`. `router`, `purges`: of the datastore that leads."""

    def __init__(
        self,
        config: DatastoreConfig,
        clusters: Mapping[str, Cluster],
        control: ControlDatabase,
        places: Callable[[], Mapping[int, str]],
        router: Router,
        purges: Purges,
        authority: AuthorityPort,
        indexes: Indexes,
    ) -> None:
        self._indexes = indexes
        self._record = StandbyRecord(control, config.shards)
        self._config = config
        self._clusters = clusters
        self._leaders = Leaders(control)
        self._places = places
        self._router = router
        self._purges = purges
        self._authority = authority
        self.count = BroughtCells()
        #: Why something did not answer, the last time.
        self.silence: Unavailable | StaleEpoch | None = None

    def close(self, epoch: int) -> None | Silent:
        return self._tried(lambda: close(self._clusters, self._leaders, epoch))

    def bring(self) -> bool | Silent:
        def bring() -> bool:
            self.count = BroughtCells()
            try:
                places = self._places()
                for name in sorted(set(places.values())):
                    self._of(name, places).bring(self.count)
            except LedElsewhere:
                return False
            return True

        return self._tried(bring)

    def leave(self) -> bool | Silent:
        def leave() -> bool:
            there = self._indexes.there()
            # Looked at afterwards: if it returns still, these are all of its earlier lead.
            if self._record.find().standby.state is StandbyState.RETURNS:
                self._indexes.leave(there)
            return True

        return self._tried(leave)

    def _of(self, name: str, places: Mapping[int, str]) -> _OfCluster:
        its = next(each for each in self._config.clusters if each.name == name)
        led = self._clusters[name].primary.node.name
        url = next(url for url in (its.primary, *its.replicas) if str(url) == led)
        placed = [shard for shard, cluster in places.items() if cluster == name]
        old = open_node(url, self._config)
        carried = CarriedPurges(self._router, old, self._purges)
        return _OfCluster(self._router, old, self._config.shards, placed, (), carried, self._authority)

    def _tried(self, work: Callable[[], T]) -> T | Silent:
        try:
            return work()
        except (Unavailable, StaleEpoch) as error:
            self.silence = error
            return SILENT


def _history(shard: int, node: Node) -> History:
    return history_of(node.epochs(shard, Deadline(CALL_SECONDS)))
