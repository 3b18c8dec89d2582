"""`tripstore shards split`: half of a cluster's shards go to another one, as a job that any worker may serve."""

from __future__ import annotations

import click
from rich.text import Text

from schemaless_core.control.jobs.jobs import JobState
from schemaless_core.moves.moves import MovePlan
from schemaless_core.moves.runner import KIND
from schemaless_core.moves.splits import SplitOrder, SplitPlan, Splits
from tripstore.cli.documents import print_document
from tripstore.cli.exits import Exit
from tripstore.cli.options import Command, Settings, json_option, pass_settings
from tripstore.cli.questions import ask, yes_option
from tripstore.cli.shards.moves.documents import split_plan_document
from tripstore.cli.shards.moves.limits import are_given, hold_option, processes_option, rate_option
from tripstore.cli.shards.moves.running import cancel_job, move_shards, pause_job, say_job, show_plans
from tripstore.cli.tables import show
from tripstore.cli.worker.duty import authority_of, opened


@click.command(cls=Command)
@click.argument("cluster")
@click.option("--into", metavar="CLUSTER", help="Where half of its shards go.")
@click.option("--dry-run", is_flag=True, help="Look at the servers, and say which shards would go.")
@hold_option
@rate_option
@processes_option
@click.option("--show", "verb", flag_value="show", help="Show how far the newest split of the cluster is.")
@click.option("--pause", "verb", flag_value="pause", help="Have it begin no other page.")
@click.option("--resume", "verb", flag_value="resume", help="Go on with one that was paused or interrupted.")
@click.option("--cancel", "verb", flag_value="cancel", help="Give it up: shards that have not gone stay.")
@click.option("--back", "verb", flag_value="back", help="Move the shards that have gone back.")
@yes_option
@json_option
@pass_settings
def split(
    settings: Settings,
    cluster: str,
    into: str | None,
    dry_run: bool,
    hold_ms: int,
    rate: float | None,
    processes: int,
    verb: str | None,
    yes: bool,
    as_json: bool,
) -> Exit:
    """Move half of a cluster's shards to another cluster while callers read and write.

    Which shards go is planned once: halves of as many shards, and about as many cells. The plan is stored with the job
    that moves them. Repeat the command as often as you like: it goes on with that plan, and never moves more than that
    half. To split the cluster once more, say --cancel first, or another cluster.

    Exit code 1 when a shard stayed where it was or came back, 4 when the split is refused, 5 when it was interrupted.

    \b
    Example:
      tripstore shards split a --into c --dry-run
      tripstore shards split a --into c
      tripstore shards split a --show
      tripstore shards split a --back
    """
    if (into is None) == (verb is None) or (dry_run and verb not in (None, "back")):
        raise click.UsageError("Say where half of the shards go: --into CLUSTER; or one of the options for a split.")
    if verb not in (None, "back") and are_given():
        raise click.UsageError(f"--{verb} is about a split that was begun before: its limits stay as they are.")
    with opened(settings) as stores:
        moves = stores.datastore.moves(authority_of(stores))
        splits = Splits(stores.datastore.control, moves)
        if verb == "back":
            back = splits.back(splits.get(cluster), hold_ms / 1000, rate)
            return _back(settings, splits, back, processes, dry_run=dry_run, is_answered=yes, as_json=as_json)
        if verb is not None:
            return _changed(settings, splits, cluster, verb, processes, is_answered=yes, as_json=as_json)
        plan = splits.plan(SplitOrder(cluster, str(into), hold_ms / 1000, rate))
        is_begun = plan.stored is not None and splits.unended(plan.stored) is not None
        if dry_run or (plan.moves.refusals and not is_begun):
            return _show_plan(plan, as_json=as_json)
        return _split(settings, splits, plan, processes, is_answered=yes, as_json=as_json)


def _split(
    settings: Settings, splits: Splits, plan: SplitPlan, processes: int, *, is_answered: bool, as_json: bool
) -> Exit:
    order, stored = plan.order, plan.stored
    job = None if stored is None else splits.unended(stored)
    if job is None and stored is not None and not plan.moves.moves:
        listed = " ".join(map(str, plan.kept))
        state = "It is done" if not plan.kept else f"Of its half shards {listed} are on cluster {order.cluster}"
        by_hand = f"; `tripstore shards move {listed} --to {order.into}` moves them" if plan.kept else ""
        anew = f"after `tripstore shards split {order.cluster} --cancel` the next one plans anew"
        click.echo(f"{state}: {anew}{by_hand}.", err=True)
        return max(_show_plan(plan, as_json=as_json), Exit.FAILED if plan.kept else Exit.FINE)
    if job is None:
        count = len(plan.moves.moves)
        ask(f"Move {count:,} shards of cluster {order.cluster} to {order.into}?", is_answered=is_answered)
        job = splits.begin(plan)
    if job.state is JobState.PAUSED:
        say_job(splits.moves, job, as_json=as_json)
        click.echo(f"It is paused: `tripstore shards split {order.cluster} --resume` goes on.", err=True)
        return Exit.REFUSED
    return move_shards(settings, splits.moves, job, processes, as_json=as_json)


def _changed(
    settings: Settings, splits: Splits, cluster: str, verb: str, processes: int, *, is_answered: bool, as_json: bool
) -> Exit:
    stored, jobs = splits.get(cluster), splits.moves.jobs
    if verb == "show":
        return say_job(splits.moves, jobs.find(KIND, stored.job), as_json=as_json).exit
    if verb == "pause":
        return pause_job(splits.moves, stored.job, as_json=as_json)
    if verb == "resume":
        return move_shards(settings, splits.moves, jobs.resume(KIND, stored.job), processes, as_json=as_json)
    job = splits.unended(stored)
    if job is None:
        ask(f"Plan the next split of cluster {cluster} anew? Shards stay where they are.", is_answered=is_answered)
        if ended := splits.give_up(stored):  # an earlier --cancel may have met a silent server
            click.echo(f"{ended:,} shards were between two clusters. They take writes again.", err=True)
    else:
        cancel_job(splits.moves, job, is_answered=is_answered, as_json=as_json)
    if not stored.is_over:
        splits.end(stored)
    return Exit.FINE


def _back(
    settings: Settings,
    splits: Splits,
    plan: MovePlan,
    processes: int,
    *,
    dry_run: bool,
    is_answered: bool,
    as_json: bool,
) -> Exit:
    cluster = plan.order.to
    stored = splits.get(cluster)
    if dry_run or plan.refusals:
        return show_plans([plan], as_json=as_json)
    ask(f"Move {len(plan.moves):,} shards back to cluster {cluster}?", is_answered=is_answered)
    if not stored.is_over:
        splits.end(stored)  # first: a split that is repeated moves none of them forward again
    return move_shards(settings, splits.moves, splits.moves.begin(plan), processes, as_json=as_json)


def _show_plan(plan: SplitPlan, *, as_json: bool) -> Exit:
    if as_json:
        print_document(split_plan_document(plan))
        return Exit.REFUSED if plan.moves.refusals else Exit.FINE
    ended = show_plans([plan.moves], as_json=False)
    if plan.moves.refusals:
        return ended
    if plan.stored is not None:
        show(Text(f"This goes on with the plan of {plan.stored.job}."))
    show(Text(f"{len(plan.stay):,} shards stay on cluster {plan.order.cluster}."))
    return ended
