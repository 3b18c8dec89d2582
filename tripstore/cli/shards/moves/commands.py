"""`tripstore shards move`: shards go to another cluster, as a job that any worker may serve."""

from __future__ import annotations

import click

from schemaless_core.config import SHARDS_MAX
from schemaless_core.moves.orders import MoveOrder
from schemaless_core.moves.runner import KIND
from tripstore.cli.exits import Exit
from tripstore.cli.jobs.running import given_verb, verb_options
from tripstore.cli.options import Command, Settings, json_option, pass_settings
from tripstore.cli.questions import ask, yes_option
from tripstore.cli.shards.moves.limits import are_given, hold_option, limited, processes_option, rate_option
from tripstore.cli.shards.moves.running import cancel_job, move_shards, pause_job, say_job, show_plans
from tripstore.cli.worker.duty import authority_of, opened


class ShardList(click.ParamType["tuple[int, ...]"]):
    """A shard, or the first and the last of several: 0-15."""

    name = "shards"

    def convert(
        self, value: str | tuple[int, ...], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        first, _, last = value.partition("-")
        last = last or first
        if not (first.isdecimal() and last.isdecimal() and int(first) <= int(last) < SHARDS_MAX):
            self.fail(f"{value!r} are no shards: write 7, or 0-15.", param, ctx)
        return tuple(range(int(first), int(last) + 1))


@click.command(cls=Command)
@click.argument("shards", nargs=-1, type=ShardList(), metavar="[SHARD…]")
@click.option("--to", "target", metavar="CLUSTER", help="Where they go.")
@click.option("--dry-run", is_flag=True, help="Look at the servers, and say what would be copied.")
@hold_option
@rate_option
@processes_option
@verb_options(
    pause="Have it begin no other page.",
    cancel="Give it up: shards that have not gone stay.",
)
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
    `tripstore shards copies` shows it. Any `tripstore worker run` goes on with a job whose process died.

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
            return say_job(moves, moves.jobs.find(KIND, shown), as_json=as_json).exit
        if paused is not None:
            return pause_job(moves, paused, as_json=as_json)
        if cancelled is not None:
            return cancel_job(moves, moves.jobs.find(KIND, cancelled), is_answered=yes, as_json=as_json)
        if resumed is not None:
            jobs = [moves.jobs.resume(KIND, resumed)]
        else:
            limits = (hold_ms / 1000, rate)
            orders = (
                [limited(order, hold_ms, rate) for order in moves.back(moves.jobs.find(KIND, returned))]
                if returned is not None
                else [MoveOrder(wanted, target or "", *limits)]
            )
            plans = [moves.plan(order) for order in orders]
            if not plans:
                click.echo("None of its shards is at the cluster that it moved them to: nothing goes back.", err=True)
            if dry_run or not plans or any(plan.refusals for plan in plans):
                return show_plans(plans, as_json=as_json)
            going = sum(len(plan.moves) for plan in plans)
            if going:
                ask(f"Move {going:,} shards to {', '.join(order.to for order in orders)}?", is_answered=yes)
            jobs = [moves.begin(plan) for plan in plans]
        return max(move_shards(settings, moves, job, processes, as_json=as_json) for job in jobs)


def _wanted(
    verbs: dict[str, str | None], shards: tuple[tuple[int, ...], ...], target: str | None, *, dry_run: bool
) -> tuple[int, ...]:
    """The shards; of the options for a job that was begun one alone, and none that would begin another."""
    wanted = tuple(sorted({shard for each in shards for shard in each}))
    of_new = (dry_run or are_given()) and verbs["--back"] is None  # the way back is another move
    if given_verb(verbs, is_more=bool(wanted or target) or of_new) is not None:
        return ()
    if not wanted or not target:
        raise click.UsageError("Say which shards go, and where: tripstore shards move 7 --to b.")
    return wanted
