"""What a move of a shard asks of its record, of the two clusters, and of the layer that knows the authority."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, Protocol

from schemaless_core.engine.primacy import Opening
from schemaless_core.promotion.ports import AuthorityPort, Silent


class MoveState(StrEnum):
    """How far a move is. The third and the fourth are decisions: the topology changed in the same transaction."""

    DONE = "done"  #: No move is under way.
    COPY = "copy"  #: The shard's cluster owns it; the other one gets a copy.
    OVER = "over"  #: The other cluster owns it, and is about to be opened.
    STAY = "stay"  #: Given up: the shard's cluster owns it at the next epoch, and is about to be opened again.


class MoveRecord(NamedTuple):
    """The record of a shard's newest move."""

    state: MoveState = MoveState.DONE
    source: str = ""
    target: str = ""
    #: OVER: the epoch at which the shard went, and the last added id of its log.
    epoch: int = 0
    last: int = 0


class Placed(NamedTuple):
    """Where the topology has the shard."""

    cluster: str
    epoch: int


class MoveSeen(NamedTuple):
    """The record, and where the shard is, as they were read; what is changed must be as it was read."""

    move: MoveRecord
    move_version: int
    placed: Placed


class ShardSeen(NamedTuple):
    """What a cluster's primary says of the shard in its own row. A row that is MOVED takes part in nothing."""

    epoch: int
    state: str
    #: The last added id of its log.
    head: int


class PageRead(NamedTuple):
    """A page of a log, and what its shard said of itself after that."""

    seen: ShardSeen
    #: The first added ids of the epochs of its history.
    forks: tuple[tuple[int, int], ...]
    cells: tuple[object, ...]
    #: The last added id that the page leads to; ids that have no cell are purged.
    end: int


class Arrival(NamedTuple):
    """What a copy must be before its shard may be opened there."""

    #: At which the shard is opened.
    epoch: int
    #: At which its log was copied, and the last added id.
    copied_at: int
    last: int


class MoveRecordPort(Protocol):
    """The record of one shard's moves, in the control database."""

    def find(self) -> MoveSeen:
        """Return it as it is now, with the topology; after this no primary is asked that was one before."""
        ...

    def change(self, seen: MoveSeen, after: MoveRecord) -> bool:
        """Change the record alone, if it and the shard's place are as they were seen."""
        ...

    def decide(self, seen: MoveSeen, after: MoveRecord) -> bool:
        """The same, and the shard's place: OVER gives it to the target, STAY leaves it, both at the next epoch."""
        ...


class MoveShardsPort(Protocol):
    """The shard's rows on the primaries of the two clusters. Every verb may be repeated."""

    def look(self, cluster: str) -> ShardSeen | Silent:
        """Return the shard's row."""
        ...

    def prepare(self, cluster: str, epoch: int) -> ShardSeen | Silent:
        """Make tables for a copy, and a row that is MOVED, if there are none; and have no other process write to it.

        Not to one that may arrive after this epoch: all that it lacks comes from its own writers then.
        """
        ...

    def claims(self, cluster: str) -> bool | Silent:
        """Return whether there is a copy, and this process writes to it."""
        ...

    def leave(self, cluster: str, epoch: int) -> ShardSeen | Silent:
        """Take all writes from a shard that is open at this epoch; return its row then. GOING: it is fenced."""
        ...

    def replicated(self, cluster: str) -> bool | Silent:
        """Return whether each replica has all changes that the primary has now."""
        ...

    def arrive(self, cluster: str, arrival: Arrival) -> ShardSeen | Silent:
        """Make a copy that is complete the shard, unless the server is in the hands of a promotion."""
        ...

    def close(self, cluster: str, epoch: int) -> None | Silent:
        """Make the row MOVED, if its epoch is not later than this one."""
        ...

    def open(self, cluster: str, epoch: int, opening: Opening | None) -> ShardSeen | Silent:
        """Open a shard that COMES at this epoch, or was GOING before it; unless it knows a later authority epoch."""
        ...


class MoveCopiesPort(Protocol):
    """What is copied. A copy is no shard yet: no call reads it."""

    def read(self, cluster: str, after: int) -> PageRead | Silent:
        """Return cells of the log after an added id."""
        ...

    def write(self, cluster: str, page: PageRead, after: int, epoch: int) -> ShardSeen | Silent:
        """Add a page to a copy that ends at `after` and was made at this epoch; return the row then."""
        ...

    def cut(self, cluster: str, before: ShardSeen, epoch: int, last: int) -> ShardSeen | Silent:
        """Take what is above `last` from a copy, which goes on at this epoch; return the row then."""
        ...

    def beside(self, source: str, target: str, epoch: int) -> bool | Silent:
        """Copy what changes beside the log, and note that the shard may arrive at this epoch; 0: for practice."""
        ...

    def late(self, source: str, target: str) -> None | Silent:
        """Give the target what groups that began meanwhile have at the source alone."""
        ...

    def forget(self, source: str, epoch: int) -> None | Silent:
        """Take offsets and parked cells from what was the shard up to this epoch: its copy stays, for the way back."""
        ...


class ClosedTimePort(Protocol):
    """How long the shard may take no writes."""

    def is_over(self) -> bool:
        """Return whether it takes too long."""
        ...

    def was_quick(self) -> bool:
        """Return whether what was waited for came so soon that a closed shard may wait for it; the next wait begins."""
        ...


class MovePorts(NamedTuple):
    """All that the steps may touch."""

    record: MoveRecordPort
    shards: MoveShardsPort
    copies: MoveCopiesPort
    patience: ClosedTimePort
    authority: AuthorityPort
