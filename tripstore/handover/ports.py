"""What the hand-over asks of the two stores and of the authority row, each in one go.

Each verb is one atomic step: no other process may come between two statements of it, unless it says so. A port raises
the errors of its store when that cannot be reached; any living process then undoes or finishes what was begun.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Literal, NamedTuple, Protocol, TypeVar
from uuid import UUID

from schemaless_core.cell.cell import Cell
from schemaless_core.cell.encoded import EncodedCell, EncodedOutcome
from schemaless_core.store import CellStore
from tripstore.handover.authority import Authority

T = TypeVar("T")

#: What a caller wants of whichever store is the authority.
Operation = Callable[[CellStore], T]


class Refusal(Enum):
    """A store that is not open for the caller's epoch."""

    REFUSED = "refused"


REFUSED = Refusal.REFUSED
Refused = Literal[Refusal.REFUSED]


class Copies(NamedTuple):
    """Cells to be carried to the other store."""

    cells: tuple[Cell, ...]
    #: Of the authority row, read no later than the cells.
    epoch: int


class Selection(NamedTuple):
    """What of the past is copied; the default is all of it."""

    #: Names of columns; None: every one.
    columns: tuple[str, ...] | None = None
    #: A boolean expression of SQL over the parent's row, which is `t`: rows of which it is true.
    where: str | None = None


EVERYTHING = Selection()


class Blocks(NamedTuple):
    """Blocks of the file of one table, or of one partition: what stands in them, wherever its row keys are."""

    #: Of the mapped table; and what its rows are in, as SQL names it and by its OID.
    table: str
    leaf: str
    oid: int
    #: The file that was counted. Where the leaf has another one by now, nothing is read: its rows are elsewhere.
    filenode: int
    first: int
    #: Exclusive.
    upto: int


class WalkedLeaf(NamedTuple):
    """One mapped table, or one partition of it: by the name of the table, and its own name and OID."""

    table: str
    name: str
    oid: int


class Chunk(NamedTuple):
    """Rows that are copied in one go, in row-key order: those after a row key, up to another, so many at most."""

    #: Exclusive; None: from the very first.
    after: UUID | None = None
    #: Inclusive; None: to the very last.
    upto: UUID | None = None
    rows: int = 1_000
    selection: Selection = EVERYTHING
    #: These rows and no others, whatever the bounds say.
    keys: tuple[UUID, ...] | None = None
    #: Of the time in which it is read Postgres is to be at work for no more; it tells how long it was.
    source_share: float = 1.0
    #: Whether Postgres is to say how many blocks it read for it.
    counts_blocks: bool = False
    #: The rows of one table that stand here, whatever the bounds say.
    blocks: Blocks | None = None
    #: The rows of one leaf alone.
    leaf: WalkedLeaf | None = None
    #: What is in no mapped table alone: tombstones, and cells of our own.
    only_ours: bool = False
    #: Whether the first chunk tells of the rows that have no row key; they are in no other.
    tells_keyless: bool = True


class Unreadable(NamedTuple):
    """A row of the legacy tables that no cell can hold as it stands."""

    #: None: it has none.
    row_key: UUID | None
    column_name: str
    ref_key: int | None
    #: The path within the body, or the physical column.
    field: str
    reason: str
    #: How many rows it stands for.
    rows: int = 1


class Past(NamedTuple):
    """A chunk as it was read: every cell that stands in a table of Postgres now, as of one snapshot."""

    #: In row-key order.
    cells: tuple[EncodedCell, ...]
    #: Of the authority row, no younger than the cells.
    epoch: int
    #: How many row keys were read, those included of which nothing can be read. By blocks those of the parent's table,
    #: and with what is only ours those that are in no other table.
    rows: int = 0
    unreadable: tuple[Unreadable, ...] = ()
    #: Where the next chunk begins; None: this was the last one.
    after: UUID | None = None
    #: Up to which block it was read, exclusive.
    next_block: int | None = None
    #: Nothing was read: the blocks are of a table that was written anew, or the leaf is gone; its rows are elsewhere.
    is_rewritten: bool = False
    #: Rows of any table that were read; `rows` counts each row key in one of them.
    looked_at: int = 0
    #: For how long Postgres was at work, and for how long it rested in between.
    source_seconds: float = 0.0
    rested_seconds: float = 0.0
    #: That Postgres did not have in its memory; 0 where it was not to count them.
    blocks_read: int = 0


class LegacyPort(Protocol):
    """Postgres: the mapped tables, their gate and their queue."""

    def call(self, operation: Operation[T], epoch: int) -> T | Refused:
        """Read or write as the authority of this epoch.

        A write passes the gate and commits durably. A read counts only if the gate, looked at after its last snapshot,
        is open at this epoch, or closing at the next: it is shut before the decision. A caller that has waited
        at the gate for too long is refused.
        """
        ...

    def take_barrier(self) -> bool:
        """Wait, not for long, until no writer is inside, and let none in from then on; False: one stays inside.

        Held by a connection of its own, in a transaction, until `decide` commits it, another process ends it, or the
        process that runs the steps is through with them and closes it.
        """
        ...

    def queued(self) -> int:
        """Count the changes that are not delivered, also those that a relay has claimed or locked."""
        ...

    def claim(self, limit: int, *, from_others: bool = False) -> Copies:
        """Claim changes that are free or one's own, or those of others, too; none when there are none.

        Committed durably before it answers: what a crash of the server could take back must not be sent. The same
        statement looks at the layout in force: `StaleLayout` when it is not this process's.
        """
        ...

    def mark_delivered(self, cells: Sequence[Cell]) -> None:
        """Move changes from the queue to the log, in one transaction; those that another relay moved are no error."""
        ...

    def read_chunk(self, chunk: Chunk) -> Past:
        """Return the cells of a chunk of rows as of one snapshot, and the authority row's epoch of that snapshot.

        `StaleEpoch` unless Postgres is the authority then, and open; `StaleLayout` unless its layout is this process's.
        Durable before it answers, like a claim.
        """
        ...


