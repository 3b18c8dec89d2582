"""`tripstore cell`: read and write single cells, as the API does."""

from __future__ import annotations

import sys
from typing import Any, Literal
from uuid import UUID

import click
import msgspec

from schemaless_core.cell.answers import ANY, PutResult
from schemaless_core.cell.canonical import canonical_bytes
from schemaless_core.cell.cell import Cell
from schemaless_core.store import CellStore
from tripstore.cli.cell.arguments import ExpectedLatest, RowKey
from tripstore.cli.cell.bodies import parse_body
from tripstore.cli.cell.compress import compress
from tripstore.cli.cell.log import log
from tripstore.cli.cell.train import dictionaries, train
from tripstore.cli.documents import CellDocument, PutDocument, cell_document, print_document
from tripstore.cli.exits import Exit
from tripstore.cli.options import CommandGroup, Settings, deadline_option, json_option, pass_settings, read_option
from tripstore.cli.tables import show, table
from tripstore.cli.visible import on_terminal

ReadFrom = Literal["primary", "replica"]

row_key_argument = click.argument("row_key", type=RowKey(), metavar="ROW_KEY")
new_row_key_argument = click.argument("row_key", type=RowKey(may_be_new=True), metavar="ROW_KEY|new")
column_argument = click.argument("column_name", metavar="COLUMN")
body_argument = click.argument("body", metavar="BODY|-")


class FoundDocument(msgspec.Struct, frozen=True):
    """The JSON document of `get`; null when there is no such cell."""

    cell: CellDocument | None


class CellsDocument(msgspec.Struct, frozen=True):
    """The JSON document of `history` and `row`."""

    cells: list[CellDocument]


@click.group(cls=CommandGroup)
def cell() -> None:
    """Read and write cells.

    \b
    Example:
      tripstore cell put new BASE 1 '{"city": "SF"}'
      tripstore cell get 7d4bf1a0-92c5-4bf6-8d0c-8f8f3c1c9a11 BASE
    """


@cell.command()
@row_key_argument
@column_argument
@click.argument("ref_key", type=int, required=False)
@read_option
@deadline_option
@json_option
@pass_settings
def get(
    settings: Settings,
    row_key: UUID,
    column_name: str,
    ref_key: int | None,
    read: ReadFrom,
    deadline: float | None,
    as_json: bool,
) -> Exit:
    """Print the body of a cell, of the latest without REF_KEY; on stderr, where it is. Exit code 1 without one.

    \b
    Example:
      tripstore cell get 7d4bf1a0-92c5-4bf6-8d0c-8f8f3c1c9a11 STATUS
      tripstore cell get 7d4bf1a0-92c5-4bf6-8d0c-8f8f3c1c9a11 STATUS 2 --read replica
    """
    with settings.connect() as connected:
        store = connected.using(read=read, deadline=deadline)
        found = (
            store.get_cell_latest(row_key, column_name)
            if ref_key is None
            else store.get_cell(row_key, column_name, ref_key)
        )
        shard = store.shard_of(row_key)
    if as_json:
        print_document(FoundDocument(cell_document(found) if found else None))
    if found is None:
        name = f"({row_key}, {column_name}{'' if ref_key is None else f', {ref_key}'})"
        click.echo(f"There is no cell {name} in shard {shard}.\nTry `tripstore cell row {row_key}`.", err=True)
        return Exit.FAILED
    if not as_json:
        place = f"shard {shard}, added id {found.added_id}, {found.created_at}"
        click.echo(f"ref key {found.ref_key}, {place}", err=True)
        click.echo(on_terminal(_body(found)))
    return Exit.FINE


