"""A coordinator in memory: the contract in its plainest form, and one that can be made to fail."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from schemaless_core import ControlUnavailable, InvalidRequest
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


class MemoryCoordinator:
    """Workers of one process; `is_down` makes every call fail, `is_lossy` those that change something, afterwards."""

    def __init__(self) -> None:
        self.is_down = False
        self.is_lossy = False
        self.leader: LeaderRecord | None = None
        self._groups: dict[str, GroupRecord] = {}
        self._leases: dict[tuple[str, int], Lease] = {}
        self._workers: dict[str, WorkerRecord] = {}
        self._registered = 0

    def register_group(self, name: str, start: str, shards: int, *, allowed: int, fence: int = 0) -> GroupRecord:
        self._fail_if_down()
        if name not in self._groups:
            self._registered += 1
            version = self._registered * 1_000_000
            self._groups[name] = GroupRecord(name, GroupState.RUNNING, "", start, allowed, version, version)
            self._leases.update({(name, shard): Lease(name, shard, None, None, 0) for shard in range(shards)})
        return self._groups[name]

    def find_group(self, name: str) -> GroupRecord | None:
        self._fail_if_down()
        return self._groups.get(name)

    def groups(self) -> dict[str, GroupRecord]:
        self._fail_if_down()
        return dict(self._groups)

    def remove_group(self, name: str) -> None:
        self._fail_if_down()
        self._groups.pop(name, None)
        self._leases = {key: lease for key, lease in self._leases.items() if key[0] != name}

    def beat(self, worker: str, groups: Collection[str], known: Mapping[str, int]) -> HeldLeases:
        self._fail_if_down()
        before = self._workers.get(worker)
        counter = before.counter + 1 if before else 1
        self._workers[worker] = WorkerRecord(worker, "here", 1, tuple(sorted(groups)), counter)
        records = {name: self._groups[name] for name in groups if name in self._groups}
        news = {name for name, record in records.items() if known.get(name) != record.version}
        leases = (lease for lease in self._leases.values() if lease.group in news)
        return HeldLeases(tuple(lease for lease in leases if worker in (lease.owner, lease.heir)), records)

    def release(self, worker: str, leases: Collection[Lease]) -> None:
        self._fail_if_down()
        for lease in leases:
            now = self._leases.get((lease.group, lease.shard))
            if now is not None and (now.owner, now.fence) == (worker, lease.fence):
                self._put(now._replace(owner=now.heir, heir=None, fence=now.fence + 1))

    def revoke(self, group: str, fences: Mapping[int, int]) -> None:
        self._fail_if_down()
        for shard, fence in fences.items():
            now = self._leases.get((group, shard))
            if now is not None and now.fence < fence:
                self._put(now._replace(owner=None, heir=None, fence=fence + 1))

    def leave(self, worker: str) -> None:
        self._fail_if_down()
        if self.leader is not None and self.leader.owner == worker:
            self.leader = self.leader._replace(owner=None, counter=self.leader.counter + 1)
        self._workers.pop(worker, None)
        self.release(worker, list(self._leases.values()))

    def lead(self, worker: str, term: int | None) -> LeaderRecord | None:
        self._fail_if_down()
        if self.leader is not None and (self.leader.owner, self.leader.term) == (worker, term):
            self.leader = self.leader._replace(counter=self.leader.counter + 1)
        return self.leader

    def take_lead(self, worker: str, seen: LeaderRecord | None) -> int | None:
        self._fail_if_down()
        if self.leader != seen:
            return None
        term = seen.term + 1 if seen else 1
        self.leader = LeaderRecord(worker, term, seen.counter + 1 if seen else 1)
        if self.is_lossy:
            raise ControlUnavailable("The answer was lost.")
        return term

    def survey(self) -> Survey:
        self._fail_if_down()
        return Survey(tuple(self._workers.values()), tuple(self._leases.values()), dict(self._groups))

    def assign(self, worker: str, term: int, changes: Sequence[Change], dead: Collection[WorkerRecord] = ()) -> int:
        self._fail_if_down()
        if self.leader is None or (self.leader.owner, self.leader.term) != (worker, term):
            raise LeadershipLost(worker, term)
        risen = {record.worker for record in dead if self._workers.get(record.worker, record) != record}
        for record in dead:
            if record.worker not in risen:
                self._workers.pop(record.worker, None)
        return sum(self._apply(change) for change in changes if change.owner not in risen)

    def halt(self, group: str, reason: str) -> None:
        self._fail_if_down()
        if group in self._groups and self._groups[group].state is GroupState.RUNNING:
            self._groups[group] = self._groups[group]._replace(state=GroupState.HALTED, reason=reason)
            self._changed(group)

    def resume(self, group: str, allowed: int) -> None:
        self._fail_if_down()
        if group not in self._groups:
            raise InvalidRequest(f"There is no trigger group {group!r}.", hint="Look at its name.")
        running = self._groups[group]._replace(state=GroupState.RUNNING, reason="", parked_allowed=allowed)
        self._groups[group] = running
        self._changed(group)

    def lease(self, group: str, shard: int) -> Lease:
        """As it is, for a test to look at."""
        return self._leases[group, shard]

    def owners(self, group: str) -> dict[int, str | None]:
        return {lease.shard: lease.owner for lease in self._leases.values() if lease.group == group}

    def _apply(self, change: Change) -> bool:
        now = self._leases.get((change.group, change.shard))
        if now is None or (now.owner, now.fence) != (change.owner, change.fence):
            return False
        if change.new_owner is not None:
            self._put(now._replace(owner=change.new_owner, heir=None, fence=now.fence + 1))
        elif change.heir == now.heir:
            return False
        else:
            self._put(now._replace(heir=change.heir))
        return True

    def _put(self, lease: Lease) -> None:
        self._leases[lease.group, lease.shard] = lease
        self._changed(lease.group)

    def _changed(self, group: str) -> None:
        self._groups[group] = self._groups[group]._replace(version=self._groups[group].version + 1)

    def _fail_if_down(self) -> None:
        if self.is_down:
            raise ControlUnavailable("The control database is down.")
