"""`tripstore shards balance --plan`: which shards to move, so that clusters have about as much to do."""

from __future__ import annotations

import click
from rich.text import Text

from schemaless_core.moves.balance import BalancePlan, measure
from tripstore.cli.documents import print_document
from tripstore.cli.exits import Exit
from tripstore.cli.options import Command, Settings, json_option, pass_settings
from tripstore.cli.shards.moves.documents import balance_document
from tripstore.cli.tables import show, table
from tripstore.cli.worker.duty import opened

SECONDS = 10.0
PERCENT = 10.0
MOVES_MAX = 64


@click.command(cls=Command)
@click.option("--plan", "is_plan", is_flag=True, help="Propose moves, and change nothing. There is no other way yet.")
@click.option(
    "--seconds",
    type=click.FloatRange(0, 3600),
    default=SECONDS,
    show_default=True,
    help="For how long the rates are measured; 0: go by the sizes alone.",
)
@click.option(
    "--within",
    type=click.FloatRange(1, 100),
    default=PERCENT,
    show_default=True,
    metavar="PERCENT",
    help="By how much clusters may differ, of what each would have if all had the same.",
)
@click.option(
    "--at-most",
    type=click.IntRange(1),
    default=MOVES_MAX,
    show_default=True,
    metavar="N",
    help="Propose no more moves.",
)
@json_option
@pass_settings
def balance(settings: Settings, is_plan: bool, seconds: float, within: float, at_most: int, as_json: bool) -> Exit:
    """Propose moves of shards, so that all clusters of the configuration have about as much to do.

    What a shard has to do is its share of the cells and its share of the puts, half and half. Shards go from the
    cluster that has most to the one that has least. Nothing is changed: the last lines are the commands.

    \b
    Example:
      tripstore shards balance --plan
      tripstore shards balance --plan --seconds 60 --within 5 --json
    """
    if not is_plan:
        raise click.UsageError("It proposes moves, and makes none: tripstore shards balance --plan.")
    with opened(settings) as stores:
        plan = measure(stores.datastore.moves().owned, seconds).plan(within / 100, at_most)
    document = balance_document(plan)
    if as_json:
        print_document(document)
    else:
        _show(plan)
        show(*(Text(each) for each in document.commands or ["No shard need be moved."]))
    return Exit.FINE


def _show(plan: BalancePlan) -> None:
    then = {each.name: each for each in plan.after}
    rows = [
        (
            each.name,
            f"{each.shards} → {then[each.name].shards}",
            f"{each.cells:,} → {then[each.name].cells:,}",
            f"{each.cells_per_second:,.1f} → {then[each.name].cells_per_second:,.1f}",
            f"{each.share:.0%} → {then[each.name].share:.0%}",
        )
        for each in plan.before
    ]
    show(table(("cluster", "shards", "cells", "cells/s", "share"), rows))
    if plan.proposals:
        moves = [
            (
                str(each.load.shard),
                each.load.cluster,
                each.to,
                f"{each.load.cells:,}",
                f"{each.load.cells_per_second:,.1f}",
            )
            for each in plan.proposals
        ]
        show(table(("shard", "from", "to", "cells", "cells/s"), moves))
