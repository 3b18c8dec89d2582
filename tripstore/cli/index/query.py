"""`tripstore index query`: which rows have a shard value, as an index knows them."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

import click
import msgspec
from rich.text import Text

from schemaless_core.cell.answers import IndexEntry, IndexPage, Scalar
from schemaless_core.cell.canonical import canonical_bytes
from schemaless_core.datastore import Datastore
from schemaless_core.definitions.index import IndexDefinition
from tripstore.cli.documents import CellDocument, cell_document, print_document
from tripstore.cli.index.conditions import parse_condition, typed
from tripstore.cli.options import Command, Settings, deadline_option, json_option, pass_settings, read_option
from tripstore.cli.tables import show, table


class EntryDocument(msgspec.Struct, frozen=True):
    """An entry; `cells` is null unless columns were asked for."""

    row_key: UUID
    fields: dict[str, Scalar | None]
    cells: dict[str, CellDocument] | None


class PageDocument(msgspec.Struct, frozen=True):
    """The JSON document of `query`; `--cursor` takes `cursor` to go on, null: there is no more."""

    entries: list[EntryDocument]
    cursor: str | None


@click.command(cls=Command)
@click.argument("name")
@click.argument("shard_value")
@click.option(
    "--where",
    "conditions",
    multiple=True,
    metavar="CONDITION",
    help="FIELD OPERATOR VALUE; = != < <= > >=, `in A,B`, `between A and B`. May be repeated: all must hold.",
)
@click.option("--order-by", metavar="FIELD", help="Order by this field, then by row key.")
@click.option("--desc", "descending", is_flag=True, help="The other way round.")
@click.option("--limit", type=int, default=100, show_default=True)
@click.option("--cursor", metavar="CURSOR", help="Go on where a page with the same question ended.")
@click.option("--columns", metavar="COLUMNS", help="Show the latest cells of these columns (A,B), or of all: '*'.")
@click.option("--verified", is_flag=True, help="Check each entry against its cells, and find those not written yet.")
@read_option
@deadline_option
@json_option
@pass_settings
def query(
    settings: Settings,
    name: str,
    shard_value: str,
    conditions: tuple[str, ...],
    order_by: str | None,
    descending: bool,
    limit: int,
    cursor: str | None,
    columns: str | None,
    verified: bool,
    read: Literal["primary", "replica"],
    deadline: float | None,
    as_json: bool,
) -> None:
    """Find the rows that have SHARD_VALUE in the index's first field.

    \b
    Example:
      tripstore index query driver_partner_index 4b1e2f6c-6a2b-4f0e-9d7c-0d6a3c1f9b55 --columns BASE
      tripstore index query driver_partner_index 4b1e2f6c-6a2b-4f0e-9d7c-0d6a3c1f9b55 \\
        --where 'trip_created_at between 2026-03-01T00:00:00Z and 2026-04-01T00:00:00Z' --order-by trip_created_at
    """
    with settings.connect() as store:
        definition = _definition(store.facade.store, name)
        value = shard_value if definition is None else typed(definition.shard_field, shard_value)
        where = [parse_condition(definition, text) for text in conditions]
        page = store.using(read=read, deadline=deadline).query_index(
            name,
            value,
            where,
            columns=_columns(columns),
            order_by=order_by,
            descending=descending,
            limit=limit,
            cursor=cursor,
            consistency="verified" if verified else "fast",
        )
    if as_json:
        print_document(PageDocument([_document(entry) for entry in page.entries], page.cursor))
    else:
        _print(page)


def _definition(datastore: Datastore, name: str) -> IndexDefinition | None:
    """The version that answers, for the types of its fields; None if there is none, as the query itself will say."""
    index = datastore.indexes.catalogue.indexes().get(name)
    return None if index is None or index.current is None else index.current.definition


def _columns(text: str | None) -> list[str] | Literal["*"] | None:
    if text is None or text == "*":
        return text if text is None else "*"
    return [part.strip() for part in text.split(",")]


def _document(entry: IndexEntry) -> EntryDocument:
    cells = None if entry.cells is None else {name: cell_document(cell) for name, cell in sorted(entry.cells.items())}
    return EntryDocument(entry.row_key, dict(entry.fields), cells)


def _print(page: IndexPage) -> None:
    if not page.entries:
        click.echo("No row is found.", err=True)
        return
    names = list(page.entries[0].fields)
    columns = sorted({column for entry in page.entries for column in entry.cells or ()})
    show(table(("row key", *names, *columns), [_row(entry, names, columns) for entry in page.entries]))
    if page.cursor is not None:
        click.echo(f"There is more; go on with --cursor {page.cursor}", err=True)


def _row(entry: IndexEntry, names: list[str], columns: list[str]) -> tuple[str | Text, ...]:
    cells = entry.cells or {}
    bodies = [canonical_bytes(cells[column].body).decode() if column in cells else "" for column in columns]
    return (str(entry.row_key), *(_shown(entry.fields[name]) for name in names), *bodies)


def _shown(value: Scalar | None) -> str | Text:
    if value is None:
        return Text("missing", style="dim")
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, datetime) else str(value)
