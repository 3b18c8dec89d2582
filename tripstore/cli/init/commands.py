"""`tripstore init`: the configuration to start from, and the layout of tables that are there."""

from __future__ import annotations

import os
from pathlib import Path
from string import ascii_lowercase

import click
import msgspec

from schemaless_core.errors import InvalidConfig
from tripstore.cli.documents import print_document
from tripstore.cli.init.propose import datastore_of, holds_password, proposed_layout, write_layout
from tripstore.cli.options import Command, Settings, json_option, pass_settings
from tripstore.example import ExampleCluster, ExampleLegacy, render, write_private

NEXT = ("tripstore doctor", "tripstore schema apply", "tripstore status")
FROM_NEXT = ("tripstore schema plan", "tripstore schema apply", "tripstore doctor")


class InitDocument(msgspec.Struct, frozen=True):
    """The JSON document of `init`."""

    config: str
    clusters: list[str]
    next: tuple[str, ...]
    #: With --from: the file of the layout, and what could not be decided.
    layout: str | None = None
    undecided: tuple[str, ...] = ()


@click.command(cls=Command)
@click.option("--sqlite", is_flag=True, help="Two clusters in folders beside the file; the default.")
@click.option(
    "--mysql", "urls", multiple=True, metavar="URL", help="A cluster's primary, MySQL or MariaDB; repeatable."
)
@click.option("--shards", type=int, default=64, show_default=True, help="Fixed at creation. 4096 is typical for real.")
@click.option("--datastore", default="trips", show_default=True, help="Its name.")
@click.option("--from", "postgres", metavar="URL", help="The company's Postgres: propose a layout for --table.")
@click.option("--table", "tables", multiple=True, metavar="[SCHEMA.]TABLE", help="A table of the layout; repeatable.")
@click.option(
    "--facts", multiple=True, metavar="[SCHEMA.]TABLE", help="One of these tables whose rows never change; repeatable."
)
@click.option(
    "--layout",
    "layout_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where the layout goes.  [default: layout.yaml beside the configuration]",
)
@click.option("--force", is_flag=True, help="Replace the file that is there; with --from: the layout only.")
@json_option
@pass_settings
def init(
    settings: Settings,
    sqlite: bool,
    urls: tuple[str, ...],
    shards: int,
    datastore: str,
    postgres: str | None,
    tables: tuple[str, ...],
    facts: tuple[str, ...],
    layout_file: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Write an example tripstore.yaml, readable by you alone; -c names another file.

    With --from it looks at tables in Postgres, changes nothing there, and writes the layout that they suggest, with
    comments on what it could not decide. A table that cannot be taken stands there as a comment, with the statements
    that add what it lacks. A tripstore.yaml that is there stays as it is.

    \b
    Example:
      tripstore init
      tripstore init --mysql 'mysql://app:${DB_PASSWORD}@db1:3306' --mysql 'mysql://app:${DB_PASSWORD}@db2:3306'
      tripstore init --from 'postgresql://app:${PG_PASSWORD}@db9/rides' --table trips --table billing_attempts
    """
    if sqlite and urls:
        raise click.UsageError("--sqlite and --mysql exclude each other.")
    if (postgres is None) != (not tables) or (postgres is None and (layout_file is not None or facts)):
        raise click.UsageError("--from URL and --table TABLE belong together, --layout FILE and --facts TABLE to them.")
    clusters = _mysql_clusters(urls) if urls else _sqlite_clusters(datastore)
    if postgres is not None:
        _init_from(settings, postgres, tables, facts, layout_file, clusters, shards, datastore, force, as_json)
        return
    _write_config(settings.config, render(datastore, shards, clusters), replace=force)
    _warn_of_passwords(urls)
    if as_json:
        print_document(InitDocument(str(settings.config), list(clusters), NEXT))
    else:
        click.echo(f"Wrote {settings.config}: datastore {datastore}, {shards} shards, clusters {', '.join(clusters)}.")
        click.echo("Next: " + ", then ".join(f"`{command}`" for command in NEXT) + ".")


def _init_from(
    settings: Settings,
    postgres: str,
    tables: tuple[str, ...],
    facts: tuple[str, ...],
    layout_file: Path | None,
    clusters: dict[str, ExampleCluster],
    shards: int,
    datastore: str,
    force: bool,
    as_json: bool,
) -> None:
    """Write the layout, and beside it a configuration that names it unless there is one."""
    config = settings.config
    path = layout_file if layout_file is not None else config.parent / "layout.yaml"
    is_new = not config.exists()
    proposed = proposed_layout(postgres, tables, datastore_of(config) or datastore, config.parent, facts)
    legacy = ExampleLegacy(postgres, os.path.relpath(path, config.parent))
    text = render(datastore, shards, clusters, legacy) if is_new else ""
    write_layout(path, proposed.text, replace=force)
    if is_new:
        _write_config(config, text, replace=False)
        _warn_of_passwords((*(cluster.primary for cluster in clusters.values()), postgres))
    if as_json:
        print_document(InitDocument(str(config), list(clusters), FROM_NEXT, str(path), proposed.undecided))
        return
    click.echo(f"Wrote {path}: a proposal for {', '.join(tables)}." + (f" Wrote {config}." if is_new else ""))
    for remark in proposed.undecided:
        click.echo(f"  look at: {remark}")
    if not is_new:
        click.echo(f"Name it in {config}, unless it is: legacy: {{postgres: postgresql://…, layout: {path}}}")
    click.echo("Next: edit it, then " + ", then ".join(f"`{command}`" for command in FROM_NEXT) + ".")


def _write_config(path: Path, text: str, *, replace: bool) -> None:
    try:
        write_private(path, text, replace=replace)
    except FileExistsError:
        hint = "Name another with -c, or replace it with --force."
        raise InvalidConfig(str(path), "exists already", hint=hint) from None


def _sqlite_clusters(datastore: str) -> dict[str, ExampleCluster]:
    return {name: ExampleCluster(f"sqlite:///{datastore}-data/{name}") for name in ("a", "b")}


def _mysql_clusters(urls: tuple[str, ...]) -> dict[str, ExampleCluster]:
    for url in urls:
        if url.startswith("sqlite:"):
            raise click.UsageError(f"--mysql {url} names no MySQL server; write mysql://user:password@host:port.")
    names = [*ascii_lowercase, *(f"c{number}" for number in range(27, len(urls) + 1))]
    return {name: ExampleCluster(url) for name, url in zip(names, urls, strict=False)}


def _warn_of_passwords(urls: tuple[str, ...]) -> None:
    if any(holds_password(url) for url in urls):
        click.echo("The file holds a password; ${DB_PASSWORD} in its place would keep it out.", err=True)
