"""`tripstore cell log`: the log of one shard, in the order in which its cells were committed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from typing import Literal

import click
import msgspec

from schemaless_core.cell.answers import Location, Position, ShardPage
from schemaless_core.cell.canonical import canonical_bytes
from schemaless_core.store import CellStore
from tripstore.cli.cell.arguments import PlaceInLog, located
from tripstore.cli.documents import CellDocument, cell_document, print_document
from tripstore.cli.options import Command, Settings, deadline_option, json_option, pass_settings, read_option
from tripstore.cli.visible import on_terminal

POLL_SECONDS = 0.5
PAGE_CELLS = 1000
DEFAULT_LIMIT = 100


class LogDocument(msgspec.Struct, frozen=True):
    """The JSON document of `log`; `--from` takes `next` to go on."""

    cells: list[CellDocument]
    position: Position
    head: int
    next: str


@click.command(cls=Command)
@click.argument("shard", type=int)
@click.option(
    "--from",
    "place",
    type=PlaceInLog(),
    default="0",
    metavar="LOCATION",
    help="After this added id or EPOCH:ADDED_ID, or from this time on.",
)
@click.option("--limit", type=click.IntRange(min=1), help=f"At most so many; {DEFAULT_LIMIT} unless followed.")
@click.option("--follow", is_flag=True, help="Wait for more, until Ctrl-C.")
@read_option
@deadline_option
@json_option
@pass_settings
def log(
    settings: Settings,
    shard: int,
    place: int | datetime | tuple[int, int],
    limit: int | None,
    follow: bool,
    read: Literal["primary", "replica"],
    deadline: float | None,
    as_json: bool,
) -> None:
    """Show the cells of a shard in commit order: added ids are dense, nothing ever appears below one you have seen.

    \b
    Example:
      tripstore cell log 7 --from 1000 --limit 10
      tripstore cell log 7 --from 2026-03-01T12:00:00+00:00 --follow
    """
    if follow and as_json:
        raise click.UsageError("--follow has no end, and --json is one document: leave one of them out.")
    with settings.connect() as connected:
        store = connected.using(read=read, deadline=deadline)
        start = located(connected.facade.config.core.datastore, place)
        wanted = DEFAULT_LIMIT if limit is None and not follow else limit
        pages = _pages(store, shard, start, wanted, follow)
        if as_json:
            _print_pages(list(pages))
        else:
            for page in pages:
                _print_page(page, is_quiet=follow)


def _pages(store: CellStore, shard: int, start: Location, limit: int | None, follow: bool) -> Iterator[ShardPage]:
    """Yield pages until the limit or, unless followed, the head is reached; at least one."""
    left = limit
    while True:
        page = store.get_cells_for_shard(shard, start, PAGE_CELLS if left is None else min(left, PAGE_CELLS))
        yield page
        start = page.position
        left = None if left is None else left - len(page.cells)
        if left == 0:
            return
        if page.next_location >= page.head:
            if not follow:
                return
            time.sleep(POLL_SECONDS)


def _print_pages(pages: list[ShardPage]) -> None:
    last = pages[-1]
    cells = [cell_document(cell) for page in pages for cell in page.cells]
    print_document(LogDocument(cells, last.position, last.head, _place(last)))


def _print_page(page: ShardPage, *, is_quiet: bool) -> None:
    for cell in page.cells:
        key = f"{cell.row_key} {cell.column_name} {cell.ref_key}"
        click.echo(on_terminal(f"{cell.added_id} {cell.created_at} {key} {canonical_bytes(cell.body).decode()}"))
    if page.cells or not is_quiet:
        click.echo(f"at {page.next_location} of {page.head}; go on with --from {_place(page)}", err=True)


def _place(page: ShardPage) -> str:
    return f"{page.position.epoch}:{page.position.added_id}"
