"""`tripstore serve`: the API as JSON over HTTP."""

from __future__ import annotations

from typing import Any

import click

from schemaless_core.told import Told
from tripstore.cli.documents import print_document
from tripstore.cli.options import Command, Settings, json_option, pass_settings


@click.command(cls=Command)
@click.option("--port", type=click.IntRange(0, 65535), help="Listen there instead of http.port; 0: any free one.")
@click.option("--openapi", "is_openapi", is_flag=True, help="Print the OpenAPI document, and serve nothing.")
@json_option
@pass_settings
def serve(settings: Settings, port: int | None, is_openapi: bool, as_json: bool) -> None:
    """Serve the API as JSON over HTTP, for services that are not Python.

    It listens on loopback, and elsewhere with a certificate and tokens only: `http` of the configuration. SIGTERM ends
    it when the calls that have begun are answered.

    \b
    Example:
      tripstore serve
      tripstore serve --openapi > tripstore.openapi.json
    """
    try:
        import httptools  # noqa: F401  # the extra may not be installed
        import uvicorn  # noqa: F401  # as above
    except ImportError as error:
        raise _not_installed(error) from None
    if is_openapi:
        from tripstore.http.openapi import openapi_document
        from tripstore.http.routes import ROUTES

        print_document(openapi_document(ROUTES))
        return
    _serve(settings, port, as_json=as_json)


def _serve(settings: Settings, port: int | None, *, as_json: bool) -> None:
    from schemaless_core.aio.threads import WAIT_SECONDS, CallThreads, limits_of
    from tripstore.aio import AsyncTripStore
    from tripstore.http.server import serve
    from tripstore.http.settings import http_settings

    config = settings.load()
    changes: dict[str, Any] = {} if port is None else {"port": port}
    asked = http_settings(config.http, **changes)
    asked.refuse_unprotected()
    store = settings.connect_in_force()
    pools = [config.core.pool, *([] if config.legacy is None else [config.legacy.limits.pool])]
    threads = CallThreads(limits_of(pools, None, WAIT_SECONDS))

    def told(url: str) -> None:
        click.echo(f"Listening at {url}", err=True)
        if as_json:
            print_document({"url": url})

    serve(AsyncTripStore(store, threads), asked, told)


def _not_installed(error: ImportError) -> Told:
    from tripstore.http.errors import NotServed

    return NotServed(f"{error.name} is not installed.", hint="pip install 'tripstore[http]'.")
