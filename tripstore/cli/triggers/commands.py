"""`tripstore triggers`: run the functions of a module, see how far they are, and mend what stopped."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, cast

import click
import msgspec
from rich.console import RenderableType
from rich.text import Text

from schemaless_core.errors import InvalidRequest
from schemaless_core.triggers.registry import Start
from tripstore.cli.documents import print_document
from tripstore.cli.exits import Exit
from tripstore.cli.options import CommandGroup, Settings, json_option, pass_settings
from tripstore.cli.questions import AnswerRefused, ask, yes_option
from tripstore.cli.tables import show, table
from tripstore.cli.triggers.groups import GroupView, look_at_groups, screen, shard_screen
from tripstore.cli.triggers.parked import parked
from tripstore.cli.triggers.resets import ResetDocument, ShardReset, check_removal, check_reset, planned_reset
from tripstore.cli.watching import refuse_document, watch
from tripstore.cli.worker.duty import (
    Duty,
    ReadLog,
    ServedTriggers,
    Size,
    imported,
    read_log_option,
    run_fleet,
    size_options,
)

WATCH_SECONDS = 2.0


class TriggersStatusDocument(msgspec.Struct, frozen=True):
    """The JSON document of `status`; `coordinator` is where the leases are."""

    workers: int
    coordinator: str
    is_fine: bool
    groups: list[GroupView]


class ChangeDocument(msgspec.Struct, frozen=True):
    """The JSON document of `retry`, `resume` and `remove`: how many parked cells it concerns."""

    group: str
    is_done: bool
    parked: int


class StartPlace(click.ParamType["Start"]):
    """Where offsets are set: now, the beginning, or a time with its zone."""

    name = "place"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Start:
        if isinstance(value, datetime) or value in ("now", "beginning"):
            return cast(Start, value)
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is none of now, beginning and 2026-03-01T12:00:00+00:00.", param, ctx)
        if moment.tzinfo is None:
            self.fail(f"{value!r} has no time zone; write {value}+00:00 for UTC.", param, ctx)
        return moment


@click.group(cls=CommandGroup)
def triggers() -> None:
    """Run functions for the cells of a column, and look after them.

    \b
    Example:
      tripstore triggers run billing --workers 4
      tripstore triggers status
    """


triggers.add_command(parked)


@triggers.command()
@click.argument("target", metavar="MODULE[:NAME]")
@size_options
@read_log_option
@json_option
@pass_settings
def run(
    settings: Settings,
    target: str,
    size: Size,
    read: ReadLog,
    as_json: bool,
) -> Exit:
    """Call the triggers of a module for new cells, until Ctrl-C.

    MODULE is imported as Python does, from the current folder too; NAME is one trigger of it or a list. Run it on as
    many hosts as you like: the shards are divided among all workers. A process that dies is started again.

    \b
    Example:
      tripstore triggers run billing
      tripstore triggers run billing:bill_rider --workers 4 --metrics-port 9100
    """
    found = imported(target)
    with settings.open() as datastore:
        for trigger in found:
            datastore.triggers.register(trigger)
    names = ", ".join(trigger.name for trigger in found)
    click.echo(f"Serving {names}, {size.workers} worker{'' if size.workers == 1 else 's'}.", err=True)
    duty = Duty(settings, size, ServedTriggers(target, read))
    return run_fleet(duty, as_json=as_json)


@triggers.command()
@click.argument("group", required=False)
@click.option("--shards", is_flag=True, help="Every shard: offset, head, lag, parked cells, owner, heir.")
@click.option("--watch", "is_watched", is_flag=True, help="Look again and again, until Ctrl-C.")
@json_option
@pass_settings
def status(settings: Settings, group: str | None, shards: bool, is_watched: bool, as_json: bool) -> Exit:
    """Show how far groups are, which workers serve them, and what to do where none does.

    Who is alive is seen by a heartbeat, so a look takes some seconds. Exit code 1 when a group is halted, a shard is
    not served, or a server does not answer.

    \b
    Example:
      tripstore triggers status
      tripstore triggers status bill_rider --shards
    """
    refuse_document(watch=is_watched, as_json=as_json)
    with settings.open() as datastore:

        def look() -> TriggersStatusDocument:
            views, workers = look_at_groups(datastore, group, has_shards=shards)
            if group is not None and not views:
                raise InvalidRequest(f"There is no group {group!r}.", hint="No trigger has run yet.")
            is_fine = all(view.is_fine for view in views)
            return TriggersStatusDocument(workers, datastore.coordination.place, is_fine, views)

        if is_watched:
            watch(look, _screen, WATCH_SECONDS)
            return Exit.FINE
        seen = look()
    if as_json:
        print_document(seen)
    else:
        show(*_screen(seen))
    return Exit.FINE if seen.is_fine else Exit.FAILED


@triggers.command()
@click.argument("group")
@click.option("--shard", type=click.IntRange(min=0), help="Only of this shard.")
@click.option("--added-id", type=click.IntRange(min=1), help="Only this cell of the shard.")
@click.option("--all", "is_all", is_flag=True, help="All parked cells of the group.")
@json_option
@pass_settings
def retry(settings: Settings, group: str, shard: int | None, added_id: int | None, is_all: bool, as_json: bool) -> None:
    """Have the workers that serve their shards try parked cells again now.

    \b
    Example:
      tripstore triggers retry bill_rider --shard 7 --added-id 1042
      tripstore triggers retry bill_rider --all
    """
    if is_all == (shard is not None):
        raise click.UsageError("Say which: --shard N, with --added-id N or without, or --all.")
    if added_id is not None and shard is None:
        raise click.UsageError("Added ids count per shard: say --shard too.")
    with settings.open() as datastore:
        count = datastore.triggers.retry(group, shard=shard, added_id=added_id)
    if as_json:
        print_document(ChangeDocument(group, count > 0, count))
    elif count:
        click.echo(f"{count:,} parked cells are due now; `tripstore triggers parked list {group}` shows what is left.")
    else:
        click.echo("No such cell is parked.")


@triggers.command()
@click.argument("group")
@json_option
@pass_settings
def resume(settings: Settings, group: str, as_json: bool) -> None:
    """Deliver a halted group's cells again. It halts anew when as many more cells are parked as halted it.

    \b
    Example:
      tripstore triggers resume bill_rider
    """
    with settings.open() as datastore:
        datastore.triggers.resume(group)
        count = datastore.triggers.parking.count(group)
    if as_json:
        print_document(ChangeDocument(group, True, count))
    else:
        left = f"; {count:,} cells are parked, `tripstore triggers retry {group} --all`" if count else ""
        click.echo(f"{group} runs{left}.")


@triggers.command()
@click.argument("group")
@click.option(
    "--to",
    "place",
    type=StartPlace(),
    required=True,
    metavar="now|beginning|TIME",
    help="Deliver what was put after this.",
)
@click.option("--shard", "shards", type=click.IntRange(min=0), multiple=True, help="Only this shard; may be repeated.")
@click.option("--dry-run", is_flag=True, help="Show the plan and change nothing.")
@yes_option
@json_option
@pass_settings
def reset(
    settings: Settings, group: str, place: Start, shards: tuple[int, ...], dry_run: bool, yes: bool, as_json: bool
) -> None:
    """Set a group's offsets: backwards, and cells are delivered again; forwards, and cells are skipped.

    Parked cells stay parked. Workers may run meanwhile; they start anew at the new offsets. The mirror's own group goes
    to the beginning only: what it skipped, Postgres would lack on the way back.

    \b
    Example:
      tripstore triggers reset bill_rider --to beginning --dry-run
      tripstore triggers reset bill_rider --to 2026-03-01T12:00:00+00:00 --shard 7 --shard 8
    """
    check_reset(group, place)
    with settings.open() as datastore:
        _check_shards(shards, datastore.config.shards)
        chosen = sorted(set(shards)) or None
        plan = planned_reset(datastore, group, place, chosen)
        if not dry_run:
            if not (yes or as_json):
                _print_reset(plan)
            ask(f"Set the offsets of {len(plan.shards)} shards? {_what_happens(plan)}", is_answered=yes)
            after = datastore.triggers.reset(group, place, chosen)
            plan = _done(plan, after)
    if as_json:
        print_document(plan)
    elif dry_run:
        _print_reset(plan)
    else:
        click.echo(f"The offsets of {len(plan.shards)} shards are set. {_what_happens(plan)}")


@triggers.command()
@click.argument("group")
@click.option("--with-parked", is_flag=True, help="Even if cells are parked: they will not be delivered.")
@click.option("--dry-run", is_flag=True, help="Say what would be forgotten and change nothing.")
@yes_option
@json_option
@pass_settings
def remove(settings: Settings, group: str, with_parked: bool, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Forget a group: its offsets and its leases. Run again, it is a new one.

    Refused while cells of it are parked, unless --with-parked says that they are to be forgotten, and for groups of the
    store's own.

    \b
    Example:
      tripstore triggers remove bill_rider
      tripstore triggers remove bill_rider --with-parked
    """
    check_removal(group)
    with settings.open() as datastore:
        [seen] = datastore.triggers.status(group)
        if not dry_run:
            if seen.parked and not with_parked:
                raise AnswerRefused(
                    f"{seen.parked:,} cells of {group} are parked; nothing was changed.",
                    hint=f"`tripstore triggers retry {group} --all`, or say --with-parked: they will not be delivered.",
                )
            ask(f"Forget {group}, its offsets and {seen.parked:,} parked cells?", is_answered=yes)
            datastore.triggers.remove(group)
    if as_json:
        print_document(ChangeDocument(group, not dry_run, seen.parked))
    else:
        would = "would be" if dry_run else "are"
        click.echo(f"{group}, its {len(seen.shards)} offsets and {seen.parked:,} parked cells {would} forgotten.")


