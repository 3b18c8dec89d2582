"""`LeaseTables`: the lease under which a server takes writes, and its promises as a voter, whatever its engine."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple, Protocol

from schemaless_core.deadline import Deadline

#: So long a primary takes writes after a voter has allowed it.
LEASE_SECONDS = 3.0
#: So long the answer to a write under a lease counts, from the moment at which it was sent.
ANSWER_SECONDS = 1.5


class ServerClock(NamedTuple):
    """What a server says before its lease is extended."""

    server: int
    #: The promotion that opened it, as it knows; 0: none did.
    number: int
    #: By its own clock.
    now: datetime


class LeaseTables(Protocol):
    """Of one server. What is written here is in no binary log: it is the server's own, and its replicas never hear.

    But for its beats, by which a replica knows how old it is.
    """

    def clock(self, deadline: Deadline) -> ServerClock:
        """Return what its clock says."""
        ...

    def extend(self, clock: ServerClock, seconds: float, deadline: Deadline) -> bool:
        """Have it take writes for so long from that moment on; False: it does not, for another promotion has it."""
        ...

    def left(self, deadline: Deadline) -> float:
        """Return for how many seconds it takes writes yet; at most 0: it does not."""
        ...

    def beat(self, deadline: Deadline) -> None:
        """Have its replicas hear that it has a lease now, if it has one."""
        ...

    def beaten_at(self, deadline: Deadline) -> datetime | None:
        """Return when a primary with a lease said so last, by that primary's clock; None: none ever did."""
        ...

    def promise(self, cluster: str, number: int, deadline: Deadline) -> bool:
        """Allow no more lease to what an earlier promotion of that cluster opened; False: it may promise nothing.

        Only a server with a lease is a voter: another one may have taken its place.
        """
        ...

    def promised(self, cluster: str, deadline: Deadline) -> int | None:
        """Return the highest promotion of that cluster that it has promised to wait for; None: it may not say."""
        ...

    def close(self) -> None:
        """End its session."""
        ...
