"""What a scene of standbys is made of: datastores of one shard each, accidents that are left, and rules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from schemaless_core.replication.ports import Standby
from tests.explorer.world import Place

RW, MOVED, COMES, RO = "RW", "MOVED", "COMES", "RO"
FATE = -1
FIRST, SECOND, THIRD = 0, 1, 2
#: Between two epochs at which datastores take the lead from each other; an own promotion adds one.
STRIDE = 10

Log = tuple[int, ...]
Forks = tuple[tuple[int, int], ...]
Outcomes = Iterator[tuple[str, Any, object]]


class Site(NamedTuple):
    """A datastore: its shard's row and log, its topology and its record."""

    state: str = MOVED
    epoch: int = 0
    log: Log = ()
    #: First added ids by epoch.
    forks: Forks = ()
    leads: bool = False
    topology: int = 1
    #: Of a promotion of its cluster: "", or decided, with the topology as it was then.
    promotion: str = ""
    standby: Standby = Standby()
    version: int = 1
    #: Which one it follows, or comes back to.
    of: int = FIRST
    #: At which its topology has the shard.
    placed: int = 0
    #: Whether the replica has all that its primary did to the shard's row.
    is_heard: bool = True
    #: Its servers answer no more, for ever.
    is_lost: bool = False

    def opened(self, epoch: int) -> Site:
        forks = (*(each for each in self.forks if each[0] < epoch), (epoch, len(self.log) + 1))
        return self._replace(state=RW, epoch=epoch, forks=forks)

    @property
    def takes_puts(self) -> bool:
        """Callers go by the topology's epoch."""
        return self.state == RW and self.epoch == self.placed and not self.is_lost

    def with_other_server(self) -> Site:
        """Its primary is lost, and the replica is promoted, which has not heard that the copy became the shard."""
        forks = self.forks[:-1] if self.state == RW else self.forks
        epoch, placed = forks[-1][0], self.placed + 1
        return self._replace(
            state=MOVED, forks=forks, epoch=epoch, placed=placed, topology=self.topology + 1, is_heard=True
        )

    @property
    def is_new(self) -> bool:
        """No put was acknowledged since it was opened."""
        return self.state == COMES or (self.state == RW and self.forks[-1] == (self.epoch, len(self.log) + 1))


class StandbyBudget(NamedTuple):
    """How many accidents are left."""

    puts: int = 2
    kills: int = 1
    silences: int = 1
    promotions: int = 0
    #: Primaries of one that leads that are lost before their replicas have all.
    servers: int = 0
    #: How often an operator begins to promote by force, and how many datastores may be lost before that.
    forces: int = 1
    losses: int = 0


class StandbyWorld(NamedTuple):
    """Everything that two worlds may differ in."""

    places: tuple[Place, ...]
    budget: StandbyBudget
    sites: tuple[Site, ...]
    acknowledged: frozenset[int] = frozenset()
    #: Whether a promotion was decided without a word of the other one.
    was_forced: bool = False


@dataclass(frozen=True)
class StandbyRules:
    """What ports do; each flag taken away is a control."""

    #: The lead is given only to one that opens at a later epoch.
    gives_upwards: bool = True
    #: And while no promotion of a cluster goes on.
    waits_for_promotions: bool = True
    #: The shards that led are closed.
    closes: bool = True
    #: Only those of an earlier epoch.
    closes_below_epoch: bool = True
    #: The last cells are copied behind the closing.
    copies_rest: bool = True
    #: A record is changed if it is as it was read.
    compares_record: bool = True
    #: It opens at an epoch of its own.
    raises_epoch: bool = True
    #: What a copy has behind a fork is cut.
    cuts: bool = True
    #: One that led brings what it alone has, before it is cut.
    brings: bool = True
    #: And is closed before that.
    shuts_first: bool = True
    #: The lead is given to one standby by name, and no other one takes it for its own.
    names_taker: bool = True
    #: What leads again by force is closed first where it never was.
    closes_own: bool = True
    #: What is about to lead copies no log of its own epoch, or a later one.
    copies_below_epoch: bool = True
    #: Replicas have what was opened, before it is said to lead.
    waits_for_replicas: bool = True
    #: And the servers that lead by then are looked at.
    looks_again: bool = True
    #: What a promotion of its cluster has given a later epoch is opened at that one.
    opens_as_placed: bool = True


def with_site(w: StandbyWorld, n: int, site: Site) -> StandbyWorld:
    return w._replace(sites=tuple(site if m == n else each for m, each in enumerate(w.sites)))


def recorded(site: Site, standby: Standby, *, leads: bool | None = None) -> Site:
    """With another record. `leads`: the topology changes by the same transaction."""
    after = site._replace(standby=standby, version=site.version + 1)
    return after if leads is None else after._replace(leads=leads, topology=site.topology + 1)
