"""Two clusters and a shard that goes from one to the other, as one value; and the rules that servers keep.

A cluster has a primary and a replica. The replica is the primary as it was at one moment: it may be behind by any
number of changes, and by all of them at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from schemaless_core.moves.ports import MoveRecord, Placed
from tests.explorer.world import Done, Place, replaced

#: The clusters, by their names and numbers.
SOURCE, TARGET = "a", "b"
NAMES = (SOURCE, TARGET)
RW, COPY, RO, GOING, COMES, MOVED = "RW", "COPY", "RO", "GOING", "COMES", "MOVED"
FENCEABLE = (RW, COPY, GOING, COMES)


class Copy(NamedTuple):
    """What one server has of the shard."""

    state: str = MOVED
    epoch: int = 0
    log: tuple[int, ...] = ()
    #: How far the trigger's group is, by the server.
    offset: int = 0
    entries: frozenset[int] = frozenset()
    #: First added ids by epoch.
    forks: tuple[tuple[int, int], ...] = ()
    #: The epoch at which it may arrive; what changes beside the log was copied before that.
    may_arrive: int = 0
    authority: int = 1
    #: Which process writes to it, of those that take it for a copy.
    claim: int = -1

    def opened(self, epoch: int, state: str = RW, authority: int = 0) -> Copy:
        forks = (*(each for each in self.forks if each[0] < epoch), (epoch, len(self.log) + 1))
        return self._replace(state=state, epoch=epoch, forks=forks, authority=max(self.authority, authority))


class Cluster(NamedTuple):
    """Its primary, its replica, and a promotion of it."""

    primary: Copy
    replica: Copy
    #: "": none is under way; fenced: the primary takes no writes; decided: the topology knows of another one.
    promotion: str = ""
    is_dead: bool = False
    #: What the server has that led before, if it is alive: late packets reach it.
    before: Copy | None = None
    #: How many servers have led it before this one.
    generation: int = 0


class Late(NamedTuple):
    """A packet of the mover that runs later than its sender waited, at the server that it was sent to."""

    verb: str
    cluster: int
    #: Whether that server has led before by now.
    is_before: bool
    arguments: tuple[Any, ...]


class Read(NamedTuple):
    """What a reader is told."""

    is_admitted: bool
    #: Whether it counts only when the shard is known to be still there.
    is_asked: bool = False
    #: Whether it has all that was acknowledged when it was made.
    is_whole: bool = True


class Budget(NamedTuple):
    """How many accidents are left."""

    kills: int = 0
    silences: int = 0
    lates: int = 0
    promotions: int = 0
    deaths: int = 0


NO_ACCIDENTS = Budget()


class Row(NamedTuple):
    """The authority row."""

    epoch: int = 1
    status: str = RW
    is_held: bool = False


class World(NamedTuple):
    """Everything that two worlds may differ in."""

    places: tuple[Place, ...]
    budget: Budget
    clusters: tuple[Cluster, ...]
    placed: Placed = Placed(SOURCE, 1)
    move: MoveRecord = MoveRecord()
    move_version: int = 0
    row: Row = Row()
    late: frozenset[Late] = frozenset()
    acknowledged: frozenset[int] = frozenset()
    #: Entries whose writers were told that they are there.
    indexed: frozenset[int] = frozenset()
    delivered: frozenset[int] = frozenset()


@dataclass(frozen=True)
class MoveRules:
    """What servers and ports do; each flag taken away is a control."""

    #: A shard that goes takes no writes.
    leaves: bool = True
    #: It is fenced at the epoch of the topology alone.
    leaves_at_epoch: bool = True
    #: A decision is made only if the topology has the shard where it was read.
    compares_topology: bool = True
    #: And so is the record alone: a promotion may have raised the epoch of what a move has opened.
    ends_at_topology: bool = True
    #: A decision to stay raises the epoch.
    staying_raises_epoch: bool = True
    #: A page is added to a copy that ends where the page begins.
    writes_in_place: bool = True
    #: Of two processes the one that prepared it last writes to a copy.
    claims: bool = True
    #: A copy is cut where a promotion forked the log.
    cuts: bool = True
    #: A copy arrives when what changes beside the log was copied for its epoch, which is done behind the log.
    arrives_with_beside: bool = True
    #: It waits for the replicas of the other cluster, before the decision and before it is done.
    waits_for_replicas: bool = True
    #: No copy arrives at a server that a promotion has in hand.
    arrives_unfenced: bool = True
    #: A shard is opened only from the state in which its move left it.
    opens_in_place: bool = True
    #: It is opened at the next epoch.
    raises_epoch: bool = True
    #: What changes beside the log is copied while the shard takes no writes.
    copies_beside: bool = True
    #: It is written into copies alone, never into a shard that is open.
    beside_copies_alone: bool = True
    #: Who writes an entry or moves an offset looks at the shard after that.
    looks_beside: bool = True
    #: A promotion fences shards that go and come, too.
    promotion_fences_moves: bool = True
    #: A server that is promoted has no shard but those that the topology gives it.
    promotion_closes_strays: bool = True
    #: The old shard is closed before the new one is opened, if it answers.
    closes_first: bool = True
    #: An answer of a shard that goes counts when the topology has the shard still there.
    confirms_going: bool = True
    #: And so does one of a shard that a promotion has fenced: it may have been going.
    confirms_fenced: bool = True
    #: One that knows a later authority epoch is not opened at an earlier one.
    compares_authority: bool = True


@dataclass(frozen=True)
class MoveScene:
    """Who takes part, and which accidents may happen."""

    name: str
    cast: tuple[Any, ...]
    budget: Budget = NO_ACCIDENTS
    #: Which clusters may be promoted.
    promotes: tuple[int, ...] = ()
    #: Whether it may take too long.
    is_impatient: bool = False
    has_authority: bool = False
    #: The cells that there are when it begins.
    log: tuple[int, ...] = (9,)
    rules: MoveRules = MoveRules()


Outcomes = Iterator[tuple[str, World, Done]]


def first(scene: MoveScene) -> World:
    shard = Copy(RW, 1, scene.log, forks=((1, 1),))
    clusters = Cluster(shard, shard), Cluster(Copy(), Copy())
    return World((Place(0),) * len(scene.cast), scene.budget, clusters, acknowledged=frozenset(scene.log))


def with_cluster(w: World, n: int, **changes: Any) -> World:
    return w._replace(clusters=replaced(w.clusters, n, w.clusters[n]._replace(**changes)))


def with_primary(w: World, n: int, **changes: Any) -> World:
    return with_cluster(w, n, primary=w.clusters[n].primary._replace(**changes))


def spent(w: World, what: str) -> World:
    return w._replace(budget=w.budget._replace(**{what: getattr(w.budget, what) - 1}))
