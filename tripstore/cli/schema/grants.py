"""`tripstore schema grants`: the GRANTs of a role in a phase, from the table of rights."""

from __future__ import annotations

from collections.abc import Iterator

import click
import msgspec

from schemaless_core.errors import InvalidConfig
from tripstore.backends.postgres.wire.connections import connected
from tripstore.cli.documents import print_document
from tripstore.cli.exits import Exit
from tripstore.cli.options import Command, Settings, json_option, pass_settings
from tripstore.config import LegacyConfig, TripstoreConfig
from tripstore.migration.rights import mysql, postgres
from tripstore.migration.rights.roles import LoginRole
from tripstore.migration.rights.table import Right, former_rights_of, rights_of
from tripstore.phase import Phase

_SERVERS = ("postgres", "mysql")


class GrantDocument(msgspec.Struct, frozen=True):
    """What a line of the table comes to; `is_given`: a GRANT, else a REVOKE of what an earlier phase needed."""

    server: str
    place: str
    why: str
    is_given: bool
    statements: list[str]


class GrantsDocument(msgspec.Struct, frozen=True):
    """The JSON document of `grants`."""

    role: str
    phase: str
    login: str
    grants: list[GrantDocument]


@click.command(cls=Command)
@click.option("--role", type=click.Choice([role.value for role in LoginRole]), required=True, help="Whose login it is.")
@click.option("--phase", type=click.Choice([phase.value for phase in Phase]), required=True, help="Grant before it.")
@click.option("--login", metavar="NAME", help="The login; else tripstore_ROLE.")
@click.option(
    "--operator", metavar="NAME", default="tripstore_operator", show_default=True, help="The operator's login."
)
@click.option("--host", metavar="HOST", default="%", show_default=True, help="From where MySQL or MariaDB lets it in.")
@click.option("--server", type=click.Choice(_SERVERS), help="Only the statements for these servers.")
@json_option
@pass_settings
def grants(
    settings: Settings,
    role: str,
    phase: str,
    login: str | None,
    operator: str,
    host: str,
    server: str | None,
    as_json: bool,
) -> Exit:
    """Print the GRANTs that a role needs in a phase, and nothing more. Changes nothing.

    Logins are yours to create. Run the operator's statements before `tripstore schema apply`, the others after it:
    they name tables. Grant the rights of a phase before you enter it; what an earlier phase alone needed is revoked.

    \b
    Example:
      tripstore schema grants --role operator --phase off --server postgres | psql company
      tripstore schema grants --role service --phase dualwrite --server mysql > service.sql
    """
    config = settings.load()
    name = (operator if role == LoginRole.OPERATOR else f"tripstore_{role}") if login is None else login
    found = []
    if server != "mysql" and config.legacy is not None:
        found += list(_of_postgres(config.legacy, LoginRole(role), Phase(phase), name, operator))
    if server != "postgres":
        found += list(_of_mysql(config, LoginRole(role), Phase(phase), mysql.account_of(name, host)))
    if server is not None and not found:
        raise InvalidConfig("--server", f"there is none: {server}", hint="SQLite files know no logins.")
    if as_json:
        print_document(GrantsDocument(role, phase, name, found))
    else:
        _print(role, phase, found)
    return Exit.FINE


def _of_postgres(
    config: LegacyConfig, role: LoginRole, phase: Phase, login: str, operator: str
) -> Iterator[GrantDocument]:
    with connected(config.postgres.text, "grants") as connection:
        objects = postgres.find_objects(connection, config.layout)
    for rights, is_given in ((former_rights_of(role, phase), False), (rights_of(role, phase), True)):
        for right in rights:
            if right.place.is_postgres:
                made = list(postgres.statements(right, objects, login, operator, is_given=is_given))
                if made:
                    yield _document("postgres", right, made, is_given=is_given)


def _of_mysql(config: TripstoreConfig, role: LoginRole, phase: Phase, account: str) -> Iterator[GrantDocument]:
    core = config.core
    if all(cluster.primary.engine == "sqlite" for cluster in core.clusters):
        return
    control = core.control.database or f"{core.datastore}_control"
    for right in rights_of(role, phase):
        if not right.place.is_postgres:
            made = list(mysql.statements(right, core.datastore, core.shards, control, account))
            yield _document("mysql", right, made, is_given=True)


def _document(server: str, right: Right, made: list[str], *, is_given: bool) -> GrantDocument:
    return GrantDocument(server, right.place.value, right.why, is_given, made)


def _print(role: str, phase: str, found: list[GrantDocument]) -> None:
    """SQL that psql and mysql take as it is."""
    for server, title in (("postgres", "Postgres"), ("mysql", "MySQL and MariaDB")):
        of_server = [each for each in found if each.server == server]
        if of_server:
            click.echo(f"-- {title}: {role} in phase {phase}")
        for each in of_server:
            click.echo(f"-- {each.place}: {each.why}")
            for statement in each.statements:
                click.echo(f"{statement};")
