"""`serve_console`: the console behind uvicorn, until SIGTERM or an interrupt."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from functools import partial

from tripstore.cli.console.access import ConsoleAccess
from tripstore.cli.console.changes import ConsoleChanges
from tripstore.cli.console.front import ConsoleFront
from tripstore.cli.console.hub import ConsoleHub
from tripstore.cli.console.pages import compile_templates
from tripstore.cli.console.stores import ConsoleStores
from tripstore.http.connection import FrontConnection
from tripstore.http.corked import CorkedTransport
from tripstore.http.server import FrontServer, listening_socket, url_of
from tripstore.http.settings import HttpSettings


class StreamingTransport(CorkedTransport):
    """What is written in one turn of the loop is one packet: an event does not wait for the end of its answer."""

    _is_due = False

    def write(self, data: bytes) -> None:
        super().write(data)
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._flush_due)

    def _flush_due(self) -> None:
        self._is_due = False
        self.flush()


class ConsoleConnection(FrontConnection):
    """A connection whose answers may be streams."""

    cork = StreamingTransport


class ConsoleServer(FrontServer):
    """Ends the streams first: they would never end."""

    def __init__(self, front: ConsoleFront, hub: ConsoleHub, settings: HttpSettings, listening: Callable[[], None]):
        super().__init__(front, settings, listening, ConsoleConnection)
        self._hub = hub

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._hub.start()
        await super().startup(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._hub.close()
        await super().shutdown(sockets)


def serve_console(
    stores: ConsoleStores,
    settings: HttpSettings,
    access: ConsoleAccess,
    changes: ConsoleChanges | None,
    listening: Callable[[str], None],
) -> None:
    """Serve until the process is to end. `listening` hears the URL. Without `changes` it only looks."""
    compile_templates()
    with listening_socket(settings.limits.host, settings.limits.port) as bound:
        heard = partial(listening, url_of(settings, bound))
        hub = ConsoleHub(stores, changes)
        server = ConsoleServer(ConsoleFront(hub, access, changes), hub, settings, heard)
        with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
            runner.run(server.serve(sockets=[bound]))
