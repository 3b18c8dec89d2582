"""What a server keeps for groups, the consumers of its shards' logs: offsets and parked cells, whatever its engine."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Literal, NamedTuple, Protocol

from schemaless_core.cell.standing import Gate, ShardState
from schemaless_core.cell.stored import NewCell, StoredCell
from schemaless_core.deadline import Deadline

#: Where a new group begins: at the heads of this moment, at the first cells, or after these added ids.
GroupStart = Literal["now", "beginning"] | Mapping[int, int]

ERROR_LENGTH_MAX = 500


class Offset(NamedTuple):
    """How far a group has come in a shard, and the fence that a worker must show to move it."""

    epoch: int
    added_id: int
    fence: int


class OffsetSeen(NamedTuple):
    """A shard's own state, the group's offset in it (None: the group is not here), and the shard's head."""

    state: ShardState
    offset: Offset | None
    head: int


class ParkedCell(NamedTuple):
    """A cell on its way to the parked ones, or the news of another attempt. `is_waiting`: behind others of its row."""

    added_id: int
    row_key: bytes
    column_name: bytes
    ref_key: int
    attempts: int
    is_waiting: bool
    error: str
    retry_in_seconds: float


class ParkedRow(NamedTuple):
    """A parked cell as its server holds it."""

    shard: int
    added_id: int
    row_key: bytes
    column_name: bytes
    ref_key: int
    attempts: int
    is_waiting: bool
    error: str
    parked_at: datetime
    next_attempt_at: datetime
    is_due: bool  #: By the server's clock.


class ParkedKey(NamedTuple):
    """Where a parked cell stands, and of which row it is."""

    shard: int
    added_id: int
    row_key: bytes


class GroupStep(NamedTuple):
    """Where a group goes in one shard, and the cells it parks on the way: all or nothing.

    `shard_epoch` is the shard's own as the holder knows it: a server that was promoted since must not be told of
    progress that builds on what it may have lost.
    """

    fence: int
    epoch: int
    added_id: int
    shard_epoch: int
    parked: tuple[ParkedCell, ...] = ()


class CallNote(NamedTuple):
    """The cell that a group's function is called for, and how often a call for it began and did not end."""

    epoch: int
    added_id: int
    calls: int


NO_CALL = CallNote(0, 0, 0)


class ClaimSeen(NamedTuple):
    """How often a shard was claimed since its offset last moved, and the call that was noted last."""

    claims: int
    call: CallNote


class Settling(NamedTuple):
    """A parked cell that was delivered by the worker that holds its shard."""

    fence: int
    added_id: int
    row_key: bytes
    shard_epoch: int


class Beyond(NamedTuple):
    """An offset above the head of its shard's log: what is put there next would be passed over."""

    group: str
    shard: int
    epoch: int
    added_id: int
    head: int


class GroupTables(Protocol):
    """Offsets and parked cells on one server. A fence that is not the newest changes nothing."""

    def begin(self, group: str, start: GroupStart, deadline: Deadline) -> None:
        """Create the group's offsets in all shards here; those it has stay."""
        ...

    def claim(self, group: str, fences: Mapping[int, int], deadline: Deadline) -> dict[int, OffsetSeen]:
        """Raise the fences to these unless they are higher already; return the offsets as they are then."""
        ...

    def find(self, group: str, shards: Collection[int], deadline: Deadline) -> dict[int, OffsetSeen]:
        """Return the group's offsets in these shards."""
        ...

    def find_all(self, group: str, deadline: Deadline) -> dict[int, Offset]:
        """Return the group's offsets on this server."""
        ...

    def find_beyond(self, deadline: Deadline) -> list[Beyond]:
        """Return the offsets of all groups that stand above the heads of their shards here."""
        ...

    def advance(self, group: str, steps: Mapping[int, GroupStep], deadline: Deadline) -> dict[int, OffsetSeen]:
        """Move offsets forward and park cells with them; return the offsets as they are then."""
        ...

    def note_claims(self, group: str, shards: Collection[int], deadline: Deadline) -> dict[int, ClaimSeen]:
        """Count a claim of each shard, from one where its offset moved since the last; what is noted then.

        Nothing on a server whose tables are of an earlier version.
        """
        ...

    def note_call(self, group: str, shard: int, fence: int, call: CallNote, deadline: Deadline) -> None:
        """Note which cell the function is called for, unless another fence is the newest."""
        ...

    def put_and_advance(
        self, gate: Gate, group: str, cells: Sequence[NewCell], step: GroupStep, deadline: Deadline
    ) -> tuple[OffsetSeen, list[StoredCell]]:
        """Put cells of the gate's shard and move the offset, both or neither; what is stored under their keys then.

        Neither, when the gate or the fence refuses, another body is stored under one of the keys, or the offset is
        there already: the worker that moved it has put its own cells.
        """
        ...

    def reset(self, group: str, to: Mapping[int, tuple[int, int]], deadline: Deadline) -> None:
        """Set offsets to (epoch, added id), backwards too, and raise their fences."""
        ...

    def remove(self, group: str, deadline: Deadline) -> None:
        """Forget the group's offsets and parked cells."""
        ...

    def parked(self, group: str, shard: int | None, limit: int, deadline: Deadline) -> list[ParkedRow]:
        """Return parked cells in the order of their logs."""
        ...

    def parked_of(self, group: str, shards: Collection[int], deadline: Deadline) -> list[ParkedRow]:
        """Return all parked cells of these shards."""
        ...

    def parked_keys(self, group: str, shards: Collection[int], deadline: Deadline) -> list[ParkedKey]:
        """Return the same, and no more than where they stand and of which rows they are."""
        ...

    def count_parked(self, group: str, deadline: Deadline) -> int:
        """Return how many cells of the group are parked here, not counting those that wait behind them."""
        ...

    def due(self, group: str, deadline: Deadline) -> set[int]:
        """Return the shards that have a parked cell whose next attempt is due."""
        ...

    def settle(self, group: str, shard: int, settling: Settling, deadline: Deadline) -> None:
        """A parked cell was delivered: forget it. If the row's first one now has waited behind it, that is due now."""
        ...

    def put_and_settle(
        self, gate: Gate, group: str, cells: Sequence[NewCell], settling: Settling, deadline: Deadline
    ) -> tuple[bool, list[StoredCell]]:
        """Put cells and settle a parked one, both or neither; whether it is still parked, and what is stored then."""
        ...

    def postpone(self, group: str, shard: int, fence: int, cell: ParkedCell, deadline: Deadline) -> None:
        """A parked cell failed again, or came to the head of its row."""
        ...

    def retry(self, group: str, shard: int | None, added_id: int | None, deadline: Deadline) -> int:
        """Make the next attempt of these parked cells due now; how many there are."""
        ...
