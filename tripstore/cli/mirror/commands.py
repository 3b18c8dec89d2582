"""`tripstore mirror`: how far the other backend is behind, carrying, and the changes that were set aside."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import UUID

import click

from schemaless_core.cell.cell import Cell, CellKey
from schemaless_core.errors import InvalidRequest, SchemalessError
from tripstore.cli.documents import print_document
from tripstore.cli.exits import Exit
from tripstore.cli.mirror.documents import (
    DrainDocument,
    ParkedChangeList,
    RetryDocument,
    ShowDocument,
    SkipDocument,
    parked_document,
    side_document,
    status_document,
)
from tripstore.cli.mirror.keys import KeyOrRow, WholeKey, key_text
from tripstore.cli.mirror.screens import parked_row, print_drained, print_sides, screen
from tripstore.cli.options import CommandGroup, Settings, json_option, pass_settings
from tripstore.cli.progress import Advance, progress
from tripstore.cli.questions import ask, yes_option
from tripstore.cli.tables import show, table
from tripstore.cli.watching import refuse_document, watch
from tripstore.cli.worker.commands import serve_built_ins
from tripstore.cli.worker.duty import ReadLog, Size, read_log_option, size_options
from tripstore.migration.mirror.draining import Tell
from tripstore.migration.mirror.mirror import Mirror

DEFAULT_LIMIT = 100
PARKED_MAX = 100_000
#: How long `drain` goes on while nothing moves.
PATIENCE_SECONDS = 15.0

reverse_option = click.option("--reverse", "is_reverse", is_flag=True, help="Of the reverse mirror.")


@click.group(cls=CommandGroup)
def mirror() -> None:
    """Carry what the authority has to the other backend, and look after what cannot be carried.

    Forward, to Schemaless, changes are carried by relays; back, into the legacy tables, by a group of the trigger
    workers. Both are done by `tripstore worker run`.

    \b
    Example:
      tripstore mirror status
      tripstore mirror parked
    """


@mirror.command()
@size_options
@read_log_option
@json_option
@pass_settings
def run(
    settings: Settings,
    size: Size,
    read: ReadLog,
    as_json: bool,
) -> Exit:
    """Carry until Ctrl-C: the same as `tripstore worker run --only mirror`.

    \b
    Example:
      tripstore mirror run --workers 2
    """
    return serve_built_ins(settings, ("mirror",), size, read, as_json=as_json)


@mirror.command()
@click.option("--watch", "is_watched", is_flag=True, help="Look again and again, until Ctrl-C.")
@click.option("--interval", type=click.FloatRange(min=0.1), default=1.0, show_default=True, metavar="SECONDS")
@json_option
@pass_settings
def status(settings: Settings, is_watched: bool, interval: float, as_json: bool) -> Exit:
    """Show in which direction is carried, how far the other backend is behind, and what is set aside.

    Exit code 1 when changes are parked, when no worker carries, or when a server does not answer.

    \b
    Example:
      tripstore mirror status
      tripstore mirror status --watch
    """
    refuse_document(watch=is_watched, as_json=as_json)
    with _opened(settings) as found:
        if is_watched:
            watch(found.status, screen, interval)
            return Exit.FINE
        seen = found.status()
    if as_json:
        print_document(status_document(seen))
    else:
        show(*screen(seen))
    return Exit.FINE if seen.is_fine else Exit.FAILED


@mirror.command()
@click.option(
    "--patience",
    type=click.FloatRange(min=0),
    default=PATIENCE_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="Give up when nothing moves for so long.",
)
@json_option
@pass_settings
def drain(settings: Settings, patience: float, as_json: bool) -> Exit:
    """Carry everything, in the direction of the phase, and end when nothing is left.

    Others may carry meanwhile. Exit code 1 when something cannot be carried or is set aside; it says what.

    \b
    Example:
      tripstore mirror drain
    """
    with _opened(settings) as found, progress("carried") as advance:
        seen = found.status()
        if seen.direction is None:
            hint = "`tripstore phase set dualwrite` begins to." if seen.is_rehearsal else "The migration is complete."
            raise InvalidRequest(f"In the phase {seen.phase} nothing is mirrored.", hint=hint)
        direction = seen.direction
        drained = found.drain(direction, patience, _told(advance, patience))
    if as_json:
        left = (drained.carried, drained.left, drained.parked, drained.reason)
        print_document(DrainDocument(direction, drained.is_empty, *left))
    else:
        print_drained(direction, drained)
    return Exit.FINE if drained.is_empty else Exit.FAILED


@mirror.command("parked")
@reverse_option
@click.option("--limit", type=click.IntRange(1, PARKED_MAX), default=DEFAULT_LIMIT, show_default=True)
@json_option
@pass_settings
def parked_(settings: Settings, is_reverse: bool, limit: int, as_json: bool) -> None:
    """List changes that were set aside, oldest first, and why.

    Schemaless will not take them (`conflict`: it holds another body under the key; `refused`: no cell can be like
    this), or no cell can be made of their row (`unreadable`). They stay in the queue and close the way to a switch.
    With --reverse: cells that the legacy tables cannot hold, and those of their rows that wait behind them.

    \b
    Example:
      tripstore mirror parked
      tripstore mirror parked --reverse --limit 1000
    """
    with _opened(settings) as found:
        listed = found.parked(is_reverse=is_reverse).listed(limit + 1)
    is_complete, listed = len(listed) <= limit, listed[:limit]
    if as_json:
        print_document(
            ParkedChangeList(_direction(is_reverse), [parked_document(each) for each in listed], is_complete)
        )
    elif listed:
        show(table(("change", "kind", "why", "attempts"), map(parked_row, listed)))
        if not is_complete:
            click.echo(f"These are the first {limit}; --limit shows more.", err=True)
        click.echo("`tripstore mirror show CHANGE` shows one as both backends have it.", err=True)
    else:
        click.echo("Nothing is parked.")


@mirror.command("show")
@click.argument("key", type=WholeKey(), metavar="ROW_KEY/COLUMN/REF_KEY")
@json_option
@pass_settings
def show_(settings: Settings, key: CellKey, as_json: bool) -> Exit:
    """Show what both backends have under a key, and why its change is parked. Exit code 1 when they differ.

    \b
    Example:
      tripstore mirror show 7d4bf1a0-92c5-4bf6-8d0c-8f8f3c1c9a11/BASE/3
    """
    with _opened(settings) as found:
        postgres, schemaless = _side(found.at_postgres, key), _side(found.at_schemaless, key)
        forward, reverse = (found.parked(is_reverse=each).find(key) for each in (False, True))
    is_equal = None if postgres[1] or schemaless[1] else postgres[0] == schemaless[0]
    if as_json:
        parked = (None if each is None else parked_document(each) for each in (forward, reverse))
        sides = (side_document(*postgres), side_document(*schemaless))
        print_document(ShowDocument(key_text(key), is_equal, *sides, *parked))
    else:
        print_sides(key, postgres, schemaless, forward, reverse)
    return Exit.FAILED if is_equal is False else Exit.FINE


@mirror.command()
@click.argument("keys", type=KeyOrRow(), nargs=-1, metavar="[ROW_KEY[/COLUMN/REF_KEY]]...")
@click.option("--all", "is_all", is_flag=True, help="Everything that is parked in this direction.")
@reverse_option
@json_option
@pass_settings
def retry(settings: Settings, keys: tuple[CellKey | UUID, ...], is_all: bool, is_reverse: bool, as_json: bool) -> None:
    """Have the workers carry parked changes again. A row key alone means all changes of that row.

    \b
    Example:
      tripstore mirror retry 7d4bf1a0-92c5-4bf6-8d0c-8f8f3c1c9a11/BASE/3
      tripstore mirror retry --reverse --all
    """
    if is_all == bool(keys):
        raise click.UsageError("Say which: keys as `tripstore mirror parked` shows them, or --all.")
    wanted = set(keys)

    def is_wanted(key: CellKey) -> bool:
        return key in wanted or key.row_key in wanted

    with _opened(settings) as found:
        count = found.parked(is_reverse=is_reverse).retry(None if is_all else is_wanted)
    if as_json:
        print_document(RetryDocument(_direction(is_reverse), count))
    elif count:
        what = "cell is" if count == 1 else "cells are"
        way = " --reverse" if is_reverse else ""
        click.echo(f"{count:,} parked {what} due now; `tripstore mirror parked{way}` shows what comes back.")
    else:
        click.echo("No such change is parked.")


@mirror.command()
@click.argument("keys", type=WholeKey(), nargs=-1, metavar="[ROW_KEY/COLUMN/REF_KEY]...")
@click.option("--all", "is_all", is_flag=True, help="Every parked change that can be given up; the others stay.")
@click.option("--why", required=True, help="For the audit log.")
@click.option("--dry-run", is_flag=True, help="Say whether they can be given up, and change nothing.")
@yes_option
@json_option
@pass_settings
def skip(
    settings: Settings, keys: tuple[CellKey, ...], is_all: bool, why: str, dry_run: bool, yes: bool, as_json: bool
) -> None:
    """Give up parked changes that a later version has replaced. Schemaless will lack them, or keep what it has there.

    Refused unless Schemaless has a later version of the row, as Postgres has it, and the row's legacy id.

    \b
    Example:
      tripstore mirror skip 7d4bf1a0-92c5-4bf6-8d0c-8f8f3c1c9a11/BASE/3 --why "put by a test"
      tripstore mirror skip --all --why "what the import wrote, ticket 4711" --dry-run
    """
    if is_all == bool(keys):
        raise click.UsageError("Say which: keys as `tripstore mirror parked` shows them, or --all.")
    with _opened(settings) as found:
        skipping = found.skipping()
        chosen, left = skipping.replaced() if is_all else (list(keys), 0)
        skipping.refuse_needed(chosen)
        if chosen and not dry_run:
            ask(f"Give up {len(chosen):,} changes for ever?", is_answered=yes)
            skipping.skip(chosen, why)
    if as_json:
        print_document(SkipDocument(not dry_run, [key_text(key) for key in chosen], left))
        return
    click.echo(f"{len(chosen):,} {'could be ' if dry_run else ''}given up.")
    if left:
        click.echo(f"{left:,} stay: Schemaless cannot do without them; `tripstore mirror parked` lists them.", err=True)


@contextmanager
def _opened(settings: Settings) -> Iterator[Mirror]:
    if settings.load().legacy is None:
        raise InvalidRequest("There is nothing to mirror: the configuration has no `legacy:`.", hint="Add it.")
    with settings.connect() as store:
        yield Mirror(store.facade)


def _side(look: Callable[[CellKey], Cell | None], key: CellKey) -> tuple[Cell | None, str | None]:
    """What a backend has, or why it cannot say."""
    try:
        return look(key), None
    except SchemalessError as error:
        return None, error.message


def _told(advance: Advance, patience: float) -> Tell:
    """Progress, and a sentence whenever another reason stops it."""
    told = ""

    def tell(carried: int, left: int, why: str) -> None:
        nonlocal told
        if why not in ("", told):
            click.echo(f"Nothing is carried just now: {why.rstrip('.')}. Tried again for {patience:g} s.", err=True)
        told = why
        advance(carried, carried + left)

    return tell


def _direction(is_reverse: bool) -> str:
    return "reverse" if is_reverse else "forward"
