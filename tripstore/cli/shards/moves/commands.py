"""`tripstore shards move`: shards go to another cluster, as a job that any worker may serve; and what they leave."""

from __future__ import annotations

import click
from rich.text import Text

from schemaless_core.control.jobs.jobs import Job
from schemaless_core.moves.moves import HOLD_SECONDS, MoveOrder, MovePlan, Moves
from schemaless_core.moves.runner import KIND
from schemaless_core.process.fleet import Fleet
from tripstore.cli.documents import print_document
from tripstore.cli.exits import Exit
from tripstore.cli.jobs.documents import progress_document
from tripstore.cli.jobs.screens import telling
from tripstore.cli.options import Command, Settings, json_option, pass_settings
from tripstore.cli.questions import ask, yes_option
from tripstore.cli.shards.moves.documents import (
    CopiesDocument,
    MoveDocument,
    copies_document,
    move_document,
    plan_document,
)
from tripstore.cli.shards.moves.work import MoveWork
from tripstore.cli.tables import show, table
from tripstore.cli.worker.duty import authority_of, opened

PROCESSES_MAX = 16


class ShardList(click.ParamType["tuple[int, ...]"]):
    """A shard, or the first and the last of several: 0-15."""

    name = "shards"

    def convert(
        self, value: str | tuple[int, ...], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        first, _, last = value.partition("-")
        if not (first.isdecimal() and (last or first).isdecimal()) or int(last or first) < int(first):
            self.fail(f"{value!r} are no shards: write 7, or 0-15.", param, ctx)
        return tuple(range(int(first), int(last or first) + 1))


@click.command(cls=Command)
@click.argument("shards", nargs=-1, type=ShardList(), metavar="[SHARD…]")
@click.option("--to", "target", metavar="CLUSTER", help="Where they go.")
@click.option("--dry-run", is_flag=True, help="Look at the servers, and say what would be copied.")
@click.option(
    "--hold-ms",
    type=click.IntRange(50, 60_000),
    default=int(1000 * HOLD_SECONDS),
    show_default=True,
    help="For how long a shard may take no writes: puts wait, or are buffered. What takes longer is given up.",
)
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), metavar="CELLS", help="So many a second, each.")
@click.option("--processes", type=click.IntRange(1, PROCESSES_MAX), default=1, show_default=True, help="At once.")
@click.option("--show", "shown", metavar="JOB", help="Show how far one is; `last` is the newest.")
@click.option("--pause", "paused", metavar="JOB", help="Have it begin no other page.")
@click.option("--resume", "resumed", metavar="JOB", help="Go on with one that was paused or interrupted.")
@click.option("--cancel", "cancelled", metavar="JOB", help="Give it up: shards that have not gone stay.")
@click.option("--back", "returned", metavar="JOB", help="Move its shards back: what came since is copied.")
@yes_option
@json_option
@pass_settings
def move(
    settings: Settings,
    shards: tuple[tuple[int, ...], ...],
    target: str | None,
    dry_run: bool,
    hold_ms: int,
    rate: float | None,
    processes: int,
    shown: str | None,
    paused: str | None,
    resumed: str | None,
    cancelled: str | None,
    returned: str | None,
    yes: bool,
    as_json: bool,
) -> Exit:
    """Move shards to another cluster while callers read and write.

    The log of each is copied with its added ids and times, compared, and followed until little is left. Then the shard
    takes no writes for a moment: the last cells go over, with entries of indexes, offsets and parked cells, and the
    other cluster opens it. The old cluster keeps its copy, closed: --back needs only what came since, and
    `tripstore shards copies` drops it. Any `tripstore worker run` goes on with a job whose process died.

    Exit code 1 when a shard stayed where it was, 4 when the move is refused, 5 when it was interrupted.

    \b
    Example:
      tripstore shards move 7 --to b --dry-run
      tripstore shards move 0-15 40 --to b
      tripstore shards move --show last
      tripstore shards move --back last
    """
    verbs = {"--show": shown, "--pause": paused, "--resume": resumed, "--cancel": cancelled, "--back": returned}
    wanted = _wanted(verbs, shards, target, dry_run=dry_run)
    with opened(settings) as stores:
        moves = stores.datastore.moves(authority_of(stores))
        if shown is not None:
            return _said(moves, moves.jobs.find(KIND, shown), as_json=as_json).exit
        if paused is not None:
            _said(moves, moves.jobs.pause(KIND, paused), as_json=as_json)
            return Exit.FINE
        if cancelled is not None:
            return _cancel(moves, moves.jobs.find(KIND, cancelled), is_answered=yes, as_json=as_json)
        if resumed is not None:
            jobs = [moves.jobs.resume(KIND, resumed)]
        else:
            limits = (hold_ms / 1000, rate)
            orders = (
                moves.back(moves.jobs.find(KIND, returned))
                if returned is not None
                else [MoveOrder(wanted, target or "", *limits)]
            )
            plans = [moves.plan(order) for order in orders]
            if dry_run or any(plan.refusals for plan in plans):
                return _show_plans(plans, as_json=as_json)
            going = sum(len(plan.moves) for plan in plans)
            if going:
                ask(f"Move {going:,} shards to {', '.join(order.to for order in orders)}?", is_answered=yes)
            jobs = [moves.begin(plan) for plan in plans]
        return max(_moved(settings, moves, job, processes, as_json=as_json) for job in jobs)