@cell.command()
@new_row_key_argument
@column_argument
@click.argument("ref_key", type=int)
@body_argument
@click.option(
    "--expect-latest",
    type=ExpectedLatest(),
    default=ANY,
    metavar="REF_KEY|none",
    help="Store it only when this is the column's highest ref key; none: no cell yet.",
)
@deadline_option
@json_option
@pass_settings
def put(
    settings: Settings,
    row_key: UUID,
    column_name: str,
    ref_key: int,
    body: str,
    expect_latest: Any,
    deadline: float | None,
    as_json: bool,
) -> None:
    """Store a cell: BODY is JSON, - reads it from stdin, and null is a tombstone. `new` makes a row key.

    \b
    Example:
      tripstore cell put new BASE 1 '{"city": "SF", "fare": 23.5}'
      tripstore cell put 7d4bf1a0-92c5-4bf6-8d0c-8f8f3c1c9a11 STATUS 2 - --expect-latest 1 < status.json
    """
    value = parse_body(_text(body))
    with settings.connect() as connected:
        result = connected.using(deadline=deadline).put_cell(
            row_key, column_name, ref_key, value, expect_latest=expect_latest
        )
    _print_result(PutDocument(row_key, column_name, result), as_json)


@cell.command()
@new_row_key_argument
@column_argument
@body_argument
@deadline_option
@json_option
@pass_settings
def append(
    settings: Settings, row_key: UUID, column_name: str, body: str, deadline: float | None, as_json: bool
) -> None:
    """Store a body at the column's next free ref key; let it carry an event id, by which a repeat is told.

    \b
    Example:
      tripstore cell append 7d4bf1a0-92c5-4bf6-8d0c-8f8f3c1c9a11 NOTES '{"event": 77, "text": "left a bag"}'
    """
    value = parse_body(_text(body))
    with settings.connect() as connected:
        result = connected.using(deadline=deadline).append_cell(row_key, column_name, value)
    _print_result(PutDocument(row_key, column_name, result), as_json)


@cell.command()
@row_key_argument
@column_argument
@click.option("--before", type=int, metavar="REF_KEY", help="Only versions below this ref key.")
@click.option("--limit", type=int, default=100, show_default=True)
@read_option
@deadline_option
@json_option
@pass_settings
def history(
    settings: Settings,
    row_key: UUID,
    column_name: str,
    before: int | None,
    limit: int,
    read: ReadFrom,
    deadline: float | None,
    as_json: bool,
) -> None:
    """Show the versions of a column, newest first.

    \b
    Example:
      tripstore cell history 7d4bf1a0-92c5-4bf6-8d0c-8f8f3c1c9a11 STATUS --limit 10
    """
    with settings.connect() as connected:
        store = connected.using(read=read, deadline=deadline)
        found = store.get_history(row_key, column_name, before=before, limit=limit)
    _print_cells(found, as_json)


@cell.command()
@row_key_argument
@click.argument("columns", nargs=-1, metavar="[COLUMN]...")
@read_option
@deadline_option
@json_option
@pass_settings
def row(
    settings: Settings,
    row_key: UUID,
    columns: tuple[str, ...],
    read: ReadFrom,
    deadline: float | None,
    as_json: bool,
) -> None:
    """Show the latest cell of each column of a row, tombstones included.

    \b
    Example:
      tripstore cell row 7d4bf1a0-92c5-4bf6-8d0c-8f8f3c1c9a11
    """
    with settings.connect() as connected:
        found = _row(connected.using(read=read, deadline=deadline), row_key, columns)
    _print_cells(found, as_json)


cell.add_command(log)
cell.add_command(train)
cell.add_command(dictionaries)
cell.add_command(compress)


def _row(store: CellStore, row_key: UUID, columns: tuple[str, ...]) -> list[Cell]:
    found = store.get_row(row_key, columns or None)
    return [found[name] for name in sorted(found)]


def _text(body: str) -> str:
    return sys.stdin.read() if body == "-" else body


def _body(cell: Cell) -> str:
    return canonical_bytes(cell.body).decode()


def _print_cells(cells: list[Cell], as_json: bool) -> None:
    if as_json:
        print_document(CellsDocument([cell_document(cell) for cell in cells]))
        return
    rows = [
        (cell.column_name, str(cell.ref_key), str(cell.added_id), str(cell.created_at), _body(cell)) for cell in cells
    ]
    show(table(("column", "ref key", "added id", "created at", "body"), rows))


def _print_result(document: PutDocument, as_json: bool) -> None:
    if as_json:
        print_document(document)
        return
    result: PutResult = document.result
    key = f"({document.row_key}, {document.column_name}, {result.ref_key})"
    click.echo(f"{result.status}: {key} is in shard {result.shard} under added id {result.added_id}.")
