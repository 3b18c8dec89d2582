"""`tripstore dev`: real servers on this machine for a developer's day."""

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import msgspec

from tripstore.local.dev import FOLDER, DevEngine, DevFolder, DevOptions, DevServer, DevState, is_up, nearest_folder
from tripstore.local.errors import LocalServerError

_FOLDER_TYPE = click.Path(file_okay=False, path_type=Path)
folder_option = click.option(
    "--folder", type=_FOLDER_TYPE, help=f"Where config and state are; else {FOLDER} here, or in a folder around this."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document, passwords included.")


class ServerReport(msgspec.Struct, frozen=True):
    """One server in the JSON document."""

    name: str
    role: str
    cluster: str | None
    engine: str
    port: int
    pid: int
    url: str
    up: bool


class DevDocument(msgspec.Struct, frozen=True):
    """The JSON document of every `dev` command."""

    up: bool
    changed: bool
    folder: str
    config: str | None
    servers: list[ServerReport]
    company: str | None


@click.group()
def dev() -> None:
    """Start and stop real servers on this machine, for development.

    Their data are temporary: `down`, or the end of the machine, removes them.

    \b
    Example:
      tripstore dev up && tripstore -c .tripstore-dev/tripstore.yaml doctor
    """


@dev.command()
@click.option("--engine", type=click.Choice(["mariadb", "mysql", "sqlite"]), default="mariadb", show_default=True)
@click.option("--clusters", type=click.IntRange(1, 26), default=2, show_default=True)
@click.option(
    "--replicas",
    type=click.IntRange(0, 5),
    default=1,
    show_default=True,
    help="Per cluster; SQLite has none.",
)
@click.option("--postgres/--no-postgres", default=True, show_default=True, help="A Postgres for the legacy store.")
@click.option("--shards", type=click.IntRange(1, 65536), default=64, show_default=True)
@click.option(
    "--folder", type=_FOLDER_TYPE, default=FOLDER, show_default=True, help="Where config and state are written."
)
@json_option
def up(
    engine: DevEngine, clusters: int, replicas: int, postgres: bool, shards: int, folder: Path, as_json: bool
) -> None:
    """Start servers in the background and write <folder>/tripstore.yaml. Up already: nothing.

    Postgres has an empty database for a company's tables; `tripstore dev env` prints how to export its URL.

    \b
    Example:
      tripstore dev up --engine mysql --shards 256
    """
    dev_folder = DevFolder(folder)
    options = DevOptions(engine, clusters, replicas, postgres, shards)
    with _spoken():
        state, changed = dev_folder.up(options)
    if state.options != options:
        click.echo("They were started with other options; `tripstore dev down` ends them.", err=True)
    _show(
        dev_folder,
        state,
        changed,
        as_json,
        "The servers are up." if changed else "The servers are up already.",
    )


@dev.command()
@folder_option
@json_option
def down(folder: Path | None, as_json: bool) -> None:
    """Stop the servers and remove their data; return when all is gone. Down already: nothing.

    \b
    Example:
      tripstore dev down
    """
    dev_folder = _find(folder)
    with _spoken():
        changed = dev_folder.down()
    _show(dev_folder, None, changed, as_json, "The servers are gone." if changed else _none(dev_folder))


@dev.command()
@folder_option
@json_option
def status(folder: Path | None, as_json: bool) -> None:
    """Show each server, its pid and port, and whether it is up. Exit code 1 unless all are.

    \b
    Example:
      tripstore dev status --json
    """
    dev_folder = _find(folder)
    with _spoken():
        state = dev_folder.find()
    if state is None:
        _show(dev_folder, None, False, as_json, _none(dev_folder))
        sys.exit(1)
    servers = _show(dev_folder, state, False, as_json, "The servers' owner runs.")
    sys.exit(0 if all(server.up for server in servers) else 1)


@dev.command()
@folder_option
@json_option
def env(folder: Path | None, as_json: bool) -> None:
    """Print the line that exports COMPANY, the URL of the database for a company's tables, to a shell.

    \b
    Example:
      eval "$(tripstore dev env)"
    """
    dev_folder = _find(folder)
    with _spoken():
        state = dev_folder.find()
    company = None if state is None else state.company
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode({"company": company})).decode())
    elif company is not None:
        click.echo(f"export COMPANY={shlex.quote(company)}")
    else:
        without = "They were started with --no-postgres."
        click.echo(_none(dev_folder) if state is None else without, err=True)
    sys.exit(0 if company is not None else 1)


def _find(folder: Path | None) -> DevFolder:
    return DevFolder(folder or nearest_folder() or FOLDER)


def _none(folder: DevFolder) -> str:
    return f"No servers are up in {folder.folder}; `tripstore dev up` starts some, `--folder` names another place."


def _show(folder: DevFolder, state: DevState | None, changed: bool, as_json: bool, sentence: str) -> list[ServerReport]:
    servers = [] if state is None else [_report(server) for server in state.servers]
    config = None if state is None else state.config
    if as_json:
        all_up = state is not None and all(server.up for server in servers)
        company = None if state is None else state.company
        report = DevDocument(all_up, changed, str(folder.folder), config, servers, company)
        click.echo(msgspec.json.format(msgspec.json.encode(report)).decode())
    else:
        _print(sentence, state, servers)
    return servers


def _print(sentence: str, state: DevState | None, servers: list[ServerReport]) -> None:
    click.echo(sentence)
    for server in servers:
        place = f"port {server.port}, pid {server.pid}" if server.port else "a folder"
        click.echo(f"  {'up' if server.up else 'down':5}{server.name:12}{server.engine:10}{server.role:10}{place}")
    if state is not None:
        click.echo(f"Config: {state.config}")
    if state is not None and state.company is not None:
        click.echo('A database for a company: eval "$(tripstore dev env)" exports its URL as COMPANY.')


def _report(server: DevServer) -> ServerReport:
    return ServerReport(**msgspec.structs.asdict(server), up=is_up(server))


@contextmanager
def _spoken() -> Iterator[None]:
    """Say an error in two sentences and exit with 1."""
    try:
        yield
    except LocalServerError as error:
        click.echo(f"{error.message}\n{error.hint}".rstrip(), err=True)
        sys.exit(1)
