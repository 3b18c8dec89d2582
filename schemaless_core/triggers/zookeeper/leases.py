"""`ZooKeeperLeases`: which worker serves which shard, which workers live and which one leads. Implements `Coordinator`.

Which groups there are, and whether they are halted, stays in the control database: a person decided it, and ZooKeeper
may lose what it has. A lease that it lost is made anew under a higher fence. How far a group is stands on the shards'
servers and is never asked here.

    <path>/<datastore>/leader             owner and term; its version counts the renewals
    <path>/<datastore>/workers/<worker>   host, pid and groups; its version counts the beats
    <path>/<datastore>/leases/<group>     a `LeaseBook`
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from urllib.parse import quote, unquote

import msgspec

from schemaless_core.errors import ControlUnavailable, CoordinatorUnavailable
from schemaless_core.failpoints import reach
from schemaless_core.triggers.leases.coordinator import (
    Change,
    GroupRecord,
    HeldLeases,
    LeaderRecord,
    LeadershipLost,
    Lease,
    Survey,
    WorkerRecord,
)
from schemaless_core.triggers.leases.leases import Leases
from schemaless_core.triggers.zookeeper.book import LeaseBook, now_milliseconds
from schemaless_core.triggers.zookeeper.ensemble import Ensemble, NodeWrite, Znode

logger = logging.getLogger(__name__)

LEADER, WORKERS, LEASES = "/leader", "/workers", "/leases"

#: How long one change is tried while others change the same: each of these got on.
CHANGE_SECONDS = 5.0


class _Seat(msgspec.Struct, frozen=True):
    """What stands under the leader's path."""

    owner: str | None
    term: int


class _Worker(msgspec.Struct, frozen=True):
    """What stands under a worker's path."""

    host: str
    pid: int
    groups: tuple[str, ...]


