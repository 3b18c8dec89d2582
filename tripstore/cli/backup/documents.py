"""JSON documents of backups: those that a folder has, plans, jobs, and what a look at every file found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from schemaless_core.backups.backups import BackupPlan, RestorePlan
from schemaless_core.backups.kept import KeptBackup
from schemaless_core.backups.manifest import Manifest
from schemaless_core.backups.verifying import VerifiedBackup
from schemaless_core.control.jobs.records import StoredFinding
from tripstore.cli.exits import Exit
from tripstore.cli.jobs.documents import FindingDocument, ProgressDocument, finding_document


class BackupView(msgspec.Struct, frozen=True):
    """A backup. State: whole, damaged, or unfinished. `own_bytes`: of the files that were written for it."""

    backup: str
    state: str
    reason: str
    begun_at: datetime | None
    ended_at: datetime | None
    #: The backup that it builds upon, and all whose files it names.
    base: str
    needs: list[str]
    datastore: str
    shards: int
    cells: int
    bytes: int
    own_bytes: int
    authority_epoch: int


class BackupsDocument(msgspec.Struct, frozen=True):
    """The JSON document of `list`."""

    backups: list[BackupView]


class BackupPlanDocument(msgspec.Struct, frozen=True):
    """The JSON document of `create --dry-run`."""

    base: str
    shards: int
    cells: int
    #: Of them the backup before has so many.
    there: int


class PostgresDocument(msgspec.Struct, frozen=True):
    """What the operator's own backup of Postgres goes with: the authority row as it is."""

    #: Null: the row could not be read, and `trouble` says why.
    epoch: int | None
    backend: str
    holds: list[str]
    trouble: str = ""


class BackupDocument(msgspec.Struct, frozen=True):
    """The JSON document of `create`, and of its verbs on a job. `postgres`: null where there is none."""

    progress: ProgressDocument
    backup: str
    bytes: int
    postgres: PostgresDocument | None

    @property
    def exit(self) -> Exit:
        return Exit.FINE if self.progress.is_done else Exit.INTERRUPTED


class VerifyDocument(msgspec.Struct, frozen=True):
    """The JSON document of `verify`."""

    backup: str
    files: int
    cells: int
    bytes: int
    #: By file.
    damages: dict[str, str]


class RestorePlanDocument(msgspec.Struct, frozen=True):
    """The JSON document of `restore --dry-run`."""

    backup: str
    until: datetime | None
    cells: int
    #: Shards by cluster.
    places: dict[str, int]
    #: Indexes that had entries: the configured ones are built anew.
    indexes: list[str]
    refusals: list[str]


class RestoreDocument(msgspec.Struct, frozen=True):
    """The JSON document of `restore`, and of its verbs on a job."""

    progress: ProgressDocument
    #: Cells that wait in buffers again.
    waiting: int
    conflicts: list[FindingDocument]

    @property
    def exit(self) -> Exit:
        if not self.progress.is_done:
            return Exit.INTERRUPTED
        return Exit.FAILED if self.conflicts else Exit.FINE


def backups_document(found: Iterable[KeptBackup]) -> BackupsDocument:
    return BackupsDocument([_view(each) for each in found])


def _view(kept: KeptBackup) -> BackupView:
    made = kept.manifest
    if made is None:
        state = "damaged" if kept.damage else "unfinished"
        return BackupView(kept.name, state, kept.damage, None, None, "", [], "", 0, 0, 0, 0, 0)
    return BackupView(
        kept.name,
        "whole",
        "",
        made.begun_at,
        made.ended_at,
        made.base,
        needs(made),
        made.datastore,
        len(made.shards),
        made.cells,
        sum(each.bytes for each in made.files),
        sum(each.bytes for each in made.own_files),
        made.authority_epoch,
    )


def needs(made: Manifest) -> list[str]:
    """The backups whose files it names."""
    return sorted({each.name.partition("/")[0] for each in made.files} - {made.backup})


def plan_document(plan: BackupPlan) -> BackupPlanDocument:
    return BackupPlanDocument(plan.base, plan.shards, plan.cells, plan.there)


def restore_plan_document(plan: RestorePlan) -> RestorePlanDocument:
    made = plan.manifest
    return RestorePlanDocument(
        made.backup, plan.order.until, made.cells, dict(plan.places), list(made.indexes), list(plan.refusals)
    )


def restore_document(progress: ProgressDocument, findings: Sequence[StoredFinding]) -> RestoreDocument:
    return RestoreDocument(progress, progress.counts.get("waiting", 0), [finding_document(each) for each in findings])


def verify_document(made: Manifest, seen: VerifiedBackup) -> VerifyDocument:
    return VerifyDocument(made.backup, seen.files, seen.cells, seen.bytes, dict(seen.damages))
