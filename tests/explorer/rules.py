"""What a scenario is: who takes part, which accidents may happen, and which rules hold."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.explorer.programs import Code
from tripstore.handover.authority import Backend


@dataclass(frozen=True)
class Rules:
    """What the servers and the port of each kind do; each flag taken away is a control."""

    #: The decision is one compare-and-set, not a look and a write.
    decides_in_one_write: bool = True
    #: A writer takes its lock, then looks at the gate.
    locks_before_gate: bool = True
    #: Changes that others have claimed are counted.
    counts_claimed: bool = True
    #: An undo compares, too.
    undo_compares: bool = True
    #: So does a decision that the server runs after its client has heard that there is none.
    late_decision_compares: bool = True
    #: A server is opened only when its epoch is older.
    open_compares: bool = True
    #: A server is closed at the row's epoch, not at one more than its own.
    closes_at_row_epoch: bool = True
    #: Reads of Postgres look at the gate.
    fences_reads: bool = True
    #: A shard answers owners only while it is RW at their epoch: their reads, and their writes.
    store_fences_reads: bool = True
    store_fences_writes: bool = True
    #: What reads of Postgres compare is also the gate's epoch.
    gate_has_epoch: bool = True
    #: The gate is set under the lock of the row.
    gate_under_row: bool = True
    #: Gate and row are closed by one packet.
    closes_in_one_packet: bool = True
    #: A process that obeys the row ends the session that holds the barrier.
    ends_barrier: bool = True
    #: The gate is closed before the barrier goes.
    shuts_gate: bool = True
    #: The barrier waits for those inside.
    barrier_waits: bool = True
    #: A claim is durable before it is sent.
    claims_durably: bool = True
    #: So is a chunk of the past.
    chunks_are_durable: bool = True
    #: The past is read only while Postgres is the authority and open.
    chunks_fenced: bool = True
    #: So is what the reverse mirror wrote, before its offset is saved.
    applies_durably: bool = True
    #: So are the changes of the row.
    row_is_durable: bool = True
    #: A cell at or below the tomb is history.
    obeys_tombs: bool = True
    #: A claim, and a chunk of the past, look at the layout in force.
    claims_look_at_layout: bool = True
    chunks_look_at_layout: bool = True
    #: What the reverse mirror writes is compared with the gate's epoch.
    mirror_has_epoch: bool = True
    #: A process that reads the row looks at its layout before it goes by its epoch.
    looks_at_layout: bool = True


@dataclass(frozen=True)
class BufferRules:
    """What buffers do; each flag taken away is a control."""

    #: A buffer takes cells of owners only while its server is open, and at their epoch.
    are_gated: bool = True
    have_epoch: bool = True
    #: The gate of a buffer is looked at under a lock that its closing waits for.
    lock_gate: bool = True
    #: A cell that a buffer may not keep under its key is a conflict at once.
    compare: bool = True
    #: Cells in buffers are cells: another reading of them is refused as well.
    objects_to_buffered: bool = True
    #: What is removed from a buffer and what goes to the ledger is one transaction.
    settles_at_once: bool = True


@dataclass(frozen=True)
class Mends:
    """What keeps the invariants where Postgres goes back to an earlier state; each flag taken away is a control."""

    #: A hand-over was prepared before: from then on timelines are compared.
    is_guarded: bool = True
    #: Writers and readers of Postgres are let in only at an epoch of its own timeline.
    gate_has_timeline: bool = True
    #: The row is changed only on the timeline that gave it, but for an acceptance.
    row_has_timeline: bool = True
    #: An acceptance fences the shards before it opens anything.
    fences_shards: bool = True
    #: A shard remembers at which epoch it was open, when it is closed.
    shards_remember: bool = True
    #: A shard ahead of the row says that Postgres lost a decision.
    shards_are_proof: bool = True
    #: An applied position moves only from where its page began.
    positions_compare: bool = True
    #: It moves only by the row that was looked at.
    positions_have_row: bool = True
    #: It moves only on the timeline on which its page was begun.
    positions_have_timeline: bool = True
    #: An acceptance goes above all that the shards have reached.
    reaches_above: bool = True
    #: What it has reserved is compared when it is changed, and when the row is.
    reservation_compares: bool = True


@dataclass(frozen=True)
class Actor:
    """One process of a cast."""

    name: str
    code: Code
    #: When it is through it begins anew.
    repeats: bool = False
    #: It begins only while something is unfinished.
    watches: bool = False
    #: When it is killed it begins anew, whatever was in hand.
    restarts: bool = True
    #: Whether all must come right, too, when it is stopped for ever.
    may_stop: bool = False
    #: What it alone brings to its end: the queue, or the log of a shard.
    carries: str | int | None = None
    #: Brings the past.
    copies: bool = False
    #: The layout that it goes by; None: the scenario is not about layouts.
    layout: str | None = None


@dataclass(frozen=True)
class Scenario:
    """A cast, where it starts, and how many accidents of each kind may happen."""

    name: str
    cast: tuple[Actor, ...]
    start: Backend = Backend.LEGACY
    kills: int = 0
    crashes: int = 0
    outages: int = 0
    #: Of the connection that holds the barrier.
    breaks: int = 0
    #: A standby that was cut off is promoted: Postgres goes back to what it was then.
    losses: int = 0
    #: What was built against that; None: nothing.
    mends: Mends | None = None
    #: There are two standbys, cut off at one point, or two restores to one: the second is promoted after the first.
    has_siblings: bool = False
    #: After a promotion the old primary comes back as it was, and a process that knows better has shut it.
    returns: bool = False
    #: Whether the mirror has the past from the start.
    is_copied: bool = True
    #: Commits of direct SQL are not durable when they are acknowledged.
    asynchronous: bool = False
    #: The layout in force at the beginning.
    layout: str | None = None
    #: Whether there is no row in the beginning.
    is_empty: bool = False
    buffer_rules: BufferRules = field(default_factory=BufferRules)
    #: How many servers of Schemaless there are: rows 0 and 1 are on the first two.
    servers: int = 2
    #: Which of them may stop answering, and answer again.
    fails: tuple[int, ...] = (1,)
    #: Packets whose sender hears nothing, and that are run later or never.
    lates: int = 0
    #: Whether two callers may put two bodies under one key.
    has_conflicts: bool = False
    #: Whether the new layout reads cells in another way, and may be put in force only while there are none.
    is_incompatible: bool = False
