"""`tripstore index errors`: fields that are missing from entries because their values do not parse."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import click
import msgspec

from schemaless_core.engine.base import FieldError
from tripstore.cli.documents import print_document
from tripstore.cli.index.status import record_of
from tripstore.cli.index.verify import version_option
from tripstore.cli.options import Command, Settings, json_option, pass_settings
from tripstore.cli.tables import show, table

DEFAULT_LIMIT = 100
LIMIT_MAX = 100_000


class FieldErrorView(msgspec.Struct, frozen=True):
    """A field that its latest cell holds, and that is no value of its type. Never the value itself."""

    shard: int
    row_key: UUID
    column_name: str
    ref_key: int
    field: str
    reason: str
    at: datetime | None


class ErrorsDocument(msgspec.Struct, frozen=True):
    """The JSON document of `errors`."""

    index: str
    version: int
    errors: list[FieldErrorView]
    is_complete: bool


@click.command(cls=Command)
@click.argument("name")
@version_option
@click.option("--limit", type=click.IntRange(1, LIMIT_MAX), default=DEFAULT_LIMIT, show_default=True)
@json_option
@pass_settings
def errors(settings: Settings, name: str, number: int | None, limit: int, as_json: bool) -> None:
    """Show which fields are missing from entries because what their cells hold is no value of the field's type.

    The list is written by the index's group, so a cell is on it once the group has passed it, and leaves it when a
    later version of the cell parses.

    \b
    Example:
      tripstore index errors driver_partner_index
    """
    with settings.open() as datastore:
        index = record_of(datastore, name)
        chosen = max(index.versions) if number is None else number
        found = datastore.indexes.errors(name, chosen, limit + 1)
    is_complete, rows = len(found) <= limit, [_view(error) for error in found[:limit]]
    if as_json:
        print_document(ErrorsDocument(name, chosen, rows, is_complete))
        return
    if not rows:
        click.echo(f"No field of version {chosen} of index {name} failed to parse, as far as it is filled.")
        return
    show(table(("shard", "row key", "column", "ref key", "field", "reason"), map(_line, rows)))
    if not is_complete:
        click.echo(f"These are the first {limit}; --limit shows more.", err=True)
    click.echo("`tripstore cell get ROW_KEY COLUMN` shows what a cell holds.", err=True)


def _view(error: FieldError) -> FieldErrorView:
    return FieldErrorView(
        error.shard,
        UUID(bytes=error.row_key),
        error.column_name.decode(),
        error.ref_key,
        error.field,
        error.reason or "",
        error.at,
    )


def _line(error: FieldErrorView) -> tuple[str, ...]:
    return (
        str(error.shard), str(error.row_key), error.column_name, str(error.ref_key), error.field, error.reason,
    )  # fmt: skip
