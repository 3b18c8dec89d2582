"""`Coordinator`: what the workers of all hosts agree on, and the values it speaks in.

A lease says which worker serves one shard of one group. Its `fence` grows by one whenever its owner changes; the new
owner shows it to the shard's own server, which from then on refuses the old one. So nothing here has to be believed for
correctness: a worker that acts on an old answer delivers twice at worst. No two clocks are ever compared: an observer
of a worker or a leader judges by a counter and by its own clock.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

from schemaless_core.errors import Conflict


class Lease(NamedTuple):
    """Which worker serves one shard of one group; the heir gets it when the owner lets go."""

    group: str
    shard: int
    owner: str | None
    heir: str | None
    fence: int


class GroupState(StrEnum):
    """Whether a group's cells are delivered."""

    RUNNING = "running"  #: The owner of a lease delivers.
    HALTED = "halted"  #: No worker delivers until an operator resumes the group.


class GroupRecord(NamedTuple):
    """A group as all workers know it."""

    name: str
    state: GroupState
    reason: str  #: Why it was halted; empty while it runs.
    start: str  #: Where its first offsets were set, as it was said at the first registration.
    parked_allowed: int  #: Parked cells beyond which it is to be halted.
    version: int  #: Grows with every change of the group or of one of its leases; never repeats for a name.
    registered_ms: int  #: When it was registered, at the latest, by the clock of that process.


class WorkerRecord(NamedTuple):
    """A worker as it announced itself."""

    worker: str
    host: str
    pid: int
    groups: tuple[str, ...]
    counter: int  #: Grows with each heartbeat.


class LeaderRecord(NamedTuple):
    """Which worker leads; `owner` None after a leader that left."""

    owner: str | None
    term: int  #: Grows with each new leader.
    counter: int  #: Grows with each renewal.


class HeldLeases(NamedTuple):
    """What a worker hears at its heartbeat."""

    leases: tuple[Lease, ...]  #: Those it owns or inherits, only of groups whose version it did not know.
    groups: Mapping[str, GroupRecord]  #: Those that it announced; one that is absent was removed.


class Survey(NamedTuple):
    """Everything that an assignment is made from."""

    workers: tuple[WorkerRecord, ...]
    leases: tuple[Lease, ...]
    groups: Mapping[str, GroupRecord]


class Change(NamedTuple):
    """One lease's next step: with a `new_owner` it is given away, else its heir is set, or cleared by None."""

    group: str
    shard: int
    owner: str | None  #: The owner before: the change holds only while it is still the owner …
    fence: int  #: … at this fence.
    heir: str | None
    new_owner: str | None

    @property
    def is_given(self) -> bool:
        """Whether the lease gets a new owner at once."""
        return self.new_owner is not None


class LeadershipLost(Conflict):
    """This worker is not the leader any more: what it decided does not count."""

    def __init__(self, worker: str, term: int) -> None:
        super().__init__(f"Worker {worker} leads no more in term {term}.", hint="Another worker assigns leases now.")
        self.worker = worker
        self.term = term


@dataclass(frozen=True, slots=True)
class LeaseConfig:
    """How long a silent worker keeps what it holds, and how fast shards move."""

    lease_seconds: float = 6.0  #: A worker or leader that is silent for so long has lost its leases.
    handover_seconds: float = 30.0  #: An owner that was asked to let go is given up after this.
    moves_max: int = 64  #: Hand-overs that one round of the leader may begin.

    @property
    def beat_seconds(self) -> float:
        """How often a worker beats, and a leader works: two may fail before a lease is lost."""
        return self.lease_seconds / 3


class Coordinator(Protocol):
    """The common memory of all workers of a datastore.

    Any call may raise `Unavailable`; what was asked for may then have happened, and may be asked for again. A
    compare-and-set that was lost is an answer. Safe to use from several threads, except `survey` and `assign`, which
    belong to the leader's.
    """

    def register_group(self, name: str, start: str, shards: int, *, allowed: int, fence: int = 0) -> GroupRecord:
        """Create a group with a lease per shard, without an owner; idempotent: of a known group nothing changes.

        A group that was removed must begin with a higher fence than it ever had.
        """
        ...

    def find_group(self, name: str) -> GroupRecord | None:
        """Return a group, or None."""
        ...

    def groups(self) -> dict[str, GroupRecord]:
        """Return all groups by name."""
        ...

    def remove_group(self, name: str) -> None:
        """Forget a group and its leases; idempotent. Its offsets are on the shards' servers and not touched here."""
        ...

    def beat(self, worker: str, groups: Collection[str], known: Mapping[str, int]) -> HeldLeases:
        """Show that a worker is alive and which groups it serves; hear what it holds.

        Leases are told only of groups whose version differs from the `known` one, so that a quiet beat is cheap.
        """
        ...

    def release(self, worker: str, leases: Collection[Lease]) -> None:
        """Let go of leases: each goes to its heir, if it has one. One that is not the worker's any more stays."""
        ...

    def revoke(self, group: str, fences: Mapping[int, int]) -> None:
        """Take shards away from their owners, unless the lease's fence is above this one already.

        The next owner's fence is above it then. For offsets that were set anew, and for a server that has seen a
        higher fence than the coordinator remembers, as after a restored backup.
        """
        ...

    def leave(self, worker: str) -> None:
        """Let go of everything, leadership too, and forget the worker; idempotent."""
        ...

    def lead(self, worker: str, term: int | None) -> LeaderRecord | None:
        """Renew the leadership if the worker has it in this term; return today's leader. None: there was none yet."""
        ...

    def take_lead(self, worker: str, seen: LeaderRecord | None) -> int | None:
        """Become the leader if the record is still as it was seen; return the new term, None if another was faster."""
        ...

    def survey(self) -> Survey:
        """Return all workers, leases and groups. What it says may be old; `assign` looks again."""
        ...

    def assign(self, worker: str, term: int, changes: Sequence[Change], dead: Collection[WorkerRecord] = ()) -> int:
        """Make the changes that still hold, forget dead workers, and return how many leases changed.

        A dead worker that has beaten since it was seen is not forgotten and keeps its leases; one that is forgotten
        already is dead still. Raises `LeadershipLost`, having done nothing, unless the worker leads in this term.
        """
        ...

    def halt(self, group: str, reason: str) -> None:
        """Stop the delivery of a group; of a group that is halted or removed nothing changes."""
        ...

    def resume(self, group: str, allowed: int) -> None:
        """Deliver again until more cells than `allowed` are parked; `InvalidRequest` for an unknown group."""
        ...