def _screen(seen: TriggersStatusDocument) -> Iterator[RenderableType]:
    if not seen.groups:
        yield Text("No group yet: `tripstore triggers run MODULE` registers the triggers of a module.")
        return
    yield Text(
        f"{seen.workers} workers are alive; leases: {seen.coordinator}", style="" if seen.workers else "bold red"
    )
    yield from screen(seen.groups)
    for view in seen.groups:
        if view.shard_views is not None:
            yield Text()
            yield Text(view.name, style="bold")
            yield from shard_screen(view)


def _check_shards(chosen: tuple[int, ...], shards: int) -> None:
    for shard in chosen:
        if shard >= shards:
            raise InvalidRequest(f"There is no shard {shard}.", hint=f"Shards are 0 to {shards - 1}.")


def _done(plan: ResetDocument, after: dict[int, int]) -> ResetDocument:
    """The plan as it came out: heads may have grown since."""
    resets = []
    for shard in plan.shards:
        moved = 0 if shard.before is None else after[shard.shard] - shard.before
        resets.append(ShardReset(shard.shard, shard.before, after[shard.shard], max(0, -moved), max(0, moved)))
    again, skipped = sum(each.again for each in resets), sum(each.skipped for each in resets)
    return ResetDocument(plan.group, plan.to, True, again, skipped, resets)


def _print_reset(plan: ResetDocument) -> None:
    rows = [
        (
            str(shard.shard),
            "unknown" if shard.before is None else f"{shard.before:,}",
            f"{shard.after:,}",
            f"{shard.again:,}" if shard.again else "",
            f"{shard.skipped:,}" if shard.skipped else "",
        )
        for shard in plan.shards
        if shard.before != shard.after
    ]
    if rows:
        show(table(("shard", "offset", "to", "again", "skipped"), rows))
    click.echo(_what_happens(plan))


def _what_happens(plan: ResetDocument) -> str:
    """Added ids are dense, so the difference of two is a number of cells: of all columns, the group's among them."""
    return f"{plan.again:,} cells of the log are delivered again, {plan.skipped:,} are skipped."
