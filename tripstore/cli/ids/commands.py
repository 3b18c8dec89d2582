"""`tripstore ids`: how far the tables are on their way from ids to UUIDs, and which id is which UUID."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from uuid import UUID

import click
import msgspec
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from schemaless_core.errors import InvalidConfig, InvalidRequest
from tripstore.backends.postgres.capture.migrate import revision
from tripstore.backends.postgres.ddl.relations import leaves
from tripstore.backends.postgres.ids.ids import Ids
from tripstore.backends.postgres.ids.key_columns import OURS, KeyColumn
from tripstore.backends.postgres.ids.key_match import match_keys
from tripstore.backends.postgres.ids.steps import key_columns, steps_of
from tripstore.backends.postgres.wire.connections import connected, rows
from tripstore.cli.documents import print_document
from tripstore.cli.exits import Exit
from tripstore.cli.ids.revisions import revisions
from tripstore.cli.options import CommandGroup, Settings, json_option, pass_settings
from tripstore.cli.tables import show, table
from tripstore.config import LegacyConfig, load_config

_ID = re.compile(r"-?\d{1,19}")


class StepView(msgspec.Struct, frozen=True):
    """A step of `schema apply`."""

    title: str
    is_done: bool


class ColumnView(msgspec.Struct, frozen=True):
    """The column with the row keys of one table; `is_ours` is null while there is none, rows are an estimate.

    `strays` are rows without a key or with another one than their parent, null when they were not counted.
    """

    table: str
    column: str
    is_ours: bool | None
    estimated_rows: int | None
    is_done: bool
    strays: int | None
    steps: list[StepView]


class IdsDocument(msgspec.Struct, frozen=True):
    """The JSON document of `status`."""

    is_done: bool
    columns: list[ColumnView]


class IdPair(msgspec.Struct, frozen=True):
    """An id and its UUID; what is not known is null."""

    id: int | None
    row_key: UUID | None

    @property
    def is_known(self) -> bool:
        return self.id is not None and self.row_key is not None


class ResolveDocument(msgspec.Struct, frozen=True):
    """The JSON document of `resolve`: a pair for each argument, in their order."""

    pairs: list[IdPair]


@click.group(cls=CommandGroup)
def ids() -> None:
    """Look how far the legacy tables are from ids to UUIDs, and look ids up.

    `tripstore schema apply` does the steps; `revisions` writes them for a company's own alembic.

    \b
    Example:
      tripstore ids status
      tripstore ids resolve 4711
    """


ids.add_command(revisions)


@ids.command()
@click.option(
    "--verify", is_flag=True, help="Compare the key of every row of a child with its parent's; reads all rows."
)
@json_option
@pass_settings
def status(settings: Settings, verify: bool, as_json: bool) -> Exit:
    """Show which steps are done, for each table. Exit code 1 as long as one is not, or when keys differ.

    Before a column is NOT NULL its table is looked through for empty values, which may take a while.

    \b
    Example:
      tripstore ids status
      tripstore ids status --verify
    """
    legacy = _legacy(settings)
    with connected(legacy.postgres.text, "ids status", statement_timeout="0") as connection:
        views = [_view(connection, column, verify=verify) for column in key_columns(legacy.layout)]
    document = IdsDocument(all(view.is_done and not view.strays for view in views), views)
    if as_json:
        print_document(document)
    else:
        _print_status(document)
    return Exit.FINE if document.is_done else Exit.FAILED


@ids.command()
@click.argument("values", metavar="ID|UUID…", nargs=-1, required=True)
@json_option
@pass_settings
def resolve(settings: Settings, values: tuple[str, ...], as_json: bool) -> Exit:
    """Show the UUIDs of ids and the ids of UUIDs. Exit code 1 when one has none.

    \b
    Example:
      tripstore ids resolve 4711 4712
      tripstore ids resolve 4b1e2f6c-6a2b-4f0e-9d7c-0d6a3c1f9b55 --json
    """
    wanted = [_parsed(value) for value in values]
    legacy = _legacy(settings)
    with connected(legacy.postgres.text, "ids resolve") as connection:
        pairs = _pairs(
            Ids(partial(rows, connection), legacy.layout, is_captured=revision(connection) is not None), wanted
        )
    if as_json:
        print_document(ResolveDocument(pairs))
    else:
        show(table(("id", "UUID"), [(_shown(pair.id), _shown(pair.row_key)) for pair in pairs]))
    return Exit.FINE if all(pair.is_known for pair in pairs) else Exit.FAILED


def _legacy(settings: Settings) -> LegacyConfig:
    legacy = load_config(settings.config).legacy
    if legacy is None:
        raise InvalidConfig(
            "legacy", "is missing", hint="Write legacy: {postgres: postgresql://…, layout: layout.yaml}."
        )
    return legacy


def _view(connection: Connection, column: KeyColumn, *, verify: bool) -> ColumnView:
    steps = [StepView(step.title, step.is_done(connection)) for step in steps_of(column)]
    found = column.find(connection)
    estimates = [leaf.estimated_rows for leaf in leaves(connection, column.table)]
    return ColumnView(
        table=str(column.table),
        column=column.uuid,
        is_ours=None if found is None else found.comment == OURS,
        estimated_rows=None if min(estimates, default=-1) < 0 else sum(estimates),
        is_done=all(step.is_done for step in steps),
        strays=_strays(connection, column) if verify else None,
        steps=steps,
    )


def _strays(connection: Connection, column: KeyColumn) -> int | None:
    """How many rows have a wrong key; None as long as a column is missing."""
    found = match_keys(connection, column)
    return found.different if found.is_all else None


def _print_status(document: IdsDocument) -> None:
    lines = [(step.title, "done" if step.is_done else "to do") for column in document.columns for step in column.steps]
    show(table(("step", ""), lines))
    for column in document.columns:
        if column.is_ours is False:
            click.echo(f"{column.table}.{column.column} is the company's own and is taken as it is.", err=True)
        if column.strays:
            click.echo(
                f"{column.strays:,} rows of {column.table} have no key or another one than their parent.", err=True
            )
    if not all(column.is_done for column in document.columns):
        click.echo("`tripstore schema apply` does what is to be done.", err=True)


def _pairs(known: Ids, wanted: Sequence[int | UUID]) -> list[IdPair]:
    uuids = known.resolve_ids(value for value in wanted if isinstance(value, int))
    numbers = known.legacy_ids(value for value in wanted if isinstance(value, UUID))
    return [
        IdPair(value, uuids.get(value)) if isinstance(value, int) else IdPair(numbers.get(value), value)
        for value in wanted
    ]


def _parsed(value: str) -> int | UUID:
    if _ID.fullmatch(value):
        return int(value)
    try:
        return UUID(value)
    except ValueError:
        raise InvalidRequest(f"{value!r} is neither an id nor a UUID.", hint="An id is an integer.") from None


def _shown(value: int | UUID | None) -> str:
    return "unknown" if value is None else str(value)
