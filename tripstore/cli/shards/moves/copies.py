"""`tripstore shards copies`: what moved shards have left on their old clusters, and how it is dropped."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import click
from rich.text import Text

from schemaless_core.errors import SchemalessError
from schemaless_core.moves.moves import Moves, OldCopy
from tripstore.cli.documents import print_document
from tripstore.cli.exits import Exit
from tripstore.cli.options import Command, Settings, json_option, pass_settings
from tripstore.cli.questions import ask, yes_option
from tripstore.cli.shards.moves.commands import ShardList
from tripstore.cli.shards.moves.documents import CopiesDocument, copies_document
from tripstore.cli.tables import show, table
from tripstore.cli.worker.duty import opened

#: The way back is short as long as there is a copy.
HOURS = 24.0


@click.command(cls=Command)
@click.argument("shards", nargs=-1, type=ShardList(), metavar="[SHARD…]")
@click.option("--on", "cluster", metavar="CLUSTER", help="Those of one cluster alone.")
@click.option("--drop", "is_drop", is_flag=True, help="Drop those that are old enough: their room is free then.")
@click.option(
    "--older-than",
    "hours",
    type=click.FloatRange(min=0),
    default=HOURS,
    show_default=True,
    metavar="HOURS",
    help="How long ago the shard must have moved for its copy to be dropped.",
)
@yes_option
@json_option
@pass_settings
def copies(
    settings: Settings,
    shards: tuple[tuple[int, ...], ...],
    cluster: str | None,
    is_drop: bool,
    hours: float,
    yes: bool,
    as_json: bool,
) -> Exit:
    """Show the copies that moved shards have left on their old clusters, or drop them.

    Those of all shards, or of the shards that are named. As long as there is one, the way back needs only what came
    since. Without --drop nothing is changed. A copy that a move is making, or may need, is not dropped. The command may
    be repeated.

    Exit code 1 when one could not be dropped.

    \b
    Example:
      tripstore shards copies
      tripstore shards copies --drop --on a
      tripstore shards copies 7 0-3 --drop --older-than 0
    """
    wanted = {shard for each in shards for shard in each}
    with opened(settings) as stores:
        moves = stores.datastore.moves()
        found = [
            each
            for each in moves.old_copies()
            if (not wanted or each.shard in wanted) and cluster in (None, each.cluster)
        ]
        old = _old(moves, found, timedelta(hours=hours)) if is_drop else []
        dropped = _dropped(moves, old, is_answered=yes) if old else []
    document = copies_document([each for each in found if each not in dropped], dropped)
    if as_json:
        print_document(document)
    else:
        _show(document)
    return Exit.FAILED if len(dropped) < len(old) else Exit.FINE


def _old(moves: Moves, found: Sequence[OldCopy], age: timedelta) -> list[OldCopy]:
    """Those that are old enough. When a shard moved whose record is gone is not known."""
    last = moves.jobs.now() - age
    return [each for each in found if not age or (each.moved_at is not None and each.moved_at <= last)]


def _dropped(moves: Moves, old: Sequence[OldCopy], *, is_answered: bool) -> list[OldCopy]:
    cells = sum(each.cells for each in old)
    ask(f"Drop {len(old):,} copies with {cells:,} cells? Ways back copy all of it then.", is_answered=is_answered)
    dropped: list[OldCopy] = []
    for each in old:
        try:
            dropped += [each] if moves.drop(each) else []
        except SchemalessError as error:  # the others are dropped all the same
            place = f"The copy of shard {each.shard} on cluster {each.cluster} stays"
            click.echo(f"{place}: {error.message} {error.hint or ''}".rstrip(), err=True)
    return dropped


def _show(document: CopiesDocument) -> None:
    show(*([Text(f"{len(document.dropped):,} copies were dropped.")] if document.dropped else []))
    rows = [(str(each.shard), each.cluster, f"{each.cells:,}", str(each.moved_at or "")) for each in document.copies]
    show(table(("shard", "copy on", "cells", "moved at"), rows) if rows else Text("No moved shard has left a copy."))
