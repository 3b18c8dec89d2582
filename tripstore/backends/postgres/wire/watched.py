"""`WatchedCursor`: no statement waits for a server that keeps its connections and says nothing.

The driver waits in C, where neither a signal nor another thread reaches it, and a frozen server or a network that
swallows packets counts no statement's time. So the connection is shut from here, a moment after the server should have
ended the statement by itself.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter
from psycopg2.extensions import cursor as Cursor  # noqa: N812  # likewise

#: After the server's own limit.
GRACE_SECONDS = 5.0


def watched(statement_seconds: float) -> type[Cursor]:
    """A cursor class for a connection whose server ends statements after so long."""

    class WatchedCursor(Cursor):
        def execute(self, query: Any, vars: Any = None) -> None:  # noqa: A002  # as the driver calls it
            with _shut_after(self.connection, statement_seconds + GRACE_SECONDS):
                super().execute(query, vars)

        def copy_expert(self, sql: Any, file: Any, size: int = 8192) -> None:
            with _shut_after(self.connection, statement_seconds + GRACE_SECONDS):
                super().copy_expert(sql, file, size)

    return WatchedCursor


@contextmanager
def _shut_after(connection: Connection, seconds: float) -> Iterator[None]:
    """Shut the connection unless the block has ended by then. Its socket is ours twice, so that no other is hit."""
    own = socket.socket(fileno=os.dup(connection.fileno()))
    timer = threading.Timer(seconds, _shut, (own,))
    timer.name, timer.daemon = "watch", True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        own.close()


def _shut(own: socket.socket) -> None:
    with suppress(OSError):  # it is gone already
        own.shutdown(socket.SHUT_RDWR)
