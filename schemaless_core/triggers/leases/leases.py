"""`Leases`: what the workers of triggers agree on, kept in the control database. Implements `Coordinator`.

Locks are taken in one order: leader, workers, groups by name. A group's row is the lock of its leases.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import partial

import sqlalchemy as sa

from schemaless_core.control.audit import AuditLog
from schemaless_core.control.changes import make_change
from schemaless_core.control.database import ControlDatabase
from schemaless_core.control.tables import trigger_group as group_table
from schemaless_core.control.tables import trigger_leader as leader_table
from schemaless_core.control.tables import trigger_lease as lease_table
from schemaless_core.control.tables import trigger_worker as worker_table
from schemaless_core.errors import InvalidRequest
from schemaless_core.failpoints import reach
from schemaless_core.triggers.leases.changes import (
    CHANGE_GROUP,
    LEASES,
    change_leases,
    lock_groups,
    read_leases,
    release_leases,
    revoke_leases,
)
from schemaless_core.triggers.leases.coordinator import (
    Change,
    GroupRecord,
    GroupState,
    HeldLeases,
    LeaderRecord,
    LeadershipLost,
    Lease,
    Survey,
    WorkerRecord,
)

#: The leader's row.
SEAT = 1

GROUPS = sa.select(
    group_table.c.name,
    group_table.c.state,
    group_table.c.reason,
    group_table.c.start,
    group_table.c.parked_allowed,
    group_table.c.version,
    group_table.c.version.label("registered_ms"),
).order_by(group_table.c.name)

WORKERS = sa.select(
    worker_table.c.worker, worker_table.c.host, worker_table.c.pid, worker_table.c.group_names, worker_table.c.counter
).order_by(worker_table.c.worker)

LEADER = sa.select(leader_table.c.owner, leader_table.c.term, leader_table.c.counter).where(leader_table.c.seat == SEAT)


class Leases:
    """The groups, leases, workers and leader of one datastore."""

    def __init__(self, control: ControlDatabase) -> None:
        self._control = control
        self._audit = AuditLog(control)
        #: The leases of each group as the latest survey found them at a version.
        self._surveyed: dict[str, tuple[int, list[Lease]]] = {}

    def register_group(self, name: str, start: str, shards: int, *, allowed: int, fence: int = 0) -> GroupRecord:
        """Create a group and its leases unless it is known."""
        # In milliseconds: a group removed and registered again never shows a version that a worker knows.
        now_ms = time.time_ns() // 1_000_000
        group = GroupRecord(name, GroupState.RUNNING, "", start, allowed, now_ms, now_ms)

        def work(connection: sa.Connection) -> GroupRecord:
            if name in (known := _groups(connection, [name])):
                return known[name]
            row = {"name": name, "state": group.state.value, "reason": "", "start": start, "parked_allowed": allowed}
            connection.execute(sa.insert(group_table).values(row | {"version": group.version}))
            lease = {"group_name": name, "owner": None, "heir": None, "fence": fence}
            connection.execute(sa.insert(lease_table), [lease | {"shard": shard} for shard in range(shards)])
            self._audit.add_within(connection, "triggers.register", {"group": name, "start": start})
            return group

        try:
            return self.find_group(name) or make_change(self._control, work)
        except sa.exc.IntegrityError:  # another process registered it first
            return make_change(self._control, work)

    def find_group(self, name: str) -> GroupRecord | None:
        with self._control.begin() as connection:
            return _groups(connection, [name]).get(name)

    def groups(self) -> dict[str, GroupRecord]:
        with self._control.begin() as connection:
            return _groups(connection, None)

    def remove_group(self, name: str) -> None:
        def work(connection: sa.Connection) -> None:
            if lock_groups(connection, [name]):
                connection.execute(sa.delete(lease_table).where(lease_table.c.group_name == name))
                connection.execute(sa.delete(group_table).where(group_table.c.name == name))
                self._audit.add_within(connection, "triggers.remove", {"group": name})

        make_change(self._control, work)

    def beat(self, worker: str, groups: Collection[str], known: Mapping[str, int]) -> HeldLeases:
        names = json.dumps(sorted(groups))

        def work(connection: sa.Connection) -> HeldLeases:
            is_it = worker_table.c.worker == worker
            counted = sa.update(worker_table).where(is_it).values(counter=worker_table.c.counter + 1, group_names=names)
            if not connection.execute(counted).rowcount:
                row = {"worker": worker, "host": socket.gethostname()[:128], "pid": os.getpid()}
                connection.execute(sa.insert(worker_table).values(row | {"group_names": names, "counter": 1}))
            # Versions first: leases that change in between are told again at the next beat, never missed.
            records = _groups(connection, groups)
            news = [name for name, record in records.items() if known.get(name) != record.version]
            return HeldLeases(tuple(_held(connection, worker, news)), records)

        return make_change(self._control, work)

    def release(self, worker: str, leases: Collection[Lease]) -> None:
        by_group = defaultdict[str, list[Lease]](list)
        for lease in leases:
            by_group[lease.group].append(lease)
        for some in by_group.values():  # a transaction each: no other worker waits for thousands of leases
            make_change(self._control, partial(release_leases, worker=worker, leases=some))

    def revoke(self, group: str, fences: Mapping[int, int]) -> None:
        make_change(self._control, partial(revoke_leases, group=group, fences=fences))

    def leave(self, worker: str) -> None:
        def work(connection: sa.Connection) -> list[Lease]:
            resigned = {"owner": None, "counter": leader_table.c.counter + 1}
            connection.execute(sa.update(leader_table).where(leader_table.c.owner == worker).values(resigned))
            connection.execute(sa.delete(worker_table).where(worker_table.c.worker == worker))
            return read_leases(connection, LEASES.where(lease_table.c.owner == worker))

        # A worker that dies in between leaves leases whose owner is not listed any more: the leader gives them away.
        self.release(worker, make_change(self._control, work))

    def lead(self, worker: str, term: int | None) -> LeaderRecord | None:
        def work(connection: sa.Connection) -> LeaderRecord | None:
            is_mine = (leader_table.c.owner == worker) & (leader_table.c.term == term)
            connection.execute(sa.update(leader_table).where(is_mine).values(counter=leader_table.c.counter + 1))
            return _leader(connection)

        if term is not None:
            return make_change(self._control, work)
        with self._control.begin() as connection:
            return _leader(connection)

    def take_lead(self, worker: str, seen: LeaderRecord | None) -> int | None:
        def work(connection: sa.Connection) -> int | None:
            if seen is None:
                row = {"seat": SEAT, "owner": worker, "term": 1, "counter": 1}
                connection.execute(sa.insert(leader_table).values(row))
                return 1
            is_as_seen = (leader_table.c.term == seen.term) & (leader_table.c.counter == seen.counter)
            taken = {"owner": worker, "term": seen.term + 1, "counter": seen.counter + 1}
            is_taken = connection.execute(sa.update(leader_table).where(is_as_seen).values(taken)).rowcount
            return seen.term + 1 if is_taken else None

        try:
            return make_change(self._control, work)
        except sa.exc.IntegrityError:
            return None

    def survey(self) -> Survey:
        """Read workers and groups, and the leases of those groups alone that changed since the latest survey."""
        with self._control.begin() as connection:
            workers = tuple(_worker(*row) for row in connection.execute(WORKERS))
            groups = _groups(connection, None)
            self._surveyed = {name: self._leases_of(connection, group) for name, group in groups.items()}
        leases = (lease for _version, found in self._surveyed.values() for lease in found)
        return Survey(workers, tuple(leases), groups)

    def _leases_of(self, connection: sa.Connection, group: GroupRecord) -> tuple[int, list[Lease]]:
        known = self._surveyed.get(group.name)
        if known is not None and known[0] == group.version:
            return known
        return group.version, read_leases(connection, LEASES.where(lease_table.c.group_name == group.name))

    def assign(self, worker: str, term: int, changes: Sequence[Change], dead: Collection[WorkerRecord] = ()) -> int:
        def work(connection: sa.Connection) -> int:
            leader = _leader(connection, is_locked=True)
            if leader is None or (leader.owner, leader.term) != (worker, term):
                raise LeadershipLost(worker, term)
            reach("leases.lead_locked")
            risen = {record.worker for record in dead if not _forget(connection, record)}
            return change_leases(connection, [change for change in changes if change.owner not in risen])

        return make_change(self._control, work)

    def halt(self, group: str, reason: str) -> None:
        is_it = (group_table.c.name == group) & (group_table.c.state == GroupState.RUNNING.value)

        def work(connection: sa.Connection) -> None:
            halted = {"state": GroupState.HALTED.value, "reason": reason}
            if connection.execute(CHANGE_GROUP.where(is_it).values(halted)).rowcount:
                self._audit.add_within(connection, "triggers.halt", {"group": group, "reason": reason})

        make_change(self._control, work)

    def resume(self, group: str, allowed: int) -> None:
        def work(connection: sa.Connection) -> bool:
            running = {"state": GroupState.RUNNING.value, "reason": "", "parked_allowed": allowed}
            if not connection.execute(CHANGE_GROUP.where(group_table.c.name == group).values(running)).rowcount:
                return False
            self._audit.add_within(connection, "triggers.resume", {"group": group, "allowed": allowed})
            return True

        if not make_change(self._control, work):
            raise InvalidRequest(
                f"There is no trigger group {group!r}.", hint="`tripstore triggers status` lists them all."
            )


def _groups(connection: sa.Connection, names: Collection[str] | None) -> dict[str, GroupRecord]:
    """Those of these names that exist; all for None."""
    wanted = GROUPS if names is None else GROUPS.where(group_table.c.name.in_(names))
    rows = connection.execute(wanted)
    return {name: GroupRecord(name, GroupState(state), *others) for name, state, *others in rows}


def _held(connection: sa.Connection, worker: str, groups: Collection[str]) -> list[Lease]:
    if not groups:
        return []
    is_its = (lease_table.c.owner == worker) | (lease_table.c.heir == worker)
    return read_leases(connection, LEASES.where(lease_table.c.group_name.in_(groups), is_its))


def _worker(worker: str, host: str, pid: int, names: str, counter: int) -> WorkerRecord:
    return WorkerRecord(worker, host, pid, tuple(json.loads(names)), counter)


def _leader(connection: sa.Connection, *, is_locked: bool = False) -> LeaderRecord | None:
    found = connection.execute(LEADER.with_for_update() if is_locked else LEADER).first()
    return LeaderRecord(*found) if found else None


def _forget(connection: sa.Connection, dead: WorkerRecord) -> bool:
    """Remove a worker's row unless it has beaten since. Whether it has not."""
    is_silent = (worker_table.c.worker == dead.worker) & (worker_table.c.counter == dead.counter)
    if connection.execute(sa.delete(worker_table).where(is_silent)).rowcount:
        return True
    present = sa.select(worker_table.c.worker).where(worker_table.c.worker == dead.worker)
    return connection.execute(present).first() is None
