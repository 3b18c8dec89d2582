"""The servers of one cluster with one shard, and the rules that they keep. What calls do: `primary_calls`.

A server is the list of its changes. A replica fetches the next one of the server that it follows, if it has all those
before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from schemaless_core.engine.primacy import FIRST, Lead
from schemaless_core.promotion.ports import Record
from tests.explorer.world import At, Done, Place, replaced

#: Follows no server: its changes are its own. And: is a replica still, and fetches nothing.
ALONE, CUT_OFF = -1, -2
NO_ACTOR = -1
RW, COPY, RO = "RW", "COPY", "RO"


class Cells(NamedTuple):
    """A cell was stored. Tuples of two kinds are equal if their fields are, so each kind of change has its name."""

    number: int
    kind: str = "cell"


class Fence(NamedTuple):
    """All writes were taken from the shard."""

    by: int
    kind: str = "fence"


class Open(NamedTuple):
    """A promotion opened the server."""

    number: int
    server: int
    epoch: int
    authority_epoch: int
    status: str


class Authority(NamedTuple):
    """A hand-over opened the shard to owners, or closed it."""

    epoch: int
    status: str
    kind: str = "authority"


Change = Cells | Fence | Open | Authority
Log = tuple[Change, ...]


class Shard(NamedTuple):
    """What a server's changes come to."""

    leader: Lead
    epoch: int
    authority_epoch: int
    status: str


@cache
def shard_of(log: Log) -> Shard:
    shard = Shard(FIRST, 1, 1, RW)
    for change in log:
        if isinstance(change, Open):
            leader = Lead(change.number, change.server)
            shard = Shard(leader, change.epoch, change.authority_epoch, change.status)
        elif isinstance(change, Fence):
            shard = shard._replace(status=RO)
        elif isinstance(change, Authority):
            status = RO if shard.status == RO else change.status
            shard = shard._replace(authority_epoch=change.epoch, status=status)
    return shard


def cells_of(log: Log) -> set[int]:
    return {change.number for change in log if isinstance(change, Cells)}


class Server(NamedTuple):
    """One server."""

    log: Log = ()
    follows: int = ALONE
    up: bool = True
    #: In whose hands it is.
    holder: int = NO_ACTOR
    #: It came back as an operator promised: it takes nothing from owners, and answers no promotion.
    is_shut: bool = False


class Late(NamedTuple):
    """A put that is on its way to a server."""

    server: int
    cell: int
    epoch: int


class Budget(NamedTuple):
    """How many accidents are left."""

    crashes: int = 0
    kills: int = 0
    breaks: int = 0
    lates: int = 0


NO_ACCIDENTS = Budget()


class Heir(NamedTuple):
    """A voter that is a primary itself, and may get another server: its second one."""

    #: Whether the first server's own lease lasts.
    is_first_leased: bool = True
    #: What the promotion of the second server read at the control database; None: it has not.
    read: int | None = None
    #: What the second server has noted; None: it is not open.
    noted: int | None = None
    #: Of a promotion of its own that no operator asked for: whether it has begun, and whether our primary has noted it.
    is_begun: bool = False
    is_noted: bool = False

    @property
    def is_under_way(self) -> bool:
        return self.is_begun and self.noted is None


class Leases(NamedTuple):
    """The leases of the servers, and what voters have noted.

    Time is a number of waits: what began before a wait has ended when the wait has.
    """

    #: Of each server: in which wait the clock was read from which its lease goes on.
    since: tuple[int, ...]
    #: Of each voter: earlier promotions than this one are allowed no lease.
    notes: tuple[int, ...]
    heir: Heir = Heir()
    #: How many waits have begun, and which of them have ended.
    begun: int = 0
    ended: int = 0


class Row(NamedTuple):
    """The authority row: which backend it is, and whether a hand-over goes on."""

    epoch: int = 1
    status: str = RW
    is_held: bool = False


