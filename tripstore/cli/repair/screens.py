"""What `tripstore repair` shows to people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import click
from rich.text import Text

from tripstore.cli.jobs.documents import ProgressDocument
from tripstore.cli.jobs.screens import progress_line
from tripstore.cli.repair.documents import HolesDocument, RepairDocument
from tripstore.cli.tables import show, table
from tripstore.engines.validation.repair import Action
from tripstore.migration.repair.repair import SeenTarget

ROWS_MAX = 50

_SAID = {
    Action.LIFT: "lifted by the authority and carried anew",
    Action.PUT: "put into the mirror",
    Action.MEND: "given the right bytes where they stand",
    Action.BURY: "given a tombstone: its row is gone",
    Action.PURGE: "deleted from the mirror",
    Action.LEAVE: "left to a person",
    Action.NOTHING: "equal by now",
}


def print_plan(seen: Sequence[SeenTarget], targets: int, indexes: Sequence[str]) -> None:
    for name in indexes:
        click.echo(f"The entries of index {name} are to be held against the cells and made right.")
    if not targets and not indexes:
        click.echo("The diff has no open differences.")
        return
    steps = [each.step for each in seen]
    rows = [
        (str(step.key.row_key), step.key.column_name, str(step.key.ref_key), step.action.value, step.why)
        for step in steps[:ROWS_MAX]
    ]
    if rows:
        show(table(("row", "column", "ref key", "what", "why"), rows))
    if len(steps) > ROWS_MAX:
        click.echo(f"These are the first {ROWS_MAX}; --json shows {len(steps):,}.", err=True)
    for action, count in sorted(Counter(step.action for step in steps).items()):
        click.echo(
            f"{count:,} to be {_SAID[action]}." if action is not Action.NOTHING else f"{count:,} {_SAID[action]}."
        )
    if targets > len(steps):
        click.echo(f"{targets - len(steps):,} more were not looked at yet.")


def print_progress(seen: ProgressDocument) -> None:
    """How far a job is, and what to do when no process works at it."""
    why = f" ({seen.job.why})" if seen.job.why else ""
    parts = f"{seen.parts_done:,} of {seen.parts:,} parts are done"
    show(Text(f"{progress_line(seen)}, {seen.job.shown_state}{why}; {parts}"))
    show(*(Text(advice, style="bold red") for advice in seen.advice))


def print_repair(done: RepairDocument) -> None:
    if done.findings:
        rows = [
            (
                str(each.row_key),
                each.column or "",
                "" if each.ref_key is None else str(each.ref_key),
                each.kind,
                each.why,
            )
            for each in done.findings[:ROWS_MAX]
        ]
        show(table(("row", "column", "ref key", "", "why"), rows))
    if len(done.findings) > ROWS_MAX:
        click.echo(f"These are the first {ROWS_MAX}; --json shows {len(done.findings):,}.", err=True)
    for action, count in sorted(done.actions.items()):
        click.echo(f"{action}: {count:,}")
    for index in done.indexes:
        click.echo(f"index {index.index}: {index.repaired:,} of {index.differences:,} wrong entries made right")
    click.echo(
        f"{done.job}: {done.equal:,} of {done.rows:,} equal, {done.left:,} left to a person, "
        f"{done.not_compared:,} never rested."
    )
    if (again := done.recheck) is not None:
        click.echo(
            f"Of the diff's findings {again.solved:,} are closed, {again.remaining:,} still differ, "
            f"{again.not_compared:,} could not be compared."
        )
    if done.left_out:
        click.echo(
            f"{done.left_out:,} more differences that the diff found, and did not keep in its list, are as they were."
        )


def print_holes(found: HolesDocument) -> None:
    if not found.holes:
        click.echo("No log has a hole.")
        return
    rows = [(str(each.shard), ", ".join(map(str, each.added_ids))) for each in found.holes]
    show(table(("shard", "added ids"), rows))
    if found.is_closed:
        click.echo("Readers of these logs pass them now.")
