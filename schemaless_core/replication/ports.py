"""What a standby's promotion, and the return of the datastore that led before, ask of records, servers and copies."""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import NamedTuple, Protocol

from schemaless_core.engine.primacy import Opening
from schemaless_core.promotion.ports import AuthorityPort, Silent

__all__ = [
    "AuthorityPort",
    "BringPort",
    "CopiesPort",
    "LeadAnswer",
    "Opening",
    "OtherPort",
    "OwnRecordPort",
    "PromotePorts",
    "ReturnPorts",
    "Silent",
    "Standby",
    "StandbySeen",
    "StandbyState",
]


class StandbyState(StrEnum):
    """What a datastore is to another one. The topology says the same: a datastore that does not lead has no shard."""

    NONE = "none"  #: Nothing: it has never been a standby.
    LEFT = "left"  #: It led, and another one was given the lead.
    RETURNS = "returns"  #: It led, and brings what it alone has to the one that leads now.
    FOLLOWS = "follows"  #: It is a standby.
    CLOSING = "closing"  #: It is about to lead; the one that leads is being closed.
    OPENING = "opening"  #: It is decided that it leads; its shards are being opened.
    LEADS = "leads"  #: It led the other one off.


class LeadAnswer(Enum):
    """What the record of the datastore that leads, or led, says to a standby that is to lead at an epoch."""

    HELD = "held"  #: It leads, at earlier epochs.
    GIVEN = "given"  #: It gave the lead to this standby, at this epoch.
    TAKEN = "taken"  #: Another standby has it, or it leads at a later epoch itself: at this one it never gives it.
    BUSY = "busy"  #: It leads, and something goes on there that opens shards or servers.


class Standby(NamedTuple):
    """The record that a datastore keeps of it."""

    state: StandbyState = StandbyState.NONE
    #: From CLOSING on: at which it opens. Before that the latest that the other one is known to have opened at.
    epoch: int = 0
    #: The other one was not asked: it is lost, or cannot be reached.
    is_forced: bool = False
    #: The configuration of the other one, and the job that follows it. LEFT: that of the one that was given the lead.
    other: str = ""
    job: str = ""
    #: Where its own shards are, as runs of first, last and cluster.
    places: tuple[tuple[int, int, str], ...] = ()
    #: LEFT: the job of the standby that was given the lead at this epoch, and is given it by no other name.
    taker: str = ""


class StandbySeen(NamedTuple):
    """The record as it was read; what is changed must be as it was."""

    standby: Standby
    version: int
    #: Of the topology.
    topology: int


class OwnRecordPort(Protocol):
    """The record of this datastore, in its own control database."""

    def find(self) -> StandbySeen:
        """Return it as it is now."""
        ...

    def change(self, seen: StandbySeen, after: Standby) -> bool:
        """Change it if it is as it was seen."""
        ...

    def decide(self, seen: StandbySeen, after: Standby) -> bool:
        """The same, and by the same transaction the topology: OPENING gives it its shards, RETURNS takes them."""
        ...


class OtherPort(Protocol):
    """The datastore that leads until now. Every verb may be repeated."""

    def leads(self, epoch: int, job: str) -> LeadAnswer | Silent:
        """Return what its record says to the standby of this job. Nothing is written: it is never BUSY."""
        ...

    def give(self, epoch: int, job: str) -> LeadAnswer | Silent:
        """Write down that the standby of this job leads from this epoch on, and no other one; return what holds then.

        BUSY: a shard is being moved there, or a cluster is on its way to another primary.
        """
        ...

    def close(self, epoch: int) -> None | Silent:
        """Have each of its shards of an earlier epoch be a copy, which takes part in nothing."""
        ...

    def bring(self) -> bool | Silent:
        """Put what waits in its buffers into this datastore, which leads by now. False: this one does not lead."""
        ...


class CopiesPort(Protocol):
    """The copies that this datastore has."""

    def next_epoch(self, known: int) -> int | Silent:
        """Return an epoch later than this one, and than all at which the other one may have opened shards by then."""
        ...

    def catch_up(self) -> bool | Silent:
        """Copy all that the other one's logs have now, and what stands beside them.

        False: the copies are not as the logs want them, since the other one is at another epoch by now.
        """
        ...

    def replicated(self) -> bool | Silent:
        """Return whether own replicas have what was copied. False: not yet. Silent: they were waited for too long."""
        ...

    def arrive(self, epoch: int) -> bool | Silent:
        """Make all copies shards that are about to be opened at this epoch. False: one has changed meanwhile.

        What led before, and is to lead again, may be open still: it is closed first. Shards to which a promotion of
        their cluster has given a later epoch are opened at that one.
        """
        ...

    def open(self, epoch: int, opening: Opening | None) -> bool | Silent:
        """Open all shards; False: they know a later authority epoch."""
        ...

    def are_open(self, epoch: int) -> bool | Silent:
        """Return whether the servers that lead now say so. One that was promoted meanwhile may know of copies alone."""
        ...


class PromotePorts(NamedTuple):
    """All that a promotion may touch."""

    record: OwnRecordPort
    other: OtherPort
    copies: CopiesPort
    authority: AuthorityPort


class BringPort(Protocol):
    """What this datastore has, and the one that leads lacks."""

    def close(self, epoch: int) -> None | Silent:
        """Have each of its own shards of an earlier epoch be a copy."""
        ...

    def bring(self) -> bool | Silent:
        """Put all cells that the one that leads lacks into that one, by their keys. False: it does not lead."""
        ...

    def leave(self) -> bool | Silent:
        """Take alias, versions and entries from its indexes: what the other one does to rows changes none of them."""
        ...


class ReturnPorts(NamedTuple):
    """All that a return may touch."""

    record: OwnRecordPort
    own: BringPort
