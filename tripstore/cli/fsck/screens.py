"""What `tripstore fsck` shows to people."""

from __future__ import annotations

import click
from rich.text import Text

from schemaless_core.fsck.faults import NOT_COMPARED
from tripstore.cli.fsck.documents import FaultDocument, FsckDocument, FsckMendDocument, FsckPlanDocument
from tripstore.cli.jobs.screens import progress_line
from tripstore.cli.tables import show

#: Of each kind.
SHOWN = 5

_PARTS = {
    "owners": "who owns the shards",
    "beside": "offsets, buffers, ledgers, counters of replicas",
    "tail": "what servers have that do not lead",
    "log": "the logs of the shards",
    "entries": "the entries of indexes",
    "replica": "the logs of replicas",
}


def print_fsck(seen: FsckDocument) -> None:
    """What was found, by kind, and what to do about each."""
    for kind, count in sorted(seen.faults.items(), key=lambda each: (each[0] == NOT_COMPARED, each[0])):
        of_kind = [each for each in seen.findings if each.kind == kind]
        _print_kind(kind, count, of_kind)
    if seen.left_out:
        click.echo(f"{seen.left_out:,} more findings are counted, and not kept.")
    progress = seen.progress
    done = f"{progress.parts_done:,} of {progress.parts:,} parts"
    show(Text(f"{progress_line(progress)}, {progress.job.shown_state}; {done}"))
    show(*(Text(advice, style="bold red") for advice in progress.advice))
    if seen.is_clean:
        more = "" if seen.is_deep else " Replicas and entries of indexes are compared by --deep."
        click.echo(f"Everything that was looked at is right.{more}")
    elif set(seen.faults) == {NOT_COMPARED}:
        click.echo("Nothing wrong was found; not everything could be looked at.")


def print_plan(plan: FsckPlanDocument) -> None:
    for kind, count in plan.parts.items():
        click.echo(f"{_PARTS[kind]}: {count:,} part{'s' if count > 1 else ''}")
    click.echo(f"About {plan.cells_estimate:,} cells.")


def print_mended(document: FsckMendDocument) -> None:
    for each in document.findings:
        why = f": {each.why}" if each.why else ""
        show(Text(f"{each.kind} {each.id}: {each.outcome.replace('_', ' ')}{why}"))
    said = ", ".join(f"{count:,} {outcome.replace('_', ' ')}" for outcome, count in document.outcomes.items() if count)
    click.echo(f"Of {document.job}: {said or 'nothing is left that this command mends'}.")
    if document.others:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in document.others.items())
        click.echo(f"Others have commands of their own ({kinds}): `tripstore fsck --show {document.job}`.")
    if document.left_out:
        click.echo(f"{document.left_out:,} more were not kept.")
    if document.left_out or any(document.outcomes.values()):
        click.echo("Look again: `tripstore fsck`.")


def _print_kind(kind: str, count: int, found: list[FaultDocument]) -> None:
    invariant = f" ({found[0].invariant})" if found else ""
    show(Text(f"{count:,} {kind}{invariant}", style="bold red" if kind != NOT_COMPARED else "bold yellow"))
    for each in found[:SHOWN]:
        show(Text(f"  {each.reason}"))
        if each.shows:
            show(Text(f"    see   {each.shows}", style="dim"))
        if each.mends:
            show(Text(f"    mend  {each.mends}", style="dim"))
    if count > SHOWN:
        click.echo(f"  and {count - SHOWN:,} more: --json lists them.")
