"""`RestoreRunner`: claims shards of a restore, and has each copied to its end; the last part opens all of them.

Any number of them serve a job, in as many processes. Nothing is open before everything is there.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator
from contextlib import closing
from typing import Literal
from uuid import UUID

from schemaless_core import metrics
from schemaless_core.backups.decision import RestoreDecision
from schemaless_core.backups.folders import BackupFolder
from schemaless_core.backups.manifest import Manifest, ShardBackup
from schemaless_core.backups.patient import LEASE_SECONDS, PatientWorker
from schemaless_core.backups.restoring import ShardRestoring, WrittenPart, cells_in, next_epoch
from schemaless_core.backups.runner import END
from schemaless_core.cell.canonical import Json
from schemaless_core.cell.sharding import shard_of_bytes
from schemaless_core.cell.stored import StoredCell
from schemaless_core.control.jobs.held_part import HeldPart
from schemaless_core.control.jobs.jobs import Jobs
from schemaless_core.control.jobs.records import Finding, Job, Part
from schemaless_core.engine.primacy import Opening
from schemaless_core.errors import SchemalessError, Unavailable
from schemaless_core.failpoints import reach
from schemaless_core.promotion.ports import AuthorityPort, HandingOver
from schemaless_core.servers.topology import Topology, at_places

logger = logging.getLogger(__name__)

KIND = "restore"
#: Between two saves.
SAVE_SECONDS = 1.0
#: A cell that waited, and met a later one under its key.
CONFLICT = "conflict"


class RestoreRunner(PatientWorker):
    """One worker of one job."""

    def __init__(
        self,
        jobs: Jobs,
        job: Job,
        worker: str,
        manifest: Manifest,
        folder: BackupFolder,
        restoring: ShardRestoring,
        topology: Topology,
        decision: RestoreDecision,
        authority: AuthorityPort,
        create_indexes: Callable[[], object],
    ) -> None:
        super().__init__(jobs, job.id, worker, LEASE_SECONDS)
        self._manifest = manifest
        self._folder = folder
        self._restoring = restoring
        self._topology = topology
        self._places = {shard: at.cluster for shard, at in topology}
        self._decision = decision
        self._authority = authority
        self._create_indexes = create_indexes

    def _serve(self, held: HeldPart) -> None:
        self._decision.check()
        if held.part.bounds == END:
            self._finish(held)
            return
        shard = self._manifest.shards[int(str(held.part.bounds))]
        cluster = self._places[shard.shard]
        is_begun = held.part.checkpoint is not None
        with held.kept_alive():
            self._tried(lambda: self._restoring.prepare(shard, cluster, is_begun=is_begun))
        reach("restore.prepared")
        # Now the part is still this worker's, and no other job has the copies: only then cells are written.
        reached = _reached(held.part.checkpoint)
        held.save({"head": reached}, {}, is_done=False)
        with closing(_Writing(self._restoring, shard, cluster)) as writing:
            while self._may_go_on(held):
                with held.kept_alive():
                    head = self._tried(writing.go_on)
                    if writing.is_end:
                        self._tried(lambda: self._restoring.arrive(shard, cluster))
                held.save({"head": head}, {"rows": head - reached}, is_done=writing.is_end)
                reached = head
                reach("restore.saved")
                self._tell(writing.ids_per_second)

    def _finish(self, held: HeldPart) -> None:
        with held.kept_alive():
            reach("restore.before_decision")
            self._tried(lambda: self._decision.decide(self._topology))
            reach("restore.topology_written")
            opening = self._tried(self._opening)
            for shard in self._manifest.shards:
                self._tried(self._decision.check)
                self._tried(lambda shard=shard: self._restoring.open(shard, self._places[shard.shard], opening))  # type: ignore[misc]  # bound at once
                reach("restore.shard_opened")
            waiting, findings = self._tried(self._keep_waiting)
            self._tried(self._create_indexes)
        counts = {"opened": len(self._manifest.shards), "waiting": waiting}
        held.save({"opened": True}, counts, findings, is_done=True)
        extra = {"event": "restore.ended", "backup": self._manifest.backup, "job": self._job}
        logger.info("a datastore is restored", extra=extra)

    def _opening(self) -> Opening | None:
        """Asked while all shards are fenced: a hand-over that begins now does not end before they are open."""
        opening: Opening | Literal[HandingOver.HANDING_OVER] | None = self._authority.opening()
        if isinstance(opening, HandingOver):
            raise Unavailable("A hand-over between the backends goes on.", hint="Wait for it, then go on.")
        return opening

    def _keep_waiting(self) -> tuple[int, list[Finding]]:
        """Cells that waited wait again: what carries them finds whether the log has them by now."""
        count, findings = 0, list[Finding]()
        conflicts: dict[int, list[StoredCell]] = {}
        if self._manifest.conflicts is not None:
            for cell in cells_in(self._folder, self._manifest.conflicts):
                conflicts.setdefault(shard_of_bytes(cell.row_key, len(self._manifest.shards)), []).append(cell)
        for shard in self._manifest.shards:
            cells = self._restoring.wanted(shard, self._restoring.waiting(shard) + conflicts.get(shard.shard, []))
            if cells:
                others = self._restoring.keep(shard, self._places[shard.shard], cells)
                count += len(cells) - len(others)
                files = [each.name for each in (shard.buffered, self._manifest.conflicts) if each is not None]
                findings += [_conflict(cell, files) for cell in others]
        return count, findings

    def _waits(self, error: SchemalessError) -> None:
        extra = {"event": "restore.waits", "job": self._job, "reason": error.message}
        logger.warning("a step of a restore is tried again in a moment", extra=extra)

    def _lost(self, part: Part) -> None:
        extra = {"event": "restore.part_lost", "job": self._job, "part": part.number}
        logger.warning("another worker has the part by now", extra=extra)


class _Writing:
    """A shard's pages, in portions of a moment. After an error it begins anew where the copy is."""

    def __init__(self, restoring: ShardRestoring, shard: ShardBackup, cluster: str) -> None:
        self._restoring, self._shard, self._cluster = restoring, shard, cluster
        self._written: Generator[WrittenPart] | None = None
        self._head = 0
        self.is_end = False
        self.ids_per_second = 0.0

    def go_on(self) -> int:
        """Copy for a moment; return where the copy ends then."""
        try:
            if self._written is None:
                seen = self._restoring.look(self._shard, self._cluster)
                self._head, self._written = seen.head, self._restoring.write(self._shard, self._cluster, seen)
            self._go_on(self._written)
        except SchemalessError:
            self._written = None
            raise
        return self._head

    def _go_on(self, parts: Generator[WrittenPart]) -> None:
        begun, first = time.monotonic(), self._head
        for written in parts:
            self._head = written.head
            metrics.cells_copied(written.cells)
            seconds = time.monotonic() - begun
            self.ids_per_second = (self._head - first) / max(seconds, 1e-6)
            if seconds > SAVE_SECONDS:
                return
        self.is_end = True

    def close(self) -> None:
        if self._written is not None:
            self._written.close()


def _reached(checkpoint: Json) -> int:
    """The added id up to which the worker before has counted."""
    match checkpoint:
        case {"head": int(head)}:
            return head
    return 0


def _conflict(cell: StoredCell, files: list[str]) -> Finding:
    """`files`: of the backup, that may have it."""
    name = cell.column_name.decode("utf-8", "backslashreplace")
    reason = (
        f"a cell that was put since the restore waits under this key; the body of this one is in {' or '.join(files)}"
    )
    return Finding(CONFLICT, UUID(bytes=cell.row_key), name, cell.ref_key, {"reason": reason})


def topology_of(manifest: Manifest, spread: Topology, opens_at: int) -> Topology:
    """Shards where a new datastore would have them, at the epochs at which they are restored."""
    return at_places(1, {shard: (at.cluster, next_epoch(manifest.shards[shard], opens_at)) for shard, at in spread})
