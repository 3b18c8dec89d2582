"""`tripstore console`: the migration on one live page."""

from __future__ import annotations

from pathlib import Path

import click

from schemaless_core.told import Told
from tripstore.cli.documents import print_document
from tripstore.cli.options import Command, Settings, json_option, pass_settings

PORT = 8090
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(cls=Command)
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Elsewhere than on loopback it needs a certificate."
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="Listen there; 0: any free one."
)
@click.option("--certificate", type=_FILE, metavar="FILE", help="A PEM file, for TLS; with --key.")
@click.option("--key", type=_FILE, metavar="FILE", help="The key of the certificate.")
@click.option(
    "--allow-changes",
    "may_change",
    is_flag=True,
    help="Let a browser with the token set phases, switch, reverse, repair and retry. Else it only looks.",
)
@json_option
@pass_settings
def console(
    settings: Settings,
    host: str,
    port: int,
    certificate: Path | None,
    key: Path | None,
    may_change: bool,
    as_json: bool,
) -> None:
    """Show the migration on one live page; with --allow-changes drive it from there.

    Phase and authority, lag and rates as moving charts, jobs, gates, evidence, servers, buffers, triggers, indexes,
    fsck and backups, as the commands of the same names tell them; mismatches with both bodies, for the token that it
    prints. A server that does not answer costs its own section alone. SIGTERM ends it.

    A change is the command of a shell, in a process of its own: with its plan, its refusals and its line in the audit
    log. It goes on when the browser or the console ends.

    \b
    Example:
      tripstore console
      tripstore console --allow-changes
      tripstore console --host 10.0.0.7 --certificate console.pem --key console.key
    """
    click.echo(f"Starting: loads the page and reads {settings.config}.", err=True)
    try:
        import httptools  # noqa: F401  # the extra may not be installed
        import uvicorn  # noqa: F401  # as above
    except ImportError as error:
        raise _not_served(f"{error.name} is not installed.", "pip install 'tripstore[console]'.") from None
    if (certificate is None) != (key is None):
        raise click.UsageError("--certificate and --key belong together: name both, or none.")
    _serve(settings, host, port, certificate, key, may_change=may_change, as_json=as_json)


def _serve(
    settings: Settings,
    host: str,
    port: int,
    certificate: Path | None,
    key: Path | None,
    *,
    may_change: bool,
    as_json: bool,
) -> None:
    from tripstore.cli.console.access import ConsoleAccess
    from tripstore.cli.console.changes import ConsoleChanges
    from tripstore.cli.console.runs import CommandRuns
    from tripstore.cli.console.server import serve_console
    from tripstore.cli.console.stores import ConsoleStores
    from tripstore.http.settings import HttpLimits, HttpSettings

    asked = HttpSettings(HttpLimits(host=host, port=port, drain_seconds=1.0), (), certificate, key)
    if not asked.is_loopback and certificate is None:
        hint = "Name --certificate and --key, or listen at 127.0.0.1 and come by a tunnel: ssh -L."
        raise _not_served(f"Without TLS the console does not listen at {host}.", hint)
    access = ConsoleAccess(is_loopback=asked.is_loopback, is_tls=certificate is not None)
    stores = ConsoleStores(settings)
    changes = ConsoleChanges(stores, CommandRuns(settings.config)) if may_change else None

    def told(url: str) -> None:
        click.echo(f"Listening at {url}", err=True)
        click.echo(f"Token: {access.token}", err=True)
        if as_json:
            print_document({"url": url, "token": access.token})

    try:
        serve_console(stores, asked, access, changes, told)
    finally:
        stores.close()
    for line in changes.at_work() if changes else ():
        click.echo(f"`{line}` goes on without the console.", err=True)


def _not_served(message: str, hint: str) -> Told:
    from tripstore.http.errors import NotServed

    return NotServed(message, hint=hint)
