"""`tripstore audit db`: who still reads and writes the legacy tables, as the database itself remembers it."""

from __future__ import annotations

from datetime import datetime

import click
import msgspec

from schemaless_core.errors import InvalidRequest
from tripstore.audit.database import DatabaseAudit, audit_database
from tripstore.backends.postgres.wire.connections import connected
from tripstore.cli.documents import print_document
from tripstore.cli.options import Command, Settings, json_option, pass_settings
from tripstore.cli.tables import show, table

_MOMENT = click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S%z"])


class WriterView(msgspec.Struct, frozen=True):
    """Changes that other programs made."""

    table: str
    application: str
    role: str
    changes: int
    last_at: datetime
    #: Of these, where the session said it were tripstore, and its role may not.
    forged: int


class CountedStatementView(msgspec.Struct, frozen=True):
    """A kind of statement that uses a table."""

    table: str
    access: str
    role: str
    calls: int
    rows: int
    statement: str


class DatabaseAuditDocument(msgspec.Struct, frozen=True):
    """The JSON document of `audit db`; `statements` is null where pg_stat_statements is not installed."""

    writers: list[WriterView]
    known_since: datetime | None
    statements: list[CountedStatementView] | None


@click.command("db", cls=Command)
@click.option("--since", type=_MOMENT, metavar="TIME", help="Count changes from then on only; UTC unless it says.")
@json_option
@pass_settings
def db(settings: Settings, since: datetime | None, as_json: bool) -> None:
    """Find out who still writes and reads the legacy tables directly.

    Writers come from what capture has logged: application name and role, without the facade and the reverse mirror.
    Readers come from pg_stat_statements, where it is installed: role and statement since its last reset; give
    tripstore a role of its own, so that its reads are told from others'.

    \b
    Example:
      tripstore audit db
      tripstore audit db --since 2014-08-01 --json
    """
    legacy = settings.load().legacy
    if legacy is None:
        raise InvalidRequest(f"{settings.config} has no legacy store.", hint="Write legacy: {postgres: …, layout: …}.")
    with connected(legacy.postgres.text, "audit") as connection:
        found = audit_database(connection, legacy.layout, since)
    if as_json:
        print_document(_document(found))
    else:
        _print(found)


def _document(found: DatabaseAudit) -> DatabaseAuditDocument:
    statements = found.statements
    return DatabaseAuditDocument(
        [
            WriterView(each.table, each.application, each.role, each.changes, each.last_at, each.forged)
            for each in found.writers
        ],
        found.known_since,
        None
        if statements is None
        else [
            CountedStatementView(each.table, each.access.value, each.role, each.calls, each.rows, each.statement)
            for each in statements
        ],
    )


def _print(found: DatabaseAudit) -> None:
    if found.writers:
        rows = [
            (each.table, each.application or "(no name)", each.role, f"{each.changes:,}", f"{each.last_at:%F %T}")
            for each in found.writers
        ]
        show(table(("written", "by", "role", "changes", "last"), rows))
        if forged := sum(each.forged for each in found.writers):
            click.echo(f"{forged:,} of these said they were tripstore (tripstore.origin), and their roles may not.")
    elif found.known_since is None:
        click.echo("capture has logged no change of these tables")
    else:
        click.echo(f"only tripstore has written since {found.known_since:%F %T}")
    if found.statements is None:
        click.echo("readers are not known: pg_stat_statements is not installed in this database", err=True)
    elif found.statements:
        lines = [
            (each.table, each.access.value, each.role, f"{each.calls:,}", each.statement) for each in found.statements
        ]
        show("", table(("used", "to", "by role", "calls", "statement"), lines))
