"""`Held`: a shard in a worker's hands, and `Run`: cells of one on their way to the function."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import NamedTuple

from schemaless_core.cell.cell import Cell
from schemaless_core.cell.standing import ShardStatus
from schemaless_core.engine.groups import NO_CALL, CallNote, GroupStep, ParkedCell
from schemaless_core.triggers.leases.coordinator import Lease


@dataclass(slots=True)
class Held:
    """What a worker knows of a shard it serves, as of the claim and of what it did since."""

    lease: Lease
    #: The epoch of the shard when it was claimed. In another one everything here is hearsay, and it is claimed anew.
    shard_epoch: int
    #: The offset's; older than the shard's until the first page after a promotion.
    epoch: int
    #: Everything up to here was delivered or is to be parked.
    reached: int
    #: The offset as the shard's server has it: epoch and added id.
    saved: tuple[int, int]
    head: int = 0
    #: RW, COPY, RO or MOVED, as the shard said last.
    status: str = ShardStatus.RW.value
    #: A hand-over waits until then for its offset to reach its head: it was closed to owners a moment ago.
    hurried_until: float = 0.0
    attempts: int = 0
    not_before: float = 0.0
    #: After a saving that failed.
    save_not_before: float = 0.0
    served_at: float = 0.0
    #: Cells to be set aside together with the offset that passes them.
    parking: list[ParkedCell] = field(default_factory=list)
    #: Rows that have parked cells: their later cells wait behind them.
    parked_rows: set[bytes] = field(default_factory=set)
    in_flight: Future[Callable[[], None]] | None = None
    #: What is being delivered of it.
    run: Run | None = None
    #: Parked cells were settled since: a group may keep, beside the offset, up to where none is parked.
    has_settled: bool = False
    #: Up to here cells are called for one at a time: one of them may have ended a worker's process.
    careful_until: int = 0
    #: The call that was noted last.
    call: CallNote = NO_CALL

    def step(self) -> GroupStep:
        """What is to be saved of it now."""
        return GroupStep(self.lease.fence, self.epoch, self.reached, self.shard_epoch, tuple(self.parking))

    @property
    def is_open(self) -> bool:
        """Whether its store takes owners' puts."""
        return self.status == ShardStatus.RW.value

    @property
    def is_careful(self) -> bool:
        return self.reached < self.careful_until

    @property
    def is_leaving(self) -> bool:
        return self.lease.heir is not None

    @property
    def has_more(self) -> bool:
        return self.head > self.reached or self.shard_epoch != self.epoch

    @property
    def is_saved(self) -> bool:
        return self.saved == (self.epoch, self.reached) and not self.parking and not self.has_settled

    @property
    def is_idle(self) -> bool:
        return self.is_saved and not self.has_more and not self.is_leaving and self.in_flight is None


class Run(NamedTuple):
    """Cells of one shard on their way to the function, those that wait behind others, and where their page ends."""

    shard: int
    cells: list[Cell]
    waiting: list[ParkedCell]
    end: int

    def reached(self, done: int) -> int:
        """The added id that is reached when so many of the cells are delivered."""
        if done == len(self.cells):
            return self.end
        return added_id_of(self.cells[done]) - 1


def added_id_of(cell: Cell) -> int:
    """The place of a cell that came from the log."""
    assert cell.added_id is not None
    return cell.added_id


def parked_cell(cell: Cell, attempts: int, error: str, retry_in_seconds: float, *, is_waiting: bool) -> ParkedCell:
    """A cell that is to be set aside."""
    key = (added_id_of(cell), cell.row_key.bytes, cell.column_name.encode(), cell.ref_key)
    return ParkedCell(*key, attempts, is_waiting, error, retry_in_seconds)
