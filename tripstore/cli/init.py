"""`tripstore init`: the configuration to start from."""

from __future__ import annotations

from string import ascii_lowercase
from urllib.parse import urlsplit

import click
import msgspec

from schemaless_core.errors import InvalidConfig
from tripstore.cli.documents import print_document
from tripstore.cli.options import Command, Settings, json_option, pass_settings
from tripstore.example import ExampleCluster, render, write_private

NEXT = ("tripstore doctor", "tripstore schema apply", "tripstore status")


class InitDocument(msgspec.Struct, frozen=True):
    """The JSON document of `init`."""

    config: str
    clusters: list[str]
    next: tuple[str, ...]


@click.command(cls=Command)
@click.option("--sqlite", is_flag=True, help="Two clusters in folders beside the file; the default.")
@click.option(
    "--mysql", "urls", multiple=True, metavar="URL", help="A cluster's primary, MySQL or MariaDB; repeatable."
)
@click.option("--shards", type=int, default=64, show_default=True, help="Fixed at creation. 4096 is typical for real.")
@click.option("--datastore", default="trips", show_default=True, help="Its name.")
@click.option("--force", is_flag=True, help="Replace the file that is there.")
@json_option
@pass_settings
def init(
    settings: Settings, sqlite: bool, urls: tuple[str, ...], shards: int, datastore: str, force: bool, as_json: bool
) -> None:
    """Write an example tripstore.yaml, readable by you alone; -c names another file.

    \b
    Example:
      tripstore init
      tripstore init --mysql 'mysql://app:${DB_PASSWORD}@db1:3306' --mysql 'mysql://app:${DB_PASSWORD}@db2:3306'
    """
    if sqlite and urls:
        raise click.UsageError("--sqlite and --mysql exclude each other.")
    clusters = _mysql_clusters(urls) if urls else _sqlite_clusters(datastore)
    try:
        write_private(settings.config, render(datastore, shards, clusters), replace=force)
    except FileExistsError:
        raise InvalidConfig(
            str(settings.config), "exists already", hint="Name another with -c, or replace it with --force."
        ) from None
    _warn_of_passwords(urls)
    if as_json:
        print_document(InitDocument(str(settings.config), list(clusters), NEXT))
    else:
        click.echo(f"Wrote {settings.config}: datastore {datastore}, {shards} shards, clusters {', '.join(clusters)}.")
        click.echo("Next: " + ", then ".join(f"`{command}`" for command in NEXT) + ".")


def _sqlite_clusters(datastore: str) -> dict[str, ExampleCluster]:
    return {name: ExampleCluster(f"sqlite:///{datastore}-data/{name}") for name in ("a", "b")}


def _mysql_clusters(urls: tuple[str, ...]) -> dict[str, ExampleCluster]:
    for url in urls:
        if url.startswith("sqlite:"):
            raise click.UsageError(f"--mysql {url} names no MySQL server; write mysql://user:password@host:port.")
    names = [*ascii_lowercase, *(f"c{number}" for number in range(27, len(urls) + 1))]
    return {name: ExampleCluster(url) for name, url in zip(names, urls, strict=False)}


def _warn_of_passwords(urls: tuple[str, ...]) -> None:
    passwords = [urlsplit(url).password or "" for url in urls]
    if any(password and not password.startswith("${") for password in passwords):
        click.echo("The file holds a password; ${DB_PASSWORD} in its place would keep it out.", err=True)