class StorePort(Protocol):
    """Schemaless: shards on several servers."""

    #: The current primaries.
    servers: tuple[str, ...]

    def call(self, operation: Operation[T], epoch: int) -> T | Refused:
        """Read or write as an owner: each shard answers only while it is RW at exactly this epoch."""
        ...

    def copy(self, cells: Sequence[Cell], epoch: int) -> tuple[Cell, ...]:
        """Put cells as a copier, shard by shard; return those that are there now, created or equal.

        A shard of a younger epoch takes none. Whatever is in conflict goes to the ledger.
        """
        ...

    def put_encoded(self, cells: Sequence[EncodedCell], epoch: int) -> EncodedOutcome:
        """Put cells as a copier, shard by shard; say how many are there now, byte for byte, and why the others not.

        A shard of a younger epoch takes none.
        """
        ...

    def open(self, server: str, epoch: int, layout: str | None) -> bool:
        """Open the shards of a server whose epoch is older, and only those; False: it did not answer.

        The server is told the layout of this epoch before: a process that finds a shard open finds that, too.
        """
        ...

    def close(self, server: str, epoch: int) -> bool:
        """Close the shards of a server to owners; whether all of them are closed now, at exactly this epoch."""
        ...

    def opened(self, server: str) -> int:
        """Return the highest epoch at which a shard of a server was ever open to owners; raises if it is silent."""
        ...

    def reached(self, server: str) -> int:
        """Return the highest epoch at which a shard of a server is, open or closed; raises if it is silent."""
        ...

    def buffered(self, server: str) -> int:
        """Count the cells that wait in the buffer of a server, whichever shards they are of."""
        ...

    def unmirrored(self, server: str) -> int:
        """Count the cells of a server's shards that the reverse mirror has not passed."""
        ...


#: More than Postgres ever counts.
TIMELINES = 2**32


class Reserved(NamedTuple):
    """Above which epochs a Postgres is accepted, and which one."""

    generation: int
    timeline: int


class StatedAuthority(NamedTuple):
    """The authority row, and which Postgres says so."""

    row: Authority
    #: Of the Postgres that answers: its timeline grows when it is promoted, or is put back to a point in time.
    timeline: int
    #: Of the one that gave the row; None: it is not compared, for no hand-over was ever prepared. 0: of none, the row
    #: was found to be old. Below 0: of none, an acceptance was begun (see `reserved`).
    given: int | None = None

    @property
    def is_accepted(self) -> bool:
        return self.given is None or self.given == self.timeline

    @property
    def reserved(self) -> Reserved | None:
        """What was written down when an acceptance was begun: by this Postgres, or by one that it was copied from."""
        if self.given is None or self.given >= 0:
            return None
        return Reserved(*divmod(-self.given, TIMELINES))

    def reserving(self, generation: int) -> StatedAuthority:
        """The same, with an acceptance that was begun for this generation, here."""
        return self._replace(given=-(generation * TIMELINES + self.timeline))


class ControlPort(Protocol):
    """The authority row, and the gate that follows it. Every change is one packet, durable when it answers.

    A packet locks the row first, so that none comes between its look and its change, and the server runs it to its
    end whatever becomes of the client.
    """

    def authority(self) -> Authority:
        """Return the row as it is committed. Raises when a Postgres says so that is not accepted."""
        ...

    def stated_authority(self) -> StatedAuthority:
        """Return it all the same, and which Postgres it is."""
        ...

    def reserve(self, found: StatedAuthority, reserving: StatedAuthority) -> bool:
        """Write beside a row that another Postgres gave for which generation this one is accepted, if all is as found.

        A process that accepts it for another generation changes the row no more.
        """
        ...

    def accept(self, found: StatedAuthority, accepted: Authority) -> bool:
        """Change a row that another Postgres gave, if it, what is reserved, and the Postgres are still as found."""
        ...

    def distrust(self, found: Authority) -> bool:
        """Have the Postgres that says this not be accepted, if it still does: it has lost a decision."""
        ...

    def close(self, found: Authority, closing: Authority) -> bool:
        """Begin a hand-over if the row is as it was found. When Postgres is to close, its gate is closing before."""
        ...

    def shut_gate(self, closing: Authority) -> bool:
        """Close the gate of Postgres for good, if the row still says so."""
        ...

    def decide(self, closing: Authority, decided: Authority) -> bool:
        """Change the row if it is still this one: the decision.

        The barrier's holder does it in that transaction, and can do it in no other: with it the barrier goes, too.
        False also when the barrier is lost, whatever the row is: a packet that was sent may still be run, and compares.
        """
        ...

    def undo(self, closing: Authority, undone: Authority) -> bool:
        """Change the row back if it is still this one."""
        ...

    def obey(self) -> Authority:
        """Make Postgres what an open row says: end the barrier's session, then set the gate. Return the row.

        While a hand-over goes on it touches nothing.
        """
        ...

    def is_overdue(self, closing: Authority) -> bool:
        """Whether this process has waited for a hand-over for longer than `max_pause`, by its own clock."""
        ...


class Ports(NamedTuple):
    """Everything a procedure may touch."""

    legacy: LegacyPort
    store: StorePort
    control: ControlPort
    #: The digest of the layout that this process goes by; None: it goes by none.
    layout: str | None = None
