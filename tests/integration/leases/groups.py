"""A group of triggers in a control database, and how its workers lead and own."""

from __future__ import annotations

from collections.abc import Callable

from schemaless_core.control.database import ControlDatabase
from schemaless_core.triggers.leases.coordinator import (
    Change,
    Coordinator,
    Lease,
)
from tests.stores import Stores

GROUP = "bill_rider"


Opener = Callable[[], ControlDatabase]


def opener(engine: str, stores: Stores) -> Opener:
    """Opens the control database of a datastore that no other test uses, as often as it is asked."""
    return stores.control_opener(engine)


def a_group(coordinator: Coordinator, *owners: str | None, name: str = GROUP) -> None:
    """A group with a lease per owner, given by a leader of its own."""
    coordinator.register_group(name, "now", len(owners), allowed=100)
    give = [Change(name, shard, None, 0, None, owner) for shard, owner in enumerate(owners) if owner]
    coordinator.assign("leader", lead(coordinator), give)


def lead(coordinator: Coordinator, worker: str = "leader") -> int:
    """Make a worker the leader, whichever leads now."""
    seen = coordinator.lead(worker, None)
    if seen is not None and seen.owner == worker:
        return seen.term
    term = coordinator.take_lead(worker, seen)
    assert term is not None
    return term


def stored(coordinator: Coordinator, group: str = GROUP) -> list[Lease]:
    return [lease for lease in coordinator.survey().leases if lease.group == group]
