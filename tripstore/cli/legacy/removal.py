"""`tripstore schema remove`: capture off the legacy tables. The company's rows stay as they are."""

from __future__ import annotations

import click
import msgspec
import psycopg2
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from schemaless_core.errors import InvalidConfig
from tripstore.backends.postgres.capture.migrate import revision
from tripstore.backends.postgres.capture.removal import remove as remove_capture
from tripstore.backends.postgres.errors import LegacyRefused
from tripstore.backends.postgres.wire.connections import rows
from tripstore.cli.documents import print_document
from tripstore.cli.legacy.schema import LegacySchema
from tripstore.cli.options import Settings, json_option, pass_settings
from tripstore.cli.questions import ask, yes_option

_COUNT = "SELECT (SELECT count(*) FROM tripstore.queue), (SELECT count(*) FROM tripstore.log)"


class RemovalDocument(msgspec.Struct, frozen=True):
    """The JSON document of `remove`."""

    is_removed: bool
    #: Whether our tables, and the columns that we added, go as well.
    tables: bool
    columns: bool
    #: Changes that no relay has delivered, and those that one has.
    undelivered: int
    delivered: int


@click.command()
@click.option("--tables", is_flag=True, help="Our own tables, too, with all history and what only they hold.")
@click.option("--columns", is_flag=True, help="The columns that capture added, too: versions begin anew.")
@click.option("--dry-run", is_flag=True, help="Say what would be removed and change nothing.")
@yes_option
@json_option
@pass_settings
def remove(settings: Settings, tables: bool, columns: bool, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Take capture off the legacy tables: triggers, gate and functions. From then on changes are missed.

    The tables of the company stay, with every row; so do UUIDs. May be interrupted and repeated.

    \b
    Example:
      tripstore schema remove --dry-run
      tripstore schema remove --tables --columns
    """
    config = settings.load()
    if config.legacy is None:
        raise InvalidConfig("legacy", "there is no legacy store", hint="Nothing is captured.")
    with LegacySchema.opened(config.legacy, config.core.indexes, config.core.shards) as legacy:
        undelivered, delivered = _changes(legacy.connection)
        if not dry_run:
            legacy.lock()
            ask(_question(tables, undelivered, delivered), is_answered=yes)
            try:
                remove_capture(legacy.connection, config.legacy.layout, tables=tables, columns=columns)
            except psycopg2.Error as error:
                reason = str(error).strip().splitlines()[0]
                hint = "Mend that, then run the same command again: what is gone stays gone."
                raise LegacyRefused(f"Capture was not removed: {reason}.", hint=hint) from error
    document = RemovalDocument(not dry_run, tables, columns, undelivered, delivered)
    if as_json:
        print_document(document)
    else:
        click.echo(_said(document))


def _changes(connection: Connection) -> tuple[int, int]:
    if revision(connection) is None:
        return 0, 0
    undelivered, delivered = rows(connection, _COUNT)[0]
    return undelivered, delivered


def _question(tables: bool, undelivered: int, delivered: int) -> str:
    if tables:
        return f"Remove capture, and forget {undelivered:,} changes not delivered and {delivered:,} delivered ones?"
    return "Remove capture? Changes are missed from then on, and a mirror needs a new backfill."


def _said(document: RemovalDocument) -> str:
    verb = "is" if document.is_removed else "would be"
    kept = "goes" if document.tables else "stays"
    return (
        f"Capture {verb} off the tables. Its log {kept}: {document.undelivered:,} changes not delivered, "
        f"{document.delivered:,} delivered."
    )
