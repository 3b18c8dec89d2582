"""`StandbyRecord`: what a datastore is to another one, in its control database, with the topology that goes with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import sqlalchemy as sa

from schemaless_core.cell.canonical import Json
from schemaless_core.control.audit import AuditLog
from schemaless_core.control.changes import make_change
from schemaless_core.control.database import ControlDatabase
from schemaless_core.control.documents import Documents, all_within, put_within
from schemaless_core.errors import ReplicationRefused
from schemaless_core.moves.ports import MoveState
from schemaless_core.moves.record import PREFIX as MOVES
from schemaless_core.moves.record import move_of
from schemaless_core.replication.ports import LeadAnswer, Standby, StandbySeen, StandbyState
from schemaless_core.servers.leaders import PREFIX as PROMOTIONS
from schemaless_core.servers.topologies import Topologies
from schemaless_core.servers.topology import Placement, Topology, elsewhere

DOCUMENT = "standby"


class Given(NamedTuple):
    """Whether the lead was given away; if not, what is in the way."""

    lead: LeadAnswer
    why_not: str = ""


class Taker(NamedTuple):
    """The standby that takes the lead: its job, which no other datastore has, and where its configuration is there."""

    job: str
    configuration: str = ""


class StandbyRecord:
    """An `OwnRecordPort`."""

    def __init__(self, control: ControlDatabase, shards: int) -> None:
        self._control = control
        self._shards = shards
        self._documents = Documents(control)
        self._topologies = Topologies(control)
        self._audit = AuditLog(control)

    def find(self) -> StandbySeen:
        found = self._documents.find(DOCUMENT)
        topology = self._topologies.find_newest()
        standby, version = (Standby(), 0) if found is None else (standby_of(found.body), found.version)
        return StandbySeen(standby, version, 0 if topology is None else topology.version)

    def change(self, seen: StandbySeen, after: Standby) -> bool:
        return self._changed(lambda connection: self._put(connection, seen, after))

    def decide(self, seen: StandbySeen, after: Standby) -> bool:
        """`OPENING`: its shards are its own, at the record's epoch; else they are elsewhere."""

        def work(connection: sa.Connection) -> bool:
            topology = self._topology(seen.topology + 1, after)
            if not self._put(connection, seen, after):
                return False
            self._topologies.put_within(connection, topology, why=f"replicate: {after.state.value}")
            return True

        return self._changed(work)

    def may_follow(self, epoch: int) -> bool:
        """Whether its copies may go to an epoch of the other one."""
        standby = self.find().standby
        is_about_to_lead = standby.state is StandbyState.CLOSING and not standby.is_forced
        return standby.state is StandbyState.FOLLOWS or (is_about_to_lead and epoch < standby.epoch)

    def lead_for(self, taker: Taker, epoch: int) -> Given:
        """What this datastore says to a standby that is to lead at an epoch. Nothing is written."""
        topology = self._topologies.find_newest()
        if topology is None:
            raise ReplicationRefused(
                "The other datastore has no shards.", hint="Name the configuration of the one that leads."
            )
        # Read after the topology: one transaction wrote both, so what took the shards away is seen.
        standby = self.find().standby
        if not topology.is_elsewhere:
            latest = max(at.epoch for at in topology.placements)
            if latest < epoch:
                return Given(LeadAnswer.HELD)
            return Given(LeadAnswer.TAKEN, f"it leads at epoch {latest} by now")
        if standby.state is not StandbyState.LEFT:
            return Given(LeadAnswer.TAKEN, "another datastore has the lead, and it follows that one")
        if (standby.taker, standby.epoch) == (taker.job, epoch):
            return Given(LeadAnswer.GIVEN)
        of = f" of {standby.other}" if standby.other else ""
        return Given(LeadAnswer.TAKEN, f"it gave the lead to {standby.taker}{of}, at epoch {standby.epoch}")

    def give(self, epoch: int, taker: Taker, why: str) -> Given:
        """Write down that another one leads, unless something goes on that opens a shard or a server.

        To one that opens at a later epoch alone: a process that slept may be of a promotion that is long over. And to
        one alone, by its name: two standbys may follow.
        """
        seen = self.find()
        left = seen.standby._replace(state=StandbyState.LEFT, epoch=epoch, is_forced=False, job="")
        lost = self.lose(seen, left._replace(other=taker.configuration, taker=taker.job), why)
        if lost.lead is LeadAnswer.GIVEN:
            return lost
        said = self.lead_for(taker, epoch)
        return Given(LeadAnswer.BUSY, lost.why_not) if said.lead is LeadAnswer.HELD else said

    def lose(self, seen: StandbySeen, after: Standby, why: str) -> Given:
        """The same, with what it is from then on. Its places are kept for the day on which it comes back."""
        said = Given(LeadAnswer.BUSY, "what it is was changed meanwhile")

        def work(connection: sa.Connection) -> bool:
            nonlocal said
            newest = self._topologies.hold(connection)
            if newest is None or newest.is_elsewhere:
                return False
            if busy := _under_way(connection):
                said = Given(LeadAnswer.BUSY, busy)
                return False
            if max(at.epoch for at in newest.placements) >= after.epoch:
                said = Given(LeadAnswer.TAKEN, "it leads at a later epoch by now")
                return False
            places = _runs(newest) or after.places
            if not self._put(connection, seen, after._replace(places=places)):
                return False
            gone = elsewhere(newest.version + 1, newest.shards, after.epoch)
            self._topologies.put_within(connection, gone, why=why)
            return True

        return Given(LeadAnswer.GIVEN) if self._changed(work) else said

    def _topology(self, version: int, after: Standby) -> Topology:
        if after.state is not StandbyState.OPENING:
            return elsewhere(version, self._shards, after.epoch)
        runs = tuple(Placement(first, last, cluster, after.epoch) for first, last, cluster in after.places)
        return Topology(version, self._shards, runs)

    def _put(self, connection: sa.Connection, seen: StandbySeen, after: Standby) -> bool:
        if not put_within(connection, DOCUMENT, _body(after), seen.version):
            return False
        said = {"state": after.state.value, "epoch": after.epoch, "forced": after.is_forced, "job": after.job}
        self._audit.add_within(connection, "replicate", said)
        return True

    def _changed(self, work: Callable[[sa.Connection], bool]) -> bool:
        try:
            return make_change(self._control, work)
        except sa.exc.IntegrityError:
            return False