class World(NamedTuple):
    """Everything that two worlds may differ in."""

    servers: tuple[Server, ...]
    places: tuple[Place, ...]
    budget: Budget
    record: Record = Record()
    row: Row = Row()
    late: frozenset[Late] = frozenset()
    acknowledged: frozenset[int] = frozenset()
    #: Servers that an operator has given up.
    given_up: frozenset[int] = frozenset()
    #: None: the servers have none.
    leases: Leases | None = None


@dataclass(frozen=True)
class LeaseRules:
    """The same of leases."""

    #: A primary takes writes only while its lease lasts.
    wants_lease: bool = True
    #: So does what it answers to a read count, that has to have all there is.
    reads_want_lease: bool = True
    #: A lease is extended only if a voter allows it.
    asks_voter: bool = True
    #: It goes on from a moment before the voter was asked.
    reads_clock_first: bool = True
    #: A promotion has every voter note it.
    blocks_all: bool = True
    #: It waits until the last lease has ended.
    outlasts: bool = True
    #: An answer that comes later than a lease could have lasted counts for nothing.
    bounds_answers: bool = True
    #: A primary is a voter only while its own lease lasts.
    voter_is_leased: bool = True
    #: A primary that is opened has the notes that the control database has.
    carries_notes: bool = True
    #: The control database is the first to note a promotion.
    control_first: bool = True
    #: A primary does not count as closed when its lease has ended.
    only_leased_closes: bool = True
    #: A replica that is opened has a lease of its own to get.
    lease_is_of_one_server: bool = True
    #: The record says of servers that are given up that they may be alive.
    keeps_outlasts: bool = True
    #: Of all clusters one at a time is promoted without an operator.
    one_at_a_time: bool = True


@dataclass(frozen=True)
class PrimaryRules:
    """What servers and ports do; each flag taken away is a control."""

    #: A fence takes all writes from a primary.
    fences: bool = True
    #: One promotion has a server at a time.
    has_one_holder: bool = True
    #: A server is opened by the session that took it.
    keeps_session: bool = True
    #: A record is changed only if it is as it was read.
    compares_record: bool = True
    #: A server that was given up comes back shut.
    returns_shut: bool = True
    #: A server is opened at the next epoch.
    raises_epoch: bool = True
    #: A server that knows a later authority epoch is not opened at an earlier one.
    compares_authority: bool = True
    #: A shard that is fenced does not count as closed.
    fenced_is_not_closed: bool = True
    #: A server that another one leads does not count as closed.
    only_leader_closes: bool = True
    #: The authority is asked again while a hand-over goes on.
    waits_for_hand_over: bool = True
    #: The next primary waits until it has all there is.
    waits_for_changes: bool = True


@dataclass(frozen=True)
class PrimaryScene:
    """Who takes part, and which accidents may happen."""

    name: str
    cast: tuple[Any, ...]
    servers: int = 2
    budget: Budget = NO_ACCIDENTS
    #: Servers whose process may die, and come back.
    fails: tuple[int, ...] = ()
    has_authority: bool = False
    #: Whether Schemaless is the authority when it begins (RW), or the mirror.
    begins: str = RW
    has_leases: bool = False
    rules: PrimaryRules = PrimaryRules()
    lease_rules: LeaseRules = LeaseRules()


Outcomes = Iterator[tuple[str, World, Done | At]]
Handler = Callable[[World, int, Any, tuple[Any, ...], PrimaryScene], Outcomes]


def with_server(w: World, n: int, **changes: Any) -> World:
    return w._replace(servers=replaced(w.servers, n, w.servers[n]._replace(**changes)))


def with_change(w: World, n: int, change: Change) -> World:
    return with_server(w, n, log=(*w.servers[n].log, change))


def is_leased(w: World, n: int) -> bool:
    return w.leases is None or w.leases.since[n] >= w.leases.ended


def newest(w: World) -> Lead:
    """The latest promotion that opened a server."""
    return max(shard_of(server.log).leader for server in w.servers)


def status_before(log: Log) -> str:
    """How the shard was open before it was fenced."""
    return next((shard_of(log[:n]).status for n in range(len(log), -1, -1) if shard_of(log[:n]).status != RO), RW)
