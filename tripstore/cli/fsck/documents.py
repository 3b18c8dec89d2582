"""The JSON documents of `tripstore fsck`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from schemaless_core.control.jobs.jobs import JobState
from schemaless_core.control.jobs.records import StoredFinding
from schemaless_core.fsck.faults import NOT_COMPARED, commands_of
from schemaless_core.fsck.fsck import FsckPlan
from schemaless_core.fsck.runner import LEFT_OUT
from tripstore.cli.exits import Exit
from tripstore.cli.jobs.documents import ProgressDocument

#: Findings that are listed.
LISTED_MAX = 1_000


class FaultDocument(msgspec.Struct, frozen=True):
    """A finding: what is wrong, which invariant that breaks, how to see it, how to mend it. "": there is no command."""

    id: int
    kind: str
    invariant: str
    reason: str
    row_key: UUID | None
    column: str | None
    ref_key: int | None
    shard: int | None
    at: datetime
    shows: str
    mends: str


class FsckDocument(msgspec.Struct, frozen=True):
    """An fsck: the JSON document of a run, of `--resume` and of `--show`."""

    progress: ProgressDocument
    is_deep: bool
    #: What is open, by kind; `not_compared` could not be looked at.
    faults: dict[str, int]
    #: The first of them.
    findings: list[FaultDocument]
    #: Beyond those that a job keeps; they are counted.
    left_out: int
    is_clean: bool

    @property
    def exit(self) -> Exit:
        """Faults weigh more than what was not looked at, and that more than what is not done."""
        if self.left_out or set(self.faults) - {NOT_COMPARED}:
            return Exit.FAILED
        if not self.progress.is_done:
            return Exit.FAILED if self.progress.job.state == JobState.CANCELLED else Exit.INTERRUPTED
        return Exit.NOT_VERIFIED if self.faults else Exit.FINE


class FsckPlanDocument(msgspec.Struct, frozen=True):
    """The JSON document of `--dry-run`: how many parts of each kind there would be."""

    parts: dict[str, int]
    cells_estimate: int
    is_deep: bool


class MendedDocument(msgspec.Struct, frozen=True):
    """A finding, and what became of it."""

    id: int
    kind: str
    reason: str
    outcome: str
    why: str


class FsckMendDocument(msgspec.Struct, frozen=True):
    """The JSON document of `--mend`. `others` have commands of their own."""

    job: str
    outcomes: dict[str, int]
    others: dict[str, int]
    #: Findings that the job did not keep: another look finds them.
    left_out: int
    findings: list[MendedDocument]


def fault_document(found: StoredFinding, *, is_beside_postgres: bool) -> FaultDocument:
    invariant, shows, mends = commands_of(found, found.job, is_beside_postgres=is_beside_postgres)
    shard = found.body.get("shard")
    return FaultDocument(
        found.id,
        found.kind,
        invariant,
        str(found.body["reason"]),
        found.row_key,
        found.column_name,
        found.ref_key,
        shard if isinstance(shard, int) else None,
        found.at,
        shows,
        mends,
    )


def fsck_document(
    progress: ProgressDocument,
    faults: Mapping[str, int],
    findings: Sequence[StoredFinding],
    *,
    is_beside_postgres: bool,
) -> FsckDocument:
    left_out = progress.counts.get(LEFT_OUT, 0)
    return FsckDocument(
        progress,
        bool(progress.job.spec.get("is_deep")),
        dict(faults),
        [fault_document(each, is_beside_postgres=is_beside_postgres) for each in findings],
        left_out,
        progress.is_done and not faults and not left_out,
    )


def fsck_plan_document(plan: FsckPlan) -> FsckPlanDocument:
    counts: dict[str, int] = {}
    for part in plan.parts:
        assert isinstance(part, dict)
        for kind in part:
            counts[kind] = counts.get(kind, 0) + 1
    return FsckPlanDocument(counts, plan.estimate, plan.order.is_deep)
