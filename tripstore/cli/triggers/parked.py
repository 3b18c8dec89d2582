"""`tripstore triggers parked`: cells that were set aside."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import click
import msgspec

from schemaless_core.cell.canonical import canonical_bytes
from schemaless_core.datastore import Datastore
from schemaless_core.engine.groups import ParkedRow
from schemaless_core.errors import InvalidRequest
from tripstore.cli.documents import CellDocument, cell_document, print_document
from tripstore.cli.options import CommandGroup, Settings, json_option, pass_settings
from tripstore.cli.tables import show, table
from tripstore.cli.triggers.groups import PARKED_MAX

DEFAULT_LIMIT = 100


class ParkedDocument(msgspec.Struct, frozen=True):
    """A parked cell; `cell` is null in a list, which shows no bodies."""

    shard: int
    added_id: int
    row_key: UUID
    column_name: str
    ref_key: int
    attempts: int
    is_waiting: bool
    error: str
    parked_at: datetime
    next_attempt_at: datetime
    is_due: bool
    cell: CellDocument | None


class ParkedList(msgspec.Struct, frozen=True):
    """The JSON document of `list`."""

    group: str
    parked: list[ParkedDocument]
    is_complete: bool


@click.group(cls=CommandGroup)
def parked() -> None:
    """Look at the cells that a group set aside.

    \b
    Example:
      tripstore triggers parked list bill_rider
    """


@parked.command("list")
@click.argument("group")
@click.option("--shard", type=click.IntRange(min=0), help="Only of this shard.")
@click.option("--limit", type=click.IntRange(1, PARKED_MAX), default=DEFAULT_LIMIT, show_default=True)
@json_option
@pass_settings
def list_(settings: Settings, group: str, shard: int | None, limit: int, as_json: bool) -> None:
    """Show parked cells in the order of their logs, with what their last call raised.

    \b
    Example:
      tripstore triggers parked list bill_rider --shard 7
    """
    with settings.open() as datastore:
        _check_shard(datastore, shard)
        found = datastore.triggers.parked(group, shard=shard, limit=limit + 1)
    is_complete, rows = len(found) <= limit, found[:limit]
    if as_json:
        print_document(ParkedList(group, [_document(row) for row in rows], is_complete))
    elif rows:
        show(table(("shard", "added id", "cell", "attempts", "next", "error"), map(_line, rows)))
        if not is_complete:
            click.echo(f"These are the first {limit}; --limit shows more.", err=True)
        click.echo(f"`tripstore triggers parked show {group} SHARD ADDED_ID` shows one with its body.", err=True)
    else:
        click.echo("Nothing is parked.")


@parked.command("show")
@click.argument("group")
@click.argument("shard", type=click.IntRange(min=0))
@click.argument("added_id", type=click.IntRange(min=1))
@json_option
@pass_settings
def show_(settings: Settings, group: str, shard: int, added_id: int, as_json: bool) -> None:
    """Show one parked cell with its body, its attempts and when it is tried next.

    \b
    Example:
      tripstore triggers parked show bill_rider 7 1042
    """
    with settings.open() as datastore:
        _check_shard(datastore, shard)
        row = _find(datastore, group, shard, added_id)
        cell = datastore.get_cell(UUID(bytes=row.row_key), row.column_name.decode(), row.ref_key)
    document = _document(row)
    if as_json:
        shown = None if cell is None else cell_document(cell)
        print_document(msgspec.structs.replace(document, cell=shown))
        return
    body = "it is not in the store" if cell is None else canonical_bytes(cell.body).decode()
    show(
        table(
            ("", ""),
            [
                ("cell", f"{document.row_key} {document.column_name} {document.ref_key}"),
                ("place", f"added id {added_id} of shard {shard}"),
                ("body", body),
                ("attempts", str(row.attempts)),
                ("error", row.error),
                ("parked", f"{document.parked_at}"),
                ("next attempt", _next(row)),
            ],
        )
    )


def _find(datastore: Datastore, group: str, shard: int, added_id: int) -> ParkedRow:
    for row in datastore.triggers.parked(group, shard=shard, limit=PARKED_MAX):
        if row.added_id == added_id:
            return row
    raise InvalidRequest(
        f"The cell {added_id} of shard {shard} is not parked by {group}.",
        hint=f"It was delivered meanwhile, or never parked: `tripstore triggers parked list {group}`.",
    )


def _check_shard(datastore: Datastore, shard: int | None) -> None:
    shards = datastore.config.shards
    if shard is not None and shard >= shards:
        raise InvalidRequest(f"There is no shard {shard}.", hint=f"Shards are 0 to {shards - 1}.")


def _document(row: ParkedRow) -> ParkedDocument:
    return ParkedDocument(
        row.shard, row.added_id, UUID(bytes=row.row_key), row.column_name.decode(), row.ref_key, row.attempts,
        row.is_waiting, row.error, row.parked_at, row.next_attempt_at, row.is_due, None,
    )  # fmt: skip


def _line(row: ParkedRow) -> tuple[str, ...]:
    cell = f"{UUID(bytes=row.row_key)} {row.column_name.decode()} {row.ref_key}"
    return str(row.shard), str(row.added_id), cell, str(row.attempts), _next(row), row.error


def _next(row: ParkedRow) -> str:
    if row.is_waiting:
        return "after those of its row"
    return "now" if row.is_due else f"{row.next_attempt_at:%Y-%m-%d %H:%M:%S}"
