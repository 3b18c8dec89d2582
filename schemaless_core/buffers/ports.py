"""What is asked of buffers and of the clusters whose cells wait there, each in one go.

A buffer is a table on the primary of each cluster. It is open to owners at the authority epoch of that server, as its
shards are, and is opened and closed in one transaction with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Literal, NamedTuple, Protocol

from schemaless_core.cell.stored import NewCell


class Silence(Enum):
    """No answer: the server may have done it, may do it later, or never heard of it."""

    UNANSWERED = "unanswered"


class Kept(Enum):
    """What a buffer says of a cell that it was offered."""

    KEPT = "kept"  #: It is there, durably; perhaps it was before.
    CONFLICT = "conflict"  #: A cell with another body waits under its key.
    FULL = "full"  #: The buffer takes no more.
    REFUSED = "refused"  #: The buffer is not open at the caller's epoch.


class Fate(Enum):
    """What became of a cell that was offered to its own shard by the replayer."""

    THERE = "there"  #: Created, or equal.
    PURGED = "purged"  #: Never stored again: nothing waits for it, replicas included.
    NOT_YET = "not yet"  #: Refused, or not answered: it goes on waiting.


class Differs(NamedTuple):
    """A cell with this body is stored under its key."""

    stored: bytes


UNANSWERED = Silence.UNANSWERED
Unanswered = Literal[Silence.UNANSWERED]


class Waiting(NamedTuple):
    """A cell in a buffer, by its place there: no other cell of that buffer ever has this number."""

    number: int
    cell: NewCell
    #: It waits until all replicas that may be promoted have it.
    is_second: bool = False


class KeepPort(Protocol):
    """The buffers of all clusters, as a caller uses them."""

    def keep(self, server: str, cells: tuple[NewCell, ...], epoch: int | None) -> tuple[Kept, ...] | Unanswered:
        """Keep cells, as an owner of this authority epoch (None: of whichever it is), by one transaction.

        The gate is looked at under a lock that its closing waits for, or is waited for.
        """
        ...


class BufferPort(Protocol):
    """The same, as the replayer uses them."""

    def waiting(self, server: str, limit: int) -> tuple[Waiting, ...]:
        """Return cells in the order of their arrival."""
        ...

    def settle(self, server: str, there: Sequence[Waiting], conflicts: Sequence[tuple[Waiting, bytes]]) -> None:
        """Remove cells, and move others to the ledger, each with the body that is stored: each by one transaction.

        Those that are gone already are no error.
        """
        ...


class OwnPort(Protocol):
    """The clusters that own the shards."""

    def copy(self, cells: tuple[Waiting, ...], epoch: int | None) -> tuple[Fate | Differs, ...]:
        """Put cells as a copier of this authority epoch (None: of whichever it is)."""
        ...

    def replicated(self, cells: tuple[Waiting, ...]) -> tuple[bool, ...]:
        """Return of each whether every other server of its cluster has it, whichever may lead."""
        ...


class OnHold(Enum):
    """Schemaless is not the authority: nothing is replayed."""

    HELD = "held"


class PresentPort(Protocol):
    """Which authority epoch it is."""

    def epoch(self) -> int | None | OnHold:
        """Return the present one, as the authority row says, closing or not; None: there is no row to ask."""
        ...


class Buffering(NamedTuple):
    """All that the steps may touch."""

    present: PresentPort
    own: OwnPort
    buffers: BufferPort