class ZooKeeperLeases:
    """The leases, workers and leader of one datastore in ZooKeeper, beside its groups in the control database."""

    def __init__(self, ensemble: Ensemble, groups: Leases, shards: int) -> None:
        """`groups`: knows the groups. Its leases are not used, but registered, so that it can be gone back to."""
        self._ensemble = ensemble
        self._groups = groups
        self._shards = shards
        #: As the control database said last: it may be down while leases move.
        self._known_groups: Mapping[str, GroupRecord] | None = None
        #: The book of each group as it was read last, by the mark of its node.
        self._read: dict[str, tuple[tuple[int, ...], LeaseBook]] = {}

    def register_group(self, name: str, start: str, shards: int, *, allowed: int, fence: int = 0) -> GroupRecord:
        attempts = self._attempts(f"the leases of {name}")
        while True:
            next(attempts)
            # Looked at first: a process that registers the group meanwhile, and workers that it is given to, change it.
            found = self._ensemble.find(_leases_of(name))
            if (known := self._groups.find_group(name)) is not None:
                return self._versioned(known)
            if self._begun(name, shards, fence, found):
                break
        reach("zookeeper.leases_begun")
        return self._versioned(self._groups.register_group(name, start, shards, allowed=allowed, fence=fence))

    def find_group(self, name: str) -> GroupRecord | None:
        found = self._groups.find_group(name)
        return None if found is None else self._versioned(found)

    def groups(self) -> dict[str, GroupRecord]:
        return {name: self._versioned(record) for name, record in self._groups.groups().items()}

    def remove_group(self, name: str) -> None:
        self._groups.remove_group(name)
        self._ensemble.remove(_leases_of(name))

    def beat(self, worker: str, groups: Collection[str], known: Mapping[str, int]) -> HeldLeases:
        self._show(worker, groups)
        found = self._records()
        records = {name: self._versioned(found[name]) for name in groups if name in found}
        news = [name for name, record in records.items() if known.get(name) != record.version]
        return HeldLeases(tuple(lease for name in news for lease in self._book(name).held_by(worker)), records)

    def release(self, worker: str, leases: Collection[Lease]) -> None:
        by_group = defaultdict[str, list[Lease]](list)
        for lease in leases:
            by_group[lease.group].append(lease)
        for group, some in by_group.items():
            self._release(group, worker, some)

    def revoke(self, group: str, fences: Mapping[int, int]) -> None:
        self._change(group, lambda book: book.revoke(fences))

    def leave(self, worker: str) -> None:
        self._resign(worker)
        self._ensemble.remove(_worker_of(worker))
        # A worker that dies in between leaves leases whose owner is not listed any more: the leader gives them away.
        for name in self._ensemble.names(LEASES):
            group = unquote(name)
            self._change(group, lambda book: book.release(worker, book.held_by(worker)))

    def lead(self, worker: str, term: int | None) -> LeaderRecord | None:
        attempts = self._attempts("the leadership")
        while True:
            next(attempts)
            found = self._ensemble.find(LEADER)
            record = None if found is None else self._leader(found)
            if found is None or record is None or term is None or (record.owner, record.term) != (worker, term):
                return record
            version = self._ensemble.put(LEADER, found.data, found.version)
            if version is not None:
                return record._replace(counter=version + 1)

    def take_lead(self, worker: str, seen: LeaderRecord | None) -> int | None:
        if seen is None:
            return 1 if self._ensemble.create(LEADER, _encoded(_Seat(worker, 1))) else None
        seat = _Seat(worker, seen.term + 1)
        found = self._ensemble.find(LEADER)
        if found is None or self._leader(found) != seen:
            return None
        return None if self._ensemble.put(LEADER, _encoded(seat), found.version) is None else seat.term

    def survey(self) -> Survey:
        found = self._records()
        groups = {name: self._versioned(record) for name, record in found.items()}
        # Another thread may look at a group meanwhile that it has not looked at before.
        self._read = {name: read for name, read in self._read.copy().items() if name in groups}
        leases = tuple(lease for name in groups for lease in self._book(name))
        return Survey(tuple(self._workers()), leases, groups)

    def assign(self, worker: str, term: int, changes: Sequence[Change], dead: Collection[WorkerRecord] = ()) -> int:
        """All by one transaction, which holds only while the leader's node is as it was read."""
        attempts = self._attempts("the leases")
        while True:
            next(attempts)
            seat = self._ensemble.find(LEADER)
            leader = None if seat is None else self._leader(seat)
            if seat is None or leader is None or (leader.owner, leader.term) != (worker, term):
                raise LeadershipLost(worker, term)
            reach("leases.lead_locked")
            buried, risen = self._judged(dead)
            changed, writes = self._changed([change for change in changes if change.owner not in risen])
            if self._ensemble.write_together(LEADER, seat.version, [*buried, *writes]):
                return changed

    def halt(self, group: str, reason: str) -> None:
        self._groups.halt(group, reason)

    def resume(self, group: str, allowed: int) -> None:
        self._groups.resume(group, allowed)

    # Groups, as the control database has them, at versions that grow with their leases, too.

    def _records(self) -> Mapping[str, GroupRecord]:
        """All groups; while the control database is down, as it said last."""
        try:
            self._known_groups = self._groups.groups()
        except ControlUnavailable:
            if self._known_groups is None:
                raise
        return self._known_groups

    def _versioned(self, record: GroupRecord) -> GroupRecord:
        return record._replace(version=record.version + self._book(record.name).version)

    # Books of leases.

    def _book(self, group: str) -> LeaseBook:
        """Return the book of a group that exists, read anew only where its node is another than before."""
        read, mark = self._read.get(group), self._ensemble.find_mark(_leases_of(group))
        if read is None or read[0] != mark:
            found = self._ensemble.find(_leases_of(group)) or self._made_anew(group)
            read = self._read[group] = found.mark, self._decoded(group, found)
        return read[1]

    def _begun(self, group: str, shards: int, fence: int, found: Znode | None) -> bool:
        """Make the leases of a group that is to be registered; those that are left over of one that was removed rise.

        False: they are not as they were found.
        """
        path = _leases_of(group)
        if found is None:
            return self._ensemble.create(path, LeaseBook.new(group, shards, fence).encode())
        book = self._decoded(group, found)
        return not book.rise(fence) or self._ensemble.put(path, book.encode(), found.version) is not None

    def _decoded(self, group: str, found: Znode) -> LeaseBook:
        with self._readable(_leases_of(group)):
            return LeaseBook.decode(group, found.data)

    def _made_anew(self, group: str) -> Znode:
        """A group whose leases are not here: ZooKeeper lost its data, is a new one, or a registration was killed.

        By the clock: so their fences are above all that a shard's server has seen of leases that are lost.
        """
        path = _leases_of(group)
        if self._ensemble.create(path, LeaseBook.new(group, self._shards, now_milliseconds()).encode()):
            extra = {"event": "coordinator.leases_made", "group": group, "coordinator": self._ensemble.name}
            logger.warning("ZooKeeper had no leases of a group, and has new ones", extra=extra)
        found = self._ensemble.find(path)
        if found is None:
            raise CoordinatorUnavailable(self._ensemble.name, f"the leases of {group} were removed meanwhile")
        return found

    def _change(self, group: str, step: Callable[[LeaseBook], int]) -> None:
        """Change a book that is there: read, change, write if it is still as it was read."""
        attempts = self._attempts(f"the leases of {group}")
        while True:
            next(attempts)
            found = self._ensemble.find(_leases_of(group))
            if found is None:
                return
            book = self._decoded(group, found)
            if not step(book) or self._ensemble.put(_leases_of(group), book.encode(), found.version) is not None:
                return

    def _release(self, group: str, worker: str, leases: Collection[Lease]) -> None:
        self._change(group, lambda book: book.release(worker, leases))

    def _changed(self, changes: Sequence[Change]) -> tuple[int, list[NodeWrite]]:
        """How many leases these changes make different, and how the books are written then."""
        by_group = defaultdict[str, list[Change]](list)
        for change in changes:
            by_group[change.group].append(change)
        count, writes = 0, []
        for group, some in by_group.items():
            found = self._ensemble.find(_leases_of(group))
            if found is None:
                continue
            book = self._decoded(group, found)
            if different := book.change(some):
                count += different
                writes.append(NodeWrite(_leases_of(group), found.version, book.encode()))
        return count, writes

    # Workers and the leader.

    def _show(self, worker: str, groups: Collection[str]) -> None:
        data = _encoded(_Worker(socket.gethostname()[:128], os.getpid(), tuple(sorted(groups))))
        path = _worker_of(worker)
        if self._ensemble.put(path, data) is None:
            self._ensemble.create(path, data)

    def _workers(self) -> Iterator[WorkerRecord]:
        for name in self._ensemble.names(WORKERS):
            found = self._ensemble.find(f"{WORKERS}/{name}")
            if found is not None:
                with self._readable(f"{WORKERS}/{name}"):
                    shown = msgspec.json.decode(found.data, type=_Worker)
                yield WorkerRecord(unquote(name), shown.host, shown.pid, shown.groups, found.version + 1)

    def _judged(self, dead: Collection[WorkerRecord]) -> tuple[list[NodeWrite], set[str]]:
        """How the nodes of workers are removed that were silent since; and those that have beaten."""
        buried, risen = [], set()
        for record in dead:
            found = self._ensemble.find(_worker_of(record.worker))
            if found is not None and found.version + 1 != record.counter:
                risen.add(record.worker)
            elif found is not None:
                buried.append(NodeWrite(_worker_of(record.worker), found.version, None))
        return buried, risen

    def _resign(self, worker: str) -> None:
        attempts = self._attempts("the leadership")
        while True:
            next(attempts)
            found = self._ensemble.find(LEADER)
            record = None if found is None else self._leader(found)
            if found is None or record is None or record.owner != worker:
                return
            if self._ensemble.put(LEADER, _encoded(_Seat(None, record.term)), found.version) is not None:
                return

    def _leader(self, found: Znode) -> LeaderRecord:
        with self._readable(LEADER):
            seat = msgspec.json.decode(found.data, type=_Seat)
        return LeaderRecord(seat.owner, seat.term, found.version + 1)

    @contextmanager
    def _readable(self, path: str) -> Iterator[None]:
        """What another program wrote there must end no worker: each goes on with what it holds."""
        try:
            yield
        except (msgspec.DecodeError, ValueError, IndexError) as error:
            reason = f"what stands under {self._ensemble.root}{path} is not ours"
            hint = "Remove that node, with zkCli.sh: it is made anew. Workers deliver what they hold meanwhile."
            raise CoordinatorUnavailable(self._ensemble.name, reason, hint=hint) from error

    def _attempts(self, what: str) -> Iterator[None]:
        """Attempts at a change, until too many failed: at each, another process has changed the same, and so got on."""
        give_up_at = time.monotonic() + CHANGE_SECONDS
        while time.monotonic() < give_up_at:
            yield
        raise CoordinatorUnavailable(self._ensemble.name, f"others kept changing {what} for {CHANGE_SECONDS:g} s")


def _encoded(document: msgspec.Struct) -> bytes:
    return msgspec.json.encode(document)


def _worker_of(worker: str) -> str:
    return f"{WORKERS}/{quote(worker, safe='')}"


def _leases_of(group: str) -> str:
    return f"{LEASES}/{quote(group, safe='')}"
