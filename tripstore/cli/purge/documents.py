"""The JSON documents of `tripstore purge`."""

from __future__ import annotations

from uuid import UUID

import msgspec

from schemaless_core.control.jobs.jobs import JobState
from schemaless_core.purging.purges import PurgedCells
from tripstore.cli.exits import Exit
from tripstore.cli.jobs.documents import ProgressDocument


class PurgePlanDocument(msgspec.Struct, frozen=True):
    """The JSON document of `--dry-run`: what would be deleted, as the servers say now."""

    cells: int
    #: Rows that have any; 0 where columns are purged.
    rows: int
    #: Cells of these rows that wait in buffers, and that stood in conflict.
    waiting: int
    conflicts: int
    #: What the purge would not reach, and what an operator does about it.
    not_reached: list[str]


class PurgeDocument(msgspec.Struct, frozen=True):
    """A purge: the JSON document of a run, of `--resume` and of `--show`."""

    progress: ProgressDocument
    cells: int
    rows: int
    waiting: int
    conflicts: int
    #: Rows of which something was still there at the end.
    left: list[UUID]
    #: Servers that may lead, and lack some of what was purged.
    behind: list[str]
    #: Rows that were begun and not finished, of a job that no worker goes on with.
    unfinished: list[UUID]
    not_reached: list[str]

    @property
    def exit(self) -> Exit:
        if self.left or self.behind:
            return Exit.FAILED
        if self.progress.is_done:
            return Exit.FINE
        return Exit.FAILED if self.progress.job.state == JobState.CANCELLED else Exit.INTERRUPTED


def purge_plan_document(counted: PurgedCells, not_reached: list[str]) -> PurgePlanDocument:
    return PurgePlanDocument(*counted, not_reached)


def purge_document(
    progress: ProgressDocument, left: list[UUID], behind: list[str], unfinished: list[UUID], not_reached: list[str]
) -> PurgeDocument:
    counts = progress.counts
    return PurgeDocument(
        progress,
        counts.get("cells", 0),
        counts.get("purged", 0),
        counts.get("waiting", 0),
        counts.get("conflicts", 0),
        left,
        behind,
        unfinished,
        not_reached,
    )