def _wanted(
    verbs: dict[str, str | None], shards: tuple[tuple[int, ...], ...], target: str | None, *, dry_run: bool
) -> tuple[int, ...]:
    """The shards; of the options for a job that was begun one alone, and none that would begin another."""
    given = [name for name, job in verbs.items() if job is not None]
    wanted = tuple(sorted({shard for each in shards for shard in each}))
    if given:
        if wanted or target or len(given) > 1 or (dry_run and given != ["--back"]):
            raise click.UsageError(f"{given[0]} is about one that was begun before: leave the others out.")
        return ()
    if not wanted or not target:
        raise click.UsageError("Say which shards go, and where: tripstore shards move 7 --to b.")
    return wanted


def _moved(settings: Settings, moves: Moves, job: Job, processes: int, *, as_json: bool) -> Exit:
    click.echo(f"{job.id} begins; Ctrl-C ends it between two pages, `--resume last` goes on.", err=True)
    fleet = Fleet(MoveWork(settings, job), processes, is_finite=True)
    with telling(lambda: progress_document(moves.jobs.progress(job.id))):
        fleet.run()
    found = _said(moves, job, as_json=as_json)
    return Exit.FAILED if fleet.failed and found.exit is Exit.INTERRUPTED else found.exit


def _said(moves: Moves, job: Job, *, as_json: bool) -> MoveDocument:
    progress = progress_document(moves.jobs.progress(job.id))
    document = move_document(progress, moves.jobs.findings(job.id))
    if as_json:
        print_document(document)
    else:
        show(Text(f"{job.id}: {document.moved:,} of {progress.parts:,} shards have moved ({progress.job.state})."))
        show(*(Text(f"Shard {each.shard} stays: {each.reason}.", style="bold red") for each in document.stayed))
    return document


def _cancel(moves: Moves, job: Job, *, is_answered: bool, as_json: bool) -> Exit:
    ask(f"Give up {job.id}? Shards that have gone stay at their new cluster.", is_answered=is_answered)
    cancelled = moves.jobs.cancel(KIND, job.id)
    moves.give_up(cancelled)
    _said(moves, cancelled, as_json=as_json)
    return Exit.FINE


def _show_plans(plans: list[MovePlan], *, as_json: bool) -> Exit:
    refusals = [refusal for plan in plans for refusal in plan.refusals]
    if as_json:
        print_document(plan_document(plans))
    elif refusals:
        show(*(Text(refusal, style="bold red") for refusal in refusals))
    else:
        rows = [
            (str(each.shard), each.source, plan.order.to, f"{each.cells:,}", f"{each.there:,}")
            for plan in plans
            for each in plan.moves
        ]
        show(table(("shard", "from", "to", "cells", "there already"), rows))
        there = sum(len(plan.there) for plan in plans)
        show(*([Text(f"{there:,} shards are there.")] if there else []))
    return Exit.REFUSED if refusals else Exit.FINE


@click.command(cls=Command)
@json_option
@pass_settings
def copies(settings: Settings, as_json: bool) -> Exit:
    """Show the copies that moved shards have left on their old clusters.

    As long as there is one, the way back needs only what came since.

    \b
    Example:
      tripstore shards copies
    """
    with opened(settings) as stores:
        document = copies_document(stores.datastore.moves().old_copies())
    if as_json:
        print_document(document)
    else:
        _show_copies(document)
    return Exit.FINE


def _show_copies(document: CopiesDocument) -> None:
    rows = [(str(each.shard), each.cluster, f"{each.cells:,}", str(each.moved_at or "")) for each in document.copies]
    show(table(("shard", "copy on", "cells", "moved at"), rows) if rows else Text("No moved shard has left a copy."))
