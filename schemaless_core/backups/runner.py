"""`BackupRunner`: claims shards of a backup, and has each read to its end; the last part writes the manifest.

Any number of them serve a job, in as many processes. A file has the number of its worker's claim in its name, and of
the write. It is named by what that worker saves: one that was stopped, and has lost its part, changes nothing of a
backup, and so does a write whose answer did not come.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import msgspec

from schemaless_core.backups.creating import ShardRead, ShardReading
from schemaless_core.backups.files import StoredFile
from schemaless_core.backups.folders import BackupFolder
from schemaless_core.backups.kept import lacking
from schemaless_core.backups.manifest import FORMAT, Manifest, ShardBackup, find_manifest, write_manifest
from schemaless_core.backups.patient import LEASE_SECONDS, PatientWorker
from schemaless_core.backups.source import BackupSource
from schemaless_core.cell.canonical import Json
from schemaless_core.control.jobs.held_part import HeldPart
from schemaless_core.control.jobs.jobs import Jobs
from schemaless_core.control.jobs.records import Job, Part
from schemaless_core.errors import BackupRefused, SchemalessError
from schemaless_core.failpoints import reach
from schemaless_core.logcopy.throttle import CopyThrottle
from schemaless_core.version import VERSION

logger = logging.getLogger(__name__)

KIND = "backup"
#: Instead of a shard: the part that comes last.
END: Json = "end"


class _Ending(msgspec.Struct, frozen=True):
    """What the last part has found: any worker writes the same bytes as the manifest of it."""

    ended_at: datetime
    conflicts: StoredFile | None
    indexes: tuple[str, ...]


class BackupRunner(PatientWorker):
    """One worker of one job."""

    def __init__(
        self,
        jobs: Jobs,
        job: Job,
        worker: str,
        source: BackupSource,
        folder: BackupFolder,
        indexes: Callable[[], Sequence[str]],
    ) -> None:
        super().__init__(jobs, job.id, worker, LEASE_SECONDS)
        self._spec = job
        self._source = source
        self._folder = folder
        self._indexes = indexes
        rate = job.spec["cells_per_second"]
        throttle = CopyThrottle(lambda: None, None if rate is None else float(str(rate)))
        self._backup = name_of(job)
        self._reading = ShardReading(source, folder, self._backup, throttle)
        self._base: dict[int, ShardBackup] | None = None

    def _serve(self, held: HeldPart) -> None:
        if held.part.bounds == END:
            self._end(held)
            return
        found = _shard_of(held.part.checkpoint)
        while self._may_go_on(held):
            begun = time.monotonic()
            attempt = held.part.fence
            with held.kept_alive():
                read = self._tried(lambda found=found, attempt=attempt: self._step(held, found, attempt))  # type: ignore[misc]  # bound at once
            found = read.shard
            held.save(_document(found), {"rows": read.cells, "bytes": read.bytes}, is_done=read.is_end)
            reach("backup.saved")
            self._tell(read.cells / max(time.monotonic() - begun, 1e-6))

    def _step(self, held: HeldPart, found: ShardBackup | None, attempt: int) -> ShardRead:
        if found is None:
            shard = int(str(held.part.bounds))
            return self._reading.begin(shard, self._earlier().get(shard), attempt)
        return self._reading.go_on(found, attempt) or self._reading.begin(found.shard, found, attempt)

    def _earlier(self) -> dict[int, ShardBackup]:
        """What the backup before has of each shard; nothing for a full one."""
        if self._base is None:
            base = str(self._spec.spec["base"])
            manifest = find_manifest(self._folder, base) if base else None
            if base and manifest is None:
                hint = "Begin a full one: `tripstore backup create --full`."
                raise BackupRefused(f"Backup {base}, upon which this one builds, has no manifest any more.", hint=hint)
            self._base = {} if manifest is None else {each.shard: each for each in manifest.shards}
        return self._base

    def _end(self, held: HeldPart) -> None:
        """Cells in the ledger of conflicts left their buffers before: they are looked at last."""
        if held.part.checkpoint is None:
            attempt = held.part.fence
            with held.kept_alive():
                kept, count = self._tried(lambda: self._reading.conflicts(attempt))
                ending = _Ending(self._jobs.now(), kept, tuple(self._indexes()))
            held.save(_document(ending), {"conflicts": count}, is_done=False)
        if not self._may_go_on(held):
            return
        ending = msgspec.convert(held.part.checkpoint, _Ending)
        with held.kept_alive():
            manifest = self._manifest(ending)
            if files := self._tried(lambda: lacking(self._folder, manifest)):
                raise self._lacks(files[0])
            reach("backup.before_manifest")
            self._tried(lambda: write_manifest(self._folder, manifest))
            reach("backup.manifest_written")
        held.save(held.part.checkpoint, {}, is_done=True)
        extra = {"event": "backup.ended", "backup": manifest.backup, "cells": manifest.cells}
        logger.info("a backup is whole", extra=extra)

    def _lacks(self, file: str) -> BackupRefused:
        if file.startswith(f"{self._backup}/"):
            why = "which another worker has written"
            hint = "All workers must see one folder: mount it on each host, or use a URL."
        else:
            why = "upon which this backup builds"
            hint = "Bring it back and go on with --resume. Or give this one up, and begin a full one: `--full`."
        return BackupRefused(f"{self._folder.place} lacks {file}, {why}.", hint=hint)

    def _manifest(self, ending: _Ending) -> Manifest:
        checkpoints = self._jobs.checkpoints(self._job)
        shards = [shard for _part, each in sorted(checkpoints.items()) if (shard := _shard_of(each)) is not None]
        spec = self._spec.spec
        return Manifest(
            FORMAT,
            self._backup,
            str(spec["base"]),
            str(spec["datastore"]),
            VERSION,
            self._spec.begun_at,
            ending.ended_at,
            tuple(shards),
            ending.conflicts,
            ending.indexes,
        )

    def _waits(self, error: SchemalessError) -> None:
        extra = {"event": "backup.waits", "job": self._job, "reason": error.message}
        logger.warning("a step of a backup is tried again in a moment", extra=extra)

    def _lost(self, part: Part) -> None:
        extra = {"event": "backup.part_lost", "job": self._job, "part": part.number}
        logger.warning("another worker has the part by now", extra=extra)


def name_of(job: Job) -> str:
    """What a backup is called: names are in the order of time, whatever becomes of a manifest."""
    at = job.begun_at.astimezone(UTC)
    return f"{KIND}-{at:%Y%m%dT%H%M%S}{at.microsecond // 1000:03d}-{job.id.removeprefix(f'{KIND}-')}"


def _document(made: msgspec.Struct) -> Json:
    """As a checkpoint is kept: nothing but JSON."""
    document: Json = msgspec.json.decode(msgspec.json.encode(made))
    return document


def _shard_of(checkpoint: Json) -> ShardBackup | None:
    if isinstance(checkpoint, dict) and "shard" in checkpoint:
        return msgspec.convert(checkpoint, ShardBackup)
    return None
