"""`tripstore shards`: who leads each cluster, another server as its primary, and what the old one alone had."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
from rich.text import Text

from schemaless_core.promotion import steps
from schemaless_core.promotion.ports import PromotionOrder
from schemaless_core.promotion.promoter import MOVE_CONTROL, Promoter, PromotionPlan
from schemaless_core.steps import Step
from schemaless_core.urls import parse_node_url
from tripstore.cli.documents import print_document
from tripstore.cli.exits import Exit
from tripstore.cli.options import CommandGroup, Settings, json_option, pass_settings
from tripstore.cli.progress import progress
from tripstore.cli.questions import ask, yes_option
from tripstore.cli.shards.documents import (
    PromotionPlanDocument,
    cluster_view,
    promoted_document,
    salvaged_document,
    status_document,
)
from tripstore.cli.shards.failover import failover
from tripstore.cli.shards.moves.balancing import balance
from tripstore.cli.shards.moves.commands import move
from tripstore.cli.shards.moves.copies import copies
from tripstore.cli.shards.moves.splitting import split
from tripstore.cli.tables import show, table
from tripstore.cli.worker.duty import authority_of, opened, replayer_of

from_shards_option = click.option(
    "--authority-from-shards",
    is_flag=True,
    help="Open the shards as they were, without asking the authority row: Postgres cannot be reached, and no switch"
    " and no way back goes on.",
)


@click.group(cls=CommandGroup)
def shards() -> None:
    """Show which server leads each cluster, promote another one, salvage what an old one alone had, move shards.

    \b
    Example:
      tripstore shards status
      tripstore shards move 7 --to b
      tripstore shards promote a --old-is-dead
    """


shards.add_command(failover)
shards.add_command(move)
shards.add_command(copies)
shards.add_command(split)
shards.add_command(balance)


@shards.command()
@json_option
@pass_settings
def status(settings: Settings, as_json: bool) -> Exit:
    """Show the servers of each cluster: which one leads, how far the others are, and the newest promotion.

    Exit code 1 when a server does not answer, or a promotion is under way.

    \b
    Example:
      tripstore shards status
    """
    with settings.open() as datastore:
        plans = {
            name: datastore.promotions.promoter(name).plan(PromotionOrder())
            for name, cluster in datastore.clusters.items()
            if len(cluster.nodes) > 1
        }
        alone = [name for name in datastore.clusters if name not in plans]
    document = status_document(plans)
    if as_json:
        print_document(document)
    else:
        for name, plan in plans.items():
            _show(name, plan)
        show(*(Text(f"Cluster {name} has no replica.") for name in alone))
    return Exit.FINE if document.is_fine else Exit.FAILED


@shards.command()
@click.argument("cluster")
@click.option("--to", "target", metavar="HOST:PORT", default="", help="This replica; else the one that has most.")
@click.option("--old-is-dead", is_flag=True, help="The primary is stopped, and will not come back by itself.")
@click.option(
    "--dead", "dead", metavar="HOST:PORT", multiple=True, help="The same of another server. May be given again."
)
@click.option("--dry-run", is_flag=True, help="Look at the servers, and say what would be done.")
@from_shards_option
@yes_option
@json_option
@pass_settings
def promote(
    settings: Settings,
    cluster: str,
    target: str,
    old_is_dead: bool,
    dead: tuple[str, ...],
    dry_run: bool,
    authority_from_shards: bool,
    yes: bool,
    as_json: bool,
) -> Exit:
    """Make a replica the primary of a cluster, planned or after the old one died.

    Its shards take no writes for a moment: puts wait, or are buffered. Run it again when it was interrupted: it goes
    on. A dead primary may have cells that no replica got: `tripstore shards salvage` brings them back from its disk.

    \b
    Example:
      tripstore shards promote a --dry-run
      tripstore shards promote a --to 10.0.0.7:3306
      tripstore shards promote a --old-is-dead
    """
    with _promoter(settings, cluster, is_asked=not authority_from_shards) as promoter:
        given_up = {*(promoter.name_of(each) for each in dead), *([promoter.old()] if old_is_dead else [])}
        order = PromotionOrder(promoter.name_of(target) if target else "", tuple(sorted(given_up)))
        if dry_run:
            return _show_plan(cluster, promoter.plan(order), as_json=as_json)
        gone = " and ".join(name.rpartition("@")[2] for name in order.given_up)
        is_sure = f"{gone} is stopped, and comes back only by hand. " if gone else ""
        ask(f"{is_sure}Promote {target or 'the replica that has most'} in cluster {cluster}?", is_answered=yes)
        promoted = promoter.promote(order, _steps_said(as_json))
    if as_json:
        print_document(promoted_document(cluster, promoted))
    else:
        record = promoted.record
        show(Text(f"{record.target.rpartition('@')[2]} leads cluster {cluster} (promotion {record.number})."))
        for server in promoted.left:
            show(Text(f"{server.rpartition('@')[2]} follows no server: see docs/howto/promotion.md.", style="bold red"))
    return Exit.FINE


@shards.command()
@click.argument("cluster")
@click.option("--from", "source", metavar="URL", required=True, help="The old primary, started shut: mysql://…")
@click.option("--dry-run", is_flag=True, help="Count what it alone has, and change nothing.")
@json_option
@pass_settings
def salvage(settings: Settings, cluster: str, source: str, dry_run: bool, as_json: bool) -> Exit:
    """Bring back what a primary had acknowledged and no replica got, from its disk.

    Each cell goes to its shard as a new cell of the log; where another body stands under its key by now, both are in
    the ledger of `tripstore buffer conflicts`. What was purged there is purged again. Safe to repeat. Nothing on the
    old server is changed.

    Exit code 1 while there are conflicts.

    \b
    Example:
      tripstore shards salvage a --from mysql://root:${PASSWORD}@10.0.0.5:3306 --dry-run
    """
    url = parse_node_url("--from", source)
    with opened(settings) as stores, progress("cells") as advance:
        salvaged = stores.datastore.promotions.salvage(cluster, url, authority_of(stores)).run(advance, is_dry=dry_run)
        if salvaged.conflicts and not dry_run:
            replayer_of(stores).round()  # which notes them in the ledger
    if as_json:
        print_document(salvaged_document(cluster, str(url), salvaged, is_dry_run=dry_run))
    else:
        what = "are" if dry_run else "were"
        show(
            Text(f"{salvaged.cells:,} cells of {salvaged.shards:,} shards {what} only on its disk when it died."),
            Text(
                f"{salvaged.there:,} are stored by now, {salvaged.salvaged:,} {'would be' if dry_run else 'were'} put,"
            ),
            Text(f"{salvaged.conflicts:,} conflict with what is stored: `tripstore buffer conflicts`."),
            Text(f"{salvaged.buffered:,} waited in its buffer; {salvaged.index_entries:,} index entries were written."),
            Text(f"{salvaged.purged_keys:,} keys {'would be' if dry_run else 'were'} purged, as they were there."),
        )
    return Exit.FAILED if salvaged.conflicts else Exit.FINE


@contextmanager
def _promoter(settings: Settings, cluster: str, *, is_asked: bool) -> Iterator[Promoter]:
    """With the authority row, where there is one; without it only when the operator says so."""
    if not is_asked:
        with settings.open() as datastore:
            yield datastore.promotions.promoter(cluster)
        return
    with opened(settings) as stores:
        yield stores.datastore.promotions.promoter(cluster, authority_of(stores))


def _steps_said(as_json: bool) -> Callable[[Step], None]:
    """Tells on stderr what is done, each step once."""
    said = set[str]()

    def hear(step: Step) -> None:
        if not as_json and step.name not in said:
            said.add(step.name)
            click.echo(f"  {step.sentence}", err=True)

    return hear


def _show_plan(cluster: str, plan: PromotionPlan, *, as_json: bool) -> Exit:
    if as_json:
        sentences = [step.sentence for step in steps.PROMOTE]
        print_document(PromotionPlanDocument(cluster_view(cluster, plan), sentences, list(plan.refusals)))
    else:
        _show(cluster, plan)
        if plan.refusals:
            show(*(Text(refusal, style="bold red") for refusal in plan.refusals))
            if any(each.has_control for each in plan.servers):
                show(Text(MOVE_CONTROL))
        else:
            show(*(Text(f"  {step.sentence}") for step in steps.PROMOTE))
    return Exit.REFUSED if plan.refusals else Exit.FINE


def _show(cluster: str, plan: PromotionPlan) -> None:
    rows = [
        (
            each.name.rpartition("@")[2],
            "primary" if each.is_leader else "given up" if each.is_given_up else "replica",
            "" if each.seconds_behind is None else f"{each.seconds_behind} s",
            each.error or each.position,
        )
        for each in plan.servers
    ]
    show(table((f"cluster {cluster}", "is", "behind", "position"), rows))
    record = plan.record
    if record.number and not record.is_done:
        to = f" to {record.target.rpartition('@')[2]}" if record.target else ""
        show(Text(f"Promotion {record.number}{to} is under way: run `tripstore shards promote {cluster}` again."))
