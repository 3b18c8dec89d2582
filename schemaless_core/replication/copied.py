"""`StandbyCopies`: the copies that a standby has on its own clusters, and how they become its shards."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from schemaless_core.backups.beside import for_restored
from schemaless_core.backups.source import look_few
from schemaless_core.cell.standing import ShardStatus
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import EpochOpening
from schemaless_core.engine.copies import Beside, BesideSum, CopySeen, Rows
from schemaless_core.engine.primacy import Opening
from schemaless_core.errors import ReplicationRefused
from schemaless_core.failpoints import reach
from schemaless_core.logcopy.ends import CALL_SECONDS, ClusterEnd, LogPage
from schemaless_core.replication.forks import History, history_of
from schemaless_core.servers.clusters import Cluster

DDL_SECONDS = 60.0
#: The column of `shard_epoch` that is the epoch.
_EPOCH = 1
_COPY, _COMES = ShardStatus.MOVED.value, ShardStatus.COMES.value
#: Behind all lines of the audit table.
_NO_LINES = 2**62
_OPEN = (ShardStatus.RW.value, ShardStatus.COPY.value)


class StandbyCopies:
    """Safe to share by threads. `claim`: of the job that writes to them."""

    def __init__(
        self, clusters: Mapping[str, Cluster], places: Mapping[int, str], claim: int, *, are_own: bool = False
    ) -> None:
        """`are_own`: what is to lead again never followed, and keeps all that stands beside its logs."""
        self._are_own = are_own
        self._ends = {name: ClusterEnd(cluster, claim) for name, cluster in clusters.items()}
        self.places = places
        self._claim = claim

    def end(self, shard: int) -> ClusterEnd:
        return self._ends[self.places[shard]]

    def prepare(self, shard: int, epoch: int) -> CopySeen:
        """Make tables for a copy if there are none, and have it written by this claim alone."""
        end, deadline = self.end(shard), Deadline(DDL_SECONDS)

        def prepare(copies: Any) -> None:
            copies.prepare(shard, self._claim, epoch, deadline)

        end.ask(prepare)
        seen = self.look(shard)
        if seen.state != _COPY or not end.ask(lambda copies: copies.claims(shard, self._claim, deadline)):
            raise ReplicationRefused(
                f"Shard {shard} is {seen.state} on {self.places[shard]}, and no copy that could follow.",
                hint="`tripstore replicate status` says what this datastore is.",
            )
        return seen

    def look(self, shard: int) -> CopySeen:
        return self.end(shard).look(shard)

    def write(self, shard: int, seen: CopySeen, page: LogPage) -> CopySeen:
        return self.end(shard).write(shard, seen.head, seen.epoch, page)

    def cut(self, shard: int, seen: CopySeen, epoch: int, last: int, history: Sequence[EpochOpening]) -> CopySeen:
        """`history`: of the log up to this epoch, which the copy has by the same transaction; empty: as it was."""
        deadline = Deadline(DDL_SECONDS)
        rows = [(shard, *each[:2], each.opened_at.replace(tzinfo=None), each.why) for each in history if each.epoch]
        found = self.end(shard).ask(lambda copies: copies.cut(shard, self._claim, seen, epoch, last, deadline, rows))
        return seen if found is None else found

    def history(self, shard: int) -> History:
        """The history of a copy."""
        deadline = Deadline(CALL_SECONDS)
        return history_of(self.end(shard).cluster.ask(lambda node: node.epochs(shard, deadline)))

    def is_mirror(self, shard: int) -> bool:
        """Whether the shard took copies alone when it was opened last: Postgres was the authority."""
        rows = self._few(shard).tables["shard_authority"]
        openings = sorted((row[1], row[3], str(row[4]), row[2]) for row in rows)
        return bool(openings) and openings[-1][-1] == ShardStatus.COPY.value

    def give(self, shard: int, beside: Beside, epoch: int = 0) -> bool:
        """Have a copy be as this says. `epoch`: at which it may arrive; 0: at none."""
        deadline = Deadline(DDL_SECONDS)
        return self.end(shard).ask(lambda copies: copies.put_beside(shard, self._claim, beside, epoch, deadline))

    def sums_beside(self) -> dict[int, BesideSum]:
        """What tells whether copies have what stands beside their logs."""
        ends = (self._ends[name] for name in set(self.places.values()))
        found = (end.ask(lambda copies: copies.sums_beside(Deadline(DDL_SECONDS))) for end in ends)
        return {shard: each for sums in found for shard, each in sums.items()}

    def put_lines(self, shard: int, lines: Rows) -> bool:
        """Give a copy lines of the audit table. False: it is none of this claim."""
        deadline = Deadline(DDL_SECONDS)
        return self.end(shard).ask(lambda copies: copies.put_lines(shard, self._claim, lines, deadline))

    def pass_over(self, shard: int, added_ids: Collection[int]) -> bool:
        """Take cells from a copy that were purged. False: it is none of this claim."""
        deadline = Deadline(DDL_SECONDS)
        return self.end(shard).ask(lambda copies: copies.pass_over(shard, self._claim, added_ids, deadline))

    def last_created_at(self, shard: int, head: int, beside: Beside) -> datetime | str:
        """Of the last cell: what is put next is no earlier."""
        cells = self.end(shard).page(shard, head - 1, 1).slice.cells if head else []
        if cells:
            return cells[-1].created_at.astimezone(UTC).replace(tzinfo=None)
        return str(beside.last_created_at)

    def arrive(self, shard: int, epoch: int, led_at: int) -> bool:
        """Make a copy a shard that is about to be opened. False: it has changed meanwhile.

        `led_at`: since then this datastore leads; a promotion of the shard's cluster may have raised its epoch since.
        """
        seen = self._closed(shard, led_at)
        if seen.state != _COPY:
            return seen.epoch >= epoch
        if seen.epoch >= epoch or not self._is_held(shard, seen):
            return False  # a copy of a later lead: what is carried out here is long over
        given = self._own_beside(shard) if self._are_own else self._copied_beside(shard, seen.head)
        earlier = [row for row in given.tables["shard_epoch"] if row[_EPOCH] < epoch]
        tables = {**given.tables, "shard_epoch": earlier}
        if not self.give(shard, given._replace(tables=tables, mended=[]), epoch):
            return False
        deadline = Deadline(DDL_SECONDS)
        come = self.end(shard).ask(lambda copies: copies.arrive(shard, epoch, seen.epoch, seen.head, deadline))
        return come is not None and come.state != _COPY

    def _closed(self, shard: int, epoch: int) -> CopySeen:
        """What gave the lead away may not have been closed by the one that took it, and was lost then."""
        seen = self.look(shard)
        if seen.state == _COPY or seen.epoch >= epoch:
            return seen
        self.end(shard).ask(lambda copies: copies.close(shard, epoch - 1, Deadline(DDL_SECONDS)))
        reach("replicate.own_closed")
        return self.look(shard)

    def _is_held(self, shard: int, seen: CopySeen) -> bool:
        """Have the copy be this claim's: of one that has just come back it may be none's yet."""
        end, deadline = self.end(shard), Deadline(DDL_SECONDS)
        if end.ask(lambda copies: copies.claims(shard, self._claim, deadline)):
            return True

        def prepare(copies: Any) -> None:
            copies.prepare(shard, self._claim, seen.epoch, deadline)

        end.ask(prepare)
        reach("replicate.claimed")
        return end.ask(lambda copies: copies.claims(shard, self._claim, deadline))

    def is_open(self, shard: int, epoch: int) -> bool:
        """Whether it has been opened at this epoch, or a later one. It may have been fenced or moved since."""
        seen = self.look(shard)
        return seen.state not in (_COPY, _COMES) and seen.epoch >= epoch

    def open(self, shard: int, epoch: int, opening: Opening | None) -> bool:
        """Open a shard that has come. False: it knows a later authority epoch."""
        seen = self.look(shard)
        if seen.state in _OPEN and seen.epoch >= epoch:
            return True  # a promotion of its cluster may have gone on since
        why, deadline = "leads in the place of another datastore", Deadline(CALL_SECONDS)
        found = self.end(shard).ask(lambda copies: copies.open(shard, epoch, opening, why, deadline))
        return found is not None and found.state in _OPEN

    def _few(self, shard: int) -> Beside:
        return self.end(shard).ask(lambda copies: copies.few_beside(shard, Deadline(DDL_SECONDS)))

    def _copied_beside(self, shard: int, head: int) -> Beside:
        """What is much of it in pages, and no lines of the audit table: they are here already."""
        found = look_few(self.end(shard), shard)
        return for_restored(found, head, self.last_created_at(shard, head, found))

    def _own_beside(self, shard: int) -> Beside:
        """All as it is: indexes go on where they were, and what they failed at is open still."""
        return self.end(shard).ask(lambda copies: copies.beside(shard, _NO_LINES, Deadline(DDL_SECONDS)))
