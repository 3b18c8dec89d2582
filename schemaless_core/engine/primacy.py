"""Who leads a cluster, as its servers know it, and what a promotion does to one of them, whatever its engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from schemaless_core.deadline import Deadline


class Lead(NamedTuple):
    """The server that a promotion opened. A higher number is a later promotion."""

    number: int
    #: What tells a server from the others of its cluster, whatever its address is.
    server: int


#: No promotion ever was: the configured primary leads.
FIRST = Lead(0, 0)


class Leadership(NamedTuple):
    """What one server says."""

    leader: Lead
    me: int
    #: Whether servers of the cluster take writes only under a lease.
    is_leased: bool = False


class Opening(NamedTuple):
    """How shards are opened: at which authority epoch, and to whom."""

    authority_epoch: int
    #: RW: Schemaless is the authority; COPY: it is a mirror.
    status: str


class NotNow(NamedTuple):
    """A server was not opened: its shards know a later authority epoch."""

    authority_epoch: int


class Reached(NamedTuple):
    """How far a server's copy of its cluster's changes goes, in its engine's own words."""

    position: str


class EpochRun(NamedTuple):
    """Shards that are next to each other, and the epoch that they get."""

    first: int
    last: int
    epoch: int


class ReplicationLogin(NamedTuple):
    """As whom replicas log in at their primary."""

    user: str
    password: str


class Candidate(Protocol):
    """One server of a cluster in the hands of one promotion, on a session of its own.

    No two promotions have it at once. When that session ends, whatever ended it, this promotion does nothing more to
    the server: what the session had learned may be old.
    """

    def fence(self, number: int, deadline: Deadline, *, led: bool) -> Lead:
        """Take all writes from it, unless it was opened by this promotion or a later one; return who leads.

        `led`: it was the primary when this promotion began. A replica is left as it is; what it follows is fenced.
        """
        ...

    def reached(self, deadline: Deadline) -> Reached:
        """Return how far its changes go."""
        ...

    def has(self, reached: Reached, deadline: Deadline) -> bool:
        """Return whether it has all of these changes."""
        ...

    def cut_off(self, deadline: Deadline) -> bool:
        """Fetch nothing more; whether all that it had fetched is applied."""
        ...

    def open(
        self,
        number: int,
        opening: Opening | None,
        epochs: Sequence[EpochRun],
        promises: Mapping[str, int] | None,
        deadline: Deadline,
    ) -> Lead | NotNow:
        """Make it the primary, unless it knows a later promotion; return who leads then.

        `promises`: it takes writes only under a lease from now on, and knows these as a voter; None: it needs no lease.
        Its shards get these epochs, and are open as told, or as they were before they were fenced: in one
        transaction, of which its replicas hear in its place among the others. Repeated, it does nothing.
        """
        ...

    def follow(self, host: str, port: int, login: ReplicationLogin, deadline: Deadline) -> None:
        """Make it a replica of a server that has all of its changes, or lacks some that it will get from there."""
        ...

    def identity(self, deadline: Deadline) -> int:
        """Return what tells it from the others."""
        ...

    def seconds_behind(self, deadline: Deadline) -> int | None:
        """Return how far a replica is behind, as it says itself; None: it does not know, or follows no other."""
        ...

    def other_datastores(self, deadline: Deadline) -> list[str]:
        """Return the names of others whose shards are on the server: these would not hear of another primary."""
        ...

    def has_lock(self, name: str, deadline: Deadline) -> bool:
        """Return whether a session of the server holds the lock of this name, as one at another address of it may."""
        ...

    def stay(self, deadline: Deadline) -> None:
        """Keep the session from being taken for one whose client is gone."""
        ...

    def close(self) -> None:
        """End the session."""
        ...
