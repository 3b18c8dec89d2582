"""What a promotion asks of the servers of a cluster, of its record, and of the layer that knows the authority."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Literal, NamedTuple, Protocol

from schemaless_core.engine.primacy import Lead, NotNow, Opening, Reached


class Unheard(Enum):
    """A server did not answer: it may have done it, may do it later, or never heard of it."""

    SILENT = "silent"


SILENT = Unheard.SILENT
Silent = Literal[Unheard.SILENT]


class Record(NamedTuple):
    """A cluster's newest promotion, as the control database has it."""

    #: 0: there never was one.
    number: int = 0
    #: The server that led before; empty: the configured primary.
    before: str = ""
    #: Servers that the operator has given up: they are stopped, and come back shut.
    given_up: tuple[str, ...] = ()
    #: The server that is to lead; empty: it is not decided.
    target: str = ""
    is_done: bool = True
    #: Whether one of those that are given up may be alive: no operator says that it is stopped.
    outlasts: bool = False
    #: Whether the server that it opens takes writes only under a lease.
    is_leased: bool = False
    #: Whether the server before does: only then it may be outlasted.
    was_leased: bool = False

    @property
    def leads(self) -> str:
        """The server that leads, or is to; empty: the configured primary."""
        return self.target or self.before


class PromotionOrder(NamedTuple):
    """What an operator asks for."""

    #: Empty: the replica that has most.
    to: str = ""
    given_up: tuple[str, ...] = ()
    #: Servers are given up because they do not answer: they may be alive, until their lease has ended.
    outlasts: bool = False
    #: Whether the cluster's primary takes writes only under a lease from now on; None: as it was.
    leases: bool | None = None


class Busy(NamedTuple):
    """Another cluster is promoted without an operator, and one at a time is."""

    cluster: str


class RecordPort(Protocol):
    """The record of one cluster; each change is one transaction, made only if the record is as it was read."""

    def find(self) -> Record:
        """Return it as it is now."""
        ...

    def begin_alone(self, before: Record, after: Record) -> bool | Busy:
        """Change it as one begins that no operator asked for, unless there is such a one of another cluster."""
        ...

    def change(self, before: Record, after: Record) -> bool:
        """Change it. With a target, the shards of the cluster get their next epochs in the topology, too."""
        ...


class ServersPort(Protocol):
    """The servers of one cluster, each on one session for the whole of a promotion."""

    @property
    def names(self) -> tuple[str, ...]:
        """All of them, the configured primary first."""
        ...

    def fence(self, server: str, number: int, led: bool) -> Lead | Silent:
        """Take the server, and all writes from it; return who leads as it knows. `led`: it was the primary so far."""
        ...

    def reached(self, server: str) -> Reached | Silent:
        """Return how far its changes go."""
        ...

    def has(self, server: str, reached: Reached) -> bool | Silent:
        """Return whether it has all of these changes."""
        ...

    def cut_off(self, server: str) -> bool | Silent:
        """Have it fetch nothing more; return whether all that it had fetched is applied."""
        ...

    def open(self, server: str, number: int, opening: Opening | None) -> Lead | NotNow | Silent:
        """Make it the primary, on the session by which it was fenced; return who leads then."""
        ...

    def follow(self, server: str, other: str) -> None | Silent:
        """Make it a replica of the other one."""
        ...


class HandingOver(Enum):
    """A hand-over goes on: which backend is the authority is not decided."""

    HANDING_OVER = "held"


HANDING_OVER = HandingOver.HANDING_OVER


class AuthorityPort(Protocol):
    """Who knows which backend is the authority."""

    def opening(self) -> Opening | Literal[HandingOver.HANDING_OVER] | None:
        """Return how shards are to be opened; None: no layer above has a say, as they were."""
        ...


class VotersPort(Protocol):
    """The control database, and the primaries of all other clusters: each is asked by itself.

    A primary answers only while its own lease lasts: what an old one says would count for nothing.
    """

    @property
    def names(self) -> Iterable[str]:
        """All of them; for a promotion the control database first, then the others as they are by then."""
        ...

    def block(self, voter: str, number: int) -> None | Silent:
        """Have it allow no more lease to a server that an earlier promotion than this one opened."""
        ...

    def allows(self, voter: str, number: int) -> bool | Silent:
        """Return whether the server that this promotion opened may go on leading."""
        ...

    def outlast(self) -> None:
        """Wait for as long as a lease that was allowed before now may last, and the answers that it allowed."""
        ...


class Clock(NamedTuple):
    """What a primary says before its lease is extended."""

    server: str
    #: The promotion that opened it.
    number: int
    #: By its own clock.
    now: float


class LeasesPort(Protocol):
    """The primary of one cluster, as the process that extends its lease sees it."""

    def clock(self) -> Clock | Silent:
        """Return what its clock says."""
        ...

    def extend(self, clock: Clock) -> None | Silent:
        """Have it take writes for a lease's length from that moment on, by its own clock."""
        ...


class PromotionPorts(NamedTuple):
    """All that the steps may touch."""

    record: RecordPort
    servers: ServersPort
    authority: AuthorityPort
    #: None: the servers have no leases.
    voters: VotersPort | None = None


class LeasePorts(NamedTuple):
    """All that extending a lease may touch."""

    leases: LeasesPort
    voters: VotersPort
