"""`serve`: the front behind uvicorn, until SIGTERM or an interrupt. Calls that have begun end first."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial

import uvicorn

from tripstore.aio import AsyncTripStore
from tripstore.http.errors import NotServed
from tripstore.http.front import Front
from tripstore.http.settings import HttpSettings


class FrontServer(uvicorn.Server):
    """Ends by itself at a signal, and leaves the exit code to the command; uvicorn's own dies of the signal."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        loop = asyncio.get_running_loop()
        signals = (signal.SIGTERM, signal.SIGINT)
        for each in signals:
            loop.add_signal_handler(each, partial(self.handle_exit, each, None))
        try:
            yield
        finally:
            for each in signals:
                loop.remove_signal_handler(each)


def serve(store: AsyncTripStore, settings: HttpSettings, listening: Callable[[str], None]) -> None:
    """Serve a store until the process is to end, and close it. `listening` hears the URL."""
    settings.refuse_unprotected()
    with listening_socket(settings.limits.host, settings.limits.port) as bound:
        asyncio.run(_serve(store, settings, bound, listening))


async def _serve(
    store: AsyncTripStore, settings: HttpSettings, bound: socket.socket, listening: Callable[[str], None]
) -> None:
    async with store:
        indexes = store.sync.facade.config.core.indexes
        application = Front(store, settings, indexes, time.monotonic).application()
        server = FrontServer(_config(application, settings))
        listening(_url(settings, bound))
        await server.serve(sockets=[bound])


def _config(application: object, settings: HttpSettings) -> uvicorn.Config:
    limits = settings.limits
    config = uvicorn.Config(
        application,  # type: ignore[arg-type]  # Starlette is one; the two have types of their own for it
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        ws="none",
        limit_concurrency=limits.connections_max,
        timeout_graceful_shutdown=int(limits.drain_seconds) or 1,
        ssl_certfile=None if settings.certificate is None else str(settings.certificate),
        ssl_keyfile=None if settings.key is None else str(settings.key),
    )
    try:
        config.load()
    except OSError as error:
        hint = "Name a PEM file with the certificate and one with its key: http.tls_certificate, http.tls_key."
        raise NotServed(f"The certificate cannot be used ({error.strerror or error}).", hint=hint) from None
    return config


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a bound socket, or raise `NotServed`."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        bound = socket.create_server((host, port), family=family)
    except OSError as error:
        hint = "Listen at another address: http.host, http.port, --port."
        raise NotServed(f"{host}:{port} cannot be listened at ({error.strerror}).", hint=hint) from None
    # Connections inherit it. asyncio sets it for sockets that it made itself; without it an answer waits 40 ms, since
    # its head and its content are two packets.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return bound


def _url(settings: HttpSettings, bound: socket.socket) -> str:
    scheme = "http" if settings.certificate is None else "https"
    host, port = bound.getsockname()[:2]
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
