"""`serve`: the front behind uvicorn, until SIGTERM or an interrupt. Calls that have begun end first."""

from __future__ import annotations

import asyncio
import signal
import socket
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn

from tripstore.aio import AsyncTripStore
from tripstore.http.connection import FrontConnection
from tripstore.http.errors import NotServed
from tripstore.http.front import Front
from tripstore.http.request import Receive, Scope, Send
from tripstore.http.settings import HttpSettings

Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class FrontServer(uvicorn.Server):
    """Ends by itself at a signal, and leaves the exit code to the command; uvicorn's own dies of the signal."""

    def __init__(
        self,
        application: Application,
        settings: HttpSettings,
        listening: Callable[[], None],
        connection: type[FrontConnection] = FrontConnection,
    ) -> None:
        super().__init__(_config(application, settings, connection))
        self._listening = listening

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """A signal that comes after `listening` was called ends it in order."""
        await super().startup(sockets)
        self._listening()

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Only a main thread hears signals."""
        is_main = threading.current_thread() is threading.main_thread()
        signals = (signal.SIGTERM, signal.SIGINT) if is_main else ()
        loop = asyncio.get_running_loop()
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
        indexes = store.sync.facade.config.core.indexes
        front = Front(store, settings, indexes, time.monotonic)
        server = FrontServer(front, settings, lambda: listening(url_of(settings, bound)))
        with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
            runner.run(_serve(store, server, bound))


async def _serve(store: AsyncTripStore, server: FrontServer, bound: socket.socket) -> None:
    async with store:
        await server.serve(sockets=[bound])


def _config(application: Application, settings: HttpSettings, kind: type[FrontConnection]) -> uvicorn.Config:
    limits = settings.limits
    connection: Any = partial(kind, seconds=limits.request_seconds)
    config = uvicorn.Config(
        application,
        http=connection,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        ws="none",
        interface="asgi3",
        limit_concurrency=limits.connections_max,
        timeout_graceful_shutdown=int(limits.drain_seconds) or 1,
    )
    config.load()
    config.ssl = None if settings.certificate is None else _tls(settings.certificate, settings.key)
    return config


def _tls(certificate: Path, key: Path | None) -> ssl.SSLContext:
    """Python's choice for servers: older uvicorns leave TLS 1.2 the ciphers of TLS 1.0 alone."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, key)
    except OSError as error:
        hint = "Name a PEM file with the certificate and one with its key: http.tls_certificate, http.tls_key."
        raise NotServed(f"The certificate cannot be used ({error.strerror or error}).", hint=hint) from None
    return context


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


def url_of(settings: HttpSettings, bound: socket.socket) -> str:
    """Where it listens."""
    scheme = "http" if settings.certificate is None else "https"
    host, port = bound.getsockname()[:2]
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