def standby_of(body: Mapping[str, Json]) -> Standby:
    """What a document says."""
    match body:
        case {
            "state": str(state),
            "epoch": int(epoch),
            "is_forced": bool(is_forced),
            "other": str(other),
            "job": str(job),
            "places": list(places),
        }:
            found = Standby(StandbyState(state), epoch, is_forced, other, job, tuple(map(_run, places)))
            return found._replace(taker=str(body.get("taker", "")))
    raise ReplicationRefused("The record of this standby cannot be read.", hint="Restore the control database.")


def _run(found: Json) -> tuple[int, int, str]:
    match found:
        case [int(first), int(last), str(cluster)]:
            return first, last, cluster
    raise ReplicationRefused("The record of this standby cannot be read.", hint="Restore the control database.")


def _body(standby: Standby) -> dict[str, Json]:
    places: list[Json] = [list(run) for run in standby.places]
    return standby._asdict() | {"state": standby.state.value, "places": places}


def _runs(topology: Topology) -> tuple[tuple[int, int, str], ...]:
    """Without epochs."""
    if topology.is_elsewhere:
        return ()
    return tuple((at.first, at.last, at.cluster) for at in topology.placements)


def _under_way(connection: sa.Connection) -> str:
    """What goes on, and opens a server or a shard without a look at the topology; empty: nothing does."""
    for name, _version, body in all_within(connection, PROMOTIONS):
        if body.get("is_done") is False and body.get("target"):
            return f"cluster {name.removeprefix(PROMOTIONS)} is being promoted"
    for name, _version, body in all_within(connection, MOVES):
        if move_of(body).state is not MoveState.DONE:
            return f"shard {int(name.removeprefix(MOVES))} is being moved"
    return ""
