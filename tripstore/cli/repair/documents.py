"""The JSON documents of `tripstore repair`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from uuid import UUID

import msgspec

from schemaless_core.control.jobs.jobs import JobState, StoredFinding
from tripstore.cli.diff.documents import RecheckDocument
from tripstore.cli.exits import Exit
from tripstore.cli.jobs.documents import ProgressDocument
from tripstore.engines.validation.diff.runner import LEFT_OUT
from tripstore.engines.validation.repair import Action
from tripstore.migration.repair.ending import Ended
from tripstore.migration.repair.repair import SeenTarget

#: Of what a repair left.
LISTED_MAX = 1_000


class RepairStepDocument(msgspec.Struct, frozen=True):
    """What is to be done about one cell. `ref_key` is the one that it is done to."""

    row_key: UUID
    column: str
    ref_key: int
    action: str
    why: str


class RepairPlanDocument(msgspec.Struct, frozen=True):
    """The document of `--dry-run`. `targets` counts all; `steps` may be the first of them only."""

    diff: str
    targets: int
    actions: dict[str, int]
    steps: list[RepairStepDocument]
    is_complete: bool
    #: Whose entries are held against the cells and made right.
    indexes: list[str]
    #: Differences that the diff found and did not keep: no step of these is theirs.
    left_out: int


class LeftDocument(msgspec.Struct, frozen=True):
    """A cell that is not equal: left to a person, or busy."""

    kind: str
    row_key: UUID | None
    column: str | None
    ref_key: int | None
    why: str


class IndexDocument(msgspec.Struct, frozen=True):
    """An index whose entries were held against the cells, as the last look found it."""

    index: str
    differences: int
    repaired: int
    not_compared: int


class RepairDocument(msgspec.Struct, frozen=True):
    """The document of a repair, and of `--show` and `--cancel`.

    `actions` are those of this command; the other numbers are the job's, and exact.
    """

    job: str
    state: str
    rows: int
    equal: int
    left: int
    not_compared: int
    actions: dict[str, int]
    #: The first of what is left, unless it is complete.
    findings: list[LeftDocument]
    is_complete: bool
    indexes: list[IndexDocument]
    #: Of the diff's findings that were open still; null: it was a key list, or the repair is not done.
    recheck: RecheckDocument | None
    #: Differences that the diff found and did not keep: these were not repaired.
    left_out: int
    progress: ProgressDocument

    @property
    def exit(self) -> Exit:
        """What is left weighs more than what never rested; neither speaks of a job that is not done."""
        if not self.progress.is_done:
            return Exit.FAILED if self.state == JobState.CANCELLED else Exit.INTERRUPTED
        is_wrong = any(each.differences > each.repaired for each in self.indexes)
        if self.left or self.left_out or is_wrong or (self.recheck is not None and self.recheck.remaining):
            return Exit.FAILED
        is_unknown = self.not_compared or any(each.not_compared for each in self.indexes)
        return Exit.NOT_VERIFIED if is_unknown else Exit.FINE


class HoleDocument(msgspec.Struct, frozen=True):
    """Holes in the log of a shard."""

    shard: int
    added_ids: list[int]


class HolesDocument(msgspec.Struct, frozen=True):
    """The document of `--holes`."""

    is_closed: bool
    holes: list[HoleDocument]


def plan_document(
    diff: str, seen: Sequence[SeenTarget], targets: int, indexes: Sequence[str], left_out: int
) -> RepairPlanDocument:
    steps = [
        RepairStepDocument(
            each.step.key.row_key,
            each.step.key.column_name,
            each.step.key.ref_key,
            each.step.action.value,
            each.step.why,
        )
        for each in seen
    ]
    actions = dict(Counter(step.action for step in steps))
    return RepairPlanDocument(diff, targets, actions, steps, len(steps) == targets, list(indexes), left_out)


def repair_document(
    progress: ProgressDocument,
    findings: Sequence[StoredFinding],
    actions: Mapping[Action, int],
    ended: Ended | None,
) -> RepairDocument:
    counts = progress.counts
    seen_again = None if ended is None else ended.findings
    left = [
        LeftDocument(each.kind, each.row_key, each.column_name, each.ref_key, str(each.body.get("why") or ""))
        for each in findings[:LISTED_MAX]
    ]
    return RepairDocument(
        job=progress.job.job,
        state=progress.job.state,
        rows=counts.get("rows", 0),
        equal=counts.get("equal", 0),
        left=counts.get("left", 0),
        not_compared=counts.get("not_compared", 0),
        actions={action.value: count for action, count in actions.items()},
        findings=left,
        is_complete=len(findings) <= LISTED_MAX,
        indexes=[] if ended is None else [IndexDocument(*msgspec.structs.astuple(each)) for each in ended.indexes],
        recheck=None if seen_again is None else RecheckDocument(*msgspec.structs.astuple(seen_again)),
        left_out=int(str(progress.job.spec.get(LEFT_OUT, 0))),
        progress=progress,
    )


def holes_document(holes: Mapping[int, Sequence[int]], *, is_closed: bool) -> HolesDocument:
    return HolesDocument(is_closed, [HoleDocument(shard, list(ids)) for shard, ids in sorted(holes.items())])
