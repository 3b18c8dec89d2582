"""`ControlMoveRecord`: a shard's newest move in the control database, changed by compare-and-set.

A decision changes the topology in the same transaction: the topology is where the shard is, the servers follow.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from datetime import UTC, datetime

import sqlalchemy as sa

from schemaless_core.cell.canonical import Json
from schemaless_core.control.audit import AuditLog
from schemaless_core.control.changes import make_change
from schemaless_core.control.database import ControlDatabase
from schemaless_core.control.documents import Documents, put_within
from schemaless_core.errors import MoveRefused
from schemaless_core.moves.ports import MoveRecord, MoveSeen, MoveState, Placed
from schemaless_core.servers.clusters import Cluster
from schemaless_core.servers.leaders import Leaders
from schemaless_core.servers.topologies import Topologies
from schemaless_core.servers.topology import Topology, with_place

#: The documents of moves, one for each shard that was ever moved.
PREFIX = "move/"


def document_of(shard: int) -> str:
    return f"{PREFIX}{shard:04d}"


class ControlMoveRecord:
    """The record of one shard."""

    def __init__(self, control: ControlDatabase, clusters: Mapping[str, Cluster], shard: int) -> None:
        self._control = control
        self._clusters = clusters
        self._shard = shard
        self._name = document_of(shard)
        self._documents = Documents(control)
        self._topologies = Topologies(control)
        self._leaders = Leaders(control)
        self._audit = AuditLog(control)

    def find(self) -> MoveSeen:
        move, version = self._find()
        while True:
            topology = self._topology()
            # Behind the topology: at its epochs these lead, or later ones.
            for name, (leader, is_leased) in self._leaders.find_all().items():
                if name in self._clusters:
                    self._clusters[name].hear(leader, is_leased=is_leased)
            before = version
            move, version = self._find()
            if version == before:  # else a decision may stand between record and topology, which it changed both
                return MoveSeen(move, version, place_of(topology, self._shard))

    def _find(self) -> tuple[MoveRecord, int]:
        found = self._documents.find(self._name)
        return (MoveRecord(), 0) if found is None else (move_of(found.body), found.version)

    def change(self, seen: MoveSeen, after: MoveRecord) -> bool:
        def work(connection: sa.Connection) -> bool:
            topology = self._topologies.find_within(connection)
            if topology is None or place_of(topology, self._shard) != seen.placed:
                return False
            return self._put(connection, seen, after)

        try:
            return make_change(self._control, work)
        except sa.exc.IntegrityError:
            return False

    def decide(self, seen: MoveSeen, after: MoveRecord) -> bool:
        goes = after.state is MoveState.OVER
        cluster = after.target if goes else after.source
        why = f"shard {self._shard} {'moved to' if goes else 'stays on'} {cluster}"

        while True:
            topology = self._topology()
            if place_of(topology, self._shard) != seen.placed:
                return False
            following = with_place(topology, self._shard, cluster, seen.placed.epoch + 1)

            def work(connection: sa.Connection, following: Topology = following) -> bool:
                if not self._put(connection, seen, after):
                    return False
                self._topologies.put_within(connection, following, why=why)
                return True

            try:
                return make_change(self._control, work)
            except sa.exc.IntegrityError:
                continue  # another shard's place has changed: this version of the topology is taken

    def _put(self, connection: sa.Connection, seen: MoveSeen, after: MoveRecord) -> bool:
        if not put_within(connection, self._name, _body(after), seen.move_version):
            return False
        detail = {"shard": self._shard, "from": after.source, "to": after.target, "state": after.state.value}
        self._audit.add_within(connection, "shards.move", detail)
        return True

    def _topology(self) -> Topology:
        topology = self._topologies.find_newest()
        if topology is None:
            hint = "Run `tripstore schema apply`."
            raise MoveRefused("The control database does not know where shards are.", hint=hint)
        return topology


def place_of(topology: Topology, shard: int) -> Placed:
    if 0 <= shard < topology.shards:
        at = topology.placements[bisect_right(topology.placements, shard, key=lambda each: each.first) - 1]
        return Placed(at.cluster, at.epoch)
    raise MoveRefused(f"There is no shard {shard}.", hint=f"Shards are 0 to {topology.shards - 1}.")


def move_of(body: Mapping[str, Json]) -> MoveRecord:
    match body:
        case {"state": str(state), "source": str(source), "target": str(target), "epoch": int(e), "last": int(last)}:
            return MoveRecord(MoveState(state), source, target, e, last)
    raise MoveRefused("The record of this shard's moves cannot be read.", hint="Restore the control database.")


def _body(move: MoveRecord) -> dict[str, Json]:
    return move._asdict() | {"state": move.state.value, "at": datetime.now(UTC).isoformat(timespec="seconds")}
