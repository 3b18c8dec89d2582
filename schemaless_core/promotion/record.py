"""`ControlRecord`: a cluster's newest promotion in the control database, changed by compare-and-set.

With the decision for a server the shards of the cluster get their next epochs in the topology: by one transaction, so
that a process which hears of the epochs hears who leads as well.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

import sqlalchemy as sa

from schemaless_core.cell.canonical import Json
from schemaless_core.control.audit import AuditLog
from schemaless_core.control.changes import make_change
from schemaless_core.control.database import ControlDatabase
from schemaless_core.control.documents import Documents, put_within
from schemaless_core.engine.primacy import EpochRun, Lead
from schemaless_core.errors import PromotionRefused
from schemaless_core.promotion.ports import Busy, Record
from schemaless_core.servers.leaders import PREFIX, leader_of
from schemaless_core.servers.topologies import Topologies
from schemaless_core.servers.topology import Topology

#: The document that changes with each promotion that no operator asked for.
TURN = "failover"


class _Seen(NamedTuple):
    version: int
    record: Record
    leads: Lead | None
    #: Whether the server that leads needs a lease, and when that was decided.
    is_leased: bool = False
    decided_at: datetime | None = None


class ControlRecord:
    """The record of one cluster."""

    def __init__(self, control: ControlDatabase, cluster: str, identity_of: Callable[[str], int]) -> None:
        self._control = control
        self._cluster = cluster
        self._name = PREFIX + cluster
        self._identity_of = identity_of
        self._documents = Documents(control)
        self._topologies = Topologies(control)
        self._audit = AuditLog(control)

    def find(self) -> Record:
        return self._seen().record

    def decided_at(self) -> datetime | None:
        """When a server was decided on last, by the clock of who did."""
        return self._seen().decided_at

    def epochs(self) -> list[EpochRun]:
        """Those that the shards of the cluster have by the topology."""
        topology = self._topology()
        return [EpochRun(at.first, at.last, at.epoch) for at in topology.placements if at.cluster == self._cluster]

    def begin_alone(self, before: Record, after: Record) -> bool | Busy:
        while True:
            turn = self._documents.find(TURN)  # before the others are looked at: with each that begins it changes
            version = 0 if turn is None else turn.version
            if other := self.other_alone():
                return other
            if self._change(before, after, turn=version):
                return True
            if self.find() != before:
                return False

    def other_alone(self) -> Busy | None:
        """Another cluster whose promotion no operator asked for, and that is not done."""
        for each in self._documents.all(PREFIX):
            record = _record(each.body)
            if each.name != self._name and record.outlasts and not record.is_done:
                return Busy(each.name.removeprefix(PREFIX))
        return None

    def change(self, before: Record, after: Record) -> bool:
        return self._change(before, after)

    def _change(self, before: Record, after: Record, *, turn: int | None = None) -> bool:
        seen = self._seen()
        if seen.record != before:
            return False
        is_decision = bool(after.target) and after.target != before.target
        leads = Lead(after.number, self._identity_of(after.target)) if is_decision else seen.leads
        if is_decision:
            seen = seen._replace(leads=leads, is_leased=after.is_leased, decided_at=datetime.now(UTC))
        body = _body(after, seen)
        topology = self._topology() if is_decision else None

        def work(connection: sa.Connection) -> bool:
            if turn is not None and not put_within(connection, TURN, {"cluster": self._cluster}, turn):
                return False
            if not put_within(connection, self._name, body, seen.version):
                return False
            if topology is not None:
                why = f"promotion {after.number} of {self._cluster}"
                self._topologies.put_within(connection, _next(topology, self._cluster), why=why)
            self._audit.add_within(connection, "shards.promote", {"cluster": self._cluster, **_said(after)})
            return True

        try:
            return make_change(self._control, work)
        except sa.exc.IntegrityError:
            return False

    def _seen(self) -> _Seen:
        found = self._documents.find(self._name)
        return (
            _Seen(0, Record(), None)
            if found is None
            else _Seen(found.version, _record(found.body), *leader_of(found.body), _moment(found.body))
        )

    def _topology(self) -> Topology:
        topology = self._topologies.find_newest()
        if topology is None:
            hint = "Run `tripstore schema apply`."
            raise PromotionRefused("The control database does not know where shards are.", hint=hint)
        return topology


def _next(topology: Topology, cluster: str) -> Topology:
    """The same places, at the next epochs of the shards of this cluster."""
    placements = tuple(at._replace(epoch=at.epoch + 1) if at.cluster == cluster else at for at in topology.placements)
    return Topology(topology.version + 1, topology.shards, placements)


def _moment(body: dict[str, Json]) -> datetime | None:
    at = body.get("decided_at")
    return datetime.fromisoformat(at) if isinstance(at, str) else None


def _body(record: Record, seen: _Seen) -> dict[str, Json]:
    leads, at = seen.leads, seen.decided_at
    return {
        "number": record.number,
        "before": record.before,
        "given_up": list(record.given_up),
        "target": record.target,
        "is_done": record.is_done,
        "outlasts": record.outlasts,
        "is_leased": record.is_leased,
        "was_leased": record.was_leased,
        "leads": None if leads is None else list(leads),
        "leads_leased": seen.is_leased,
        "decided_at": None if at is None else at.isoformat(),
    }


def _record(body: dict[str, Json]) -> Record:
    match body:
        case {
            "number": int(number),
            "before": str(before),
            "given_up": list(lost),
            "target": str(target),
            "is_done": bool(done),
        }:
            given_up = tuple(str(server) for server in lost)
            outlasts, *leased = (body.get(each) is True for each in ("outlasts", "is_leased", "was_leased"))
            return Record(number, before, given_up, target, done, outlasts, *leased)
    raise PromotionRefused(
        "The record of this cluster's promotions cannot be read.", hint="Restore the control database."
    )


def _said(record: Record) -> dict[str, object]:
    state = "done" if record.is_done else "decided" if record.target else "begun"
    said = {"number": record.number, "state": state, "to": record.target, "given_up": list(record.given_up)}
    return said | ({"leases": True} if record.is_leased else {}) | ({"outlasts": True} if record.outlasts else {})
