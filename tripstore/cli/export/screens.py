"""What `tripstore export` shows to people."""

from __future__ import annotations

from rich.text import Text

from tripstore.cli.export.documents import ExportDocument, ExportPlanDocument
from tripstore.cli.tables import show

#: The others are in the JSON document, and in the folder.
SHOWN = 10


def print_export(seen: ExportDocument) -> None:
    show(Text(f"{seen.cells:,} cells are in {seen.files:,} new files of {seen.folder}."))
    if seen.left_estimate:
        show(
            Text(
                f"{seen.left_estimate:,} cells (est.) came meanwhile, or are on no replica yet: the next run has them."
            )
        )
    for name, count in sorted(seen.misfits.items()):
        show(Text(f"{count:,} values of {name} are not of its type: they are in the body alone.", style="yellow"))
    if not seen.lost:
        return
    stored = sum(each.is_stored for each in seen.lost)
    show(
        Text(
            f"{len(seen.lost):,} cells were taken out of the files: a promotion took them out of the log."
            f" The store has {stored:,} of them again.",
            style="bold red" if stored < len(seen.lost) else "",
        )
    )
    for each in seen.lost[:SHOWN]:
        show(Text(f"  {each.row_key} {each.column} {each.ref_key}{'' if each.is_stored else ': not stored'}"))
    if len(seen.lost) > SHOWN:
        show(Text(f"  and {len(seen.lost) - SHOWN:,} more: --json lists them."))
    if stored < len(seen.lost):
        show(Text("`tripstore shards salvage` brings them back from the disk of the old primary."))


def print_export_plan(seen: ExportPlanDocument) -> None:
    show(Text(f"{seen.cells_estimate:,} cells (est.) are not in {seen.folder} yet."))
    if seen.forked_shards:
        shards = ", ".join(map(str, seen.forked_shards))
        show(Text(f"A promotion took cells that were exported out of the logs of shards {shards}."))
