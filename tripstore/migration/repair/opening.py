"""Repair as one process does it, made from its facade: which side is which, at the authority row of the moment."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

from schemaless_core.control.audit import AuditLog
from schemaless_core.control.jobs.jobs import Job, Jobs
from schemaless_core.indexes.verify import VerificationReport
from schemaless_core.mends import Mends
from tripstore.backends.postgres.handover.undelivered import Undelivered
from tripstore.facade.facade import Facade
from tripstore.handover.authority import Authority, Backend
from tripstore.migration.diff.diff import Diffing, order_of
from tripstore.migration.diff.rechecking import Rechecked
from tripstore.migration.mirror.mirror import Mirror
from tripstore.migration.mirror.parked import PARKED_MAX
from tripstore.migration.repair.ending import RepairEnding
from tripstore.migration.repair.forward import ForwardRepair
from tripstore.migration.repair.frozen import Frozen
from tripstore.migration.repair.holes import Holes
from tripstore.migration.repair.repair import Repairing
from tripstore.migration.repair.reverse import ReverseRepair
from tripstore.migration.repair.sides import Sides
from tripstore.migration.repair.targets import Target
from tripstore.phase import Phase

#: How long an index may take to catch up with the cells that were repaired.
INDEX_SECONDS = 15.0
#: How long changes are carried before findings are looked at again, and how many at once.
CARRY_SECONDS = 10.0
CHANGES_PER_CLAIM = 500
PAUSE_SECONDS = 0.05
LOOK_SECONDS = 5.0


class Repairs:
    """Needs a legacy store."""

    def __init__(self, facade: Facade) -> None:
        assert facade.duo is not None
        self._facade = facade
        self._duo = facade.duo
        self._store = facade.store
        self._mirror = Mirror(facade)
        self._holes = Holes()
        self.jobs = Jobs(facade.store.control)
        self.audit = AuditLog(facade.store.control)

    def authority(self) -> Authority:
        return self._duo.ports.control.authority()

    def repairing(self, wanted: Backend, *, job: str = "", may_mend_authority: bool = False) -> Repairing:
        """For a mirror of this authority."""

        def sides_at(row: Authority) -> Sides:
            legacy, store = self._duo.legacy, self._store
            if row.backend is Backend.LEGACY:
                return ForwardRepair(legacy, store, row.epoch, job, self._unpark, self._holes)
            mends_it = may_mend_authority
            return ReverseRepair(legacy, store, row.epoch, job, self._unpark, may_mend_authority=mends_it)

        return Repairing(self.authority, sides_at, wanted, job)

    def of_job(self, job: Job) -> Repairing:
        """As it was begun."""
        wanted = Backend(str(job.spec["authority"]))
        return self.repairing(wanted, job=job.id, may_mend_authority=bool(job.spec["mend_authority"]))

    def ending(self, job: Job) -> RepairEnding:
        """What is to be done after its cells."""
        return RepairEnding(job, self.rebuild_index, self.recheck)

    def recheck(self, diff: str) -> Rechecked:
        """Close the findings of a diff that are equal by now. What was lifted is carried first, if no relay does."""
        self.carry()
        job = self.jobs.find("diff", diff)
        return Diffing(self._facade).rechecking(order_of(job)).of_job(self.jobs, job)

    def carry(self) -> None:
        """Until all that is in the queue now has left it, or for so long."""
        undelivered = Undelivered(self._duo.legacy.database, LOOK_SECONDS)
        mark, carrier, until = undelivered.mark(), self._mirror.carrier(), time.monotonic() + CARRY_SECONDS
        while not undelivered.is_empty_up_to(mark) and self._is_carried() and time.monotonic() < until:
            if not carrier.carry(CHANGES_PER_CLAIM).delivered:
                time.sleep(PAUSE_SECONDS)

    def _is_carried(self) -> bool:
        """Whether anything is to be carried forward, parked changes excepted."""
        seen = self._mirror.status()
        return seen.direction == "forward" and seen.forward is not None and seen.forward.changes > 0

    def rebuild_index(self, name: str) -> VerificationReport | None:
        """Hold the entries of the version that answers against the cells, and make them right; None: it was dropped."""
        record = self._store.indexes.catalogue.find(name)
        if not record.versions:
            return None
        number = None if record.current is None else record.current.number
        return self._store.indexes.verify(name, number, repair=True, patience_seconds=INDEX_SECONDS)

    def by_shard(self, targets: Sequence[Target]) -> list[Target]:
        """In the order that costs least: what stands in one shard is read and written together."""
        return sorted(targets, key=lambda target: self._store.shard_of(target.row_key))

    def conflicts(self) -> list[Target]:
        """Cells of the mirror that something was parked because of: no diff of the latest cells finds them.

        Foreign ones stand in the way of changes, and the reverse mirror's rehearsal sets them aside.
        """
        if self.authority().backend is not Backend.LEGACY:
            return []
        forward, reverse = (self._mirror.parked(is_reverse=each).listed(PARKED_MAX) for each in (False, True))
        found = [each.key for each in forward if each.kind == "conflict"]
        return [Target(*key) for key in dict.fromkeys([*found, *(each.key for each in reverse)])]

    def returned(self) -> list[Target]:
        """Rows that stand below their tombstones: by key they are deleted in both stores, so no diff names them."""
        if self.authority().backend is not Backend.LEGACY:
            return []
        return [Target(key.row_key, key.column_name, None, key.child) for key in self._duo.legacy.returned_rows()]

    def frozen(self) -> Frozen:
        """Rows at the last version there is. Raises `AuthorityMoved` unless Postgres is the authority."""
        repairing, row = self.repairing(Backend.LEGACY, job="frozen"), self.authority()
        repairing.check()
        is_mirrored = self._mirror.status().phase is not Phase.OFF
        mirror = self._store.as_copier(row.epoch) if is_mirrored else None
        return Frozen(self._duo.legacy.as_owner(row.epoch), mirror, repairing, self.audit, self.carry)

    def holes(self) -> dict[int, list[int]]:
        """Added ids, by shard, at which nothing stands though readers wait for it."""
        mends = self._mends()
        found = {shard: mends.holes(shard) for shard in range(self._store.config.shards)}
        return {shard: ids for shard, ids in found.items() if ids}

    def close(self, holes: Mapping[int, Sequence[int]]) -> int:
        """Let readers pass them; how many there were left.

        Each shard has a line of the audit log, before its first hole is closed: one line has no room for all shards.
        """
        mends, closed = self._mends(), 0
        for shard, ids in holes.items():
            self.audit.add("repair.close_holes", {str(shard): list(ids)})
            closed += sum(mends.close_hole(shard, hole) for hole in ids)
        return closed

    def _mends(self) -> Mends:
        """As of the authority row: where Schemaless is a mirror as a copier, else as its owner."""
        row = self.authority()
        is_mirror = row.backend is Backend.LEGACY
        store = self._store.as_copier(row.epoch) if is_mirror else self._store.as_owner(row.epoch)
        return store.mends.of_job("holes")

    def _unpark(self, rows: Collection[UUID]) -> None:
        """Changes of these rows that were set aside are tried again: what was in their way may be gone."""
        for is_reverse in (False, True):
            self._mirror.parked(is_reverse=is_reverse).retry(lambda key: key.row_key in rows)
