"""The JSON documents of `tripstore export`."""

from __future__ import annotations

from uuid import UUID

import msgspec

from schemaless_core.cell.cell import CellKey
from tripstore.cli.exits import Exit
from tripstore.export.exporter import ExportPlan, ExportReport


class TakenBackDocument(msgspec.Struct, frozen=True):
    """A cell that was exported, and that a promotion took out of the log. `is_stored`: the store has it again."""

    shard: int
    added_id: int
    row_key: UUID
    column: str
    ref_key: int
    is_stored: bool


class ExportDocument(msgspec.Struct, frozen=True):
    """What a run did."""

    folder: str
    cells: int
    files: int
    commits: int
    #: By column and field, values that are in the body alone.
    misfits: dict[str, int]
    lost: list[TakenBackDocument]
    #: Cells of all columns that primaries had at the end, and that the next run brings; null: one did not answer.
    left_estimate: int | None

    @property
    def exit(self) -> Exit:
        return Exit.FINE if all(each.is_stored for each in self.lost) else Exit.FAILED


class ExportPlanDocument(msgspec.Struct, frozen=True):
    """The document of `--dry-run`."""

    folder: str
    #: Of all columns.
    cells_estimate: int
    #: Shards whose log a promotion has cut below what was exported.
    forked_shards: list[int]


def export_document(folder: str, report: ExportReport) -> ExportDocument:
    lost = [
        TakenBackDocument(
            each.shard,
            each.added_id,
            each.row_key,
            each.column,
            each.ref_key,
            CellKey(each.row_key, each.column, each.ref_key) in report.found_again,
        )
        for each in report.lost
    ]
    return ExportDocument(folder, report.cells, report.files, report.commits, dict(report.misfits), lost, report.left)


def export_plan_document(folder: str, plan: ExportPlan) -> ExportPlanDocument:
    return ExportPlanDocument(folder, plan.cells, list(plan.forked))
