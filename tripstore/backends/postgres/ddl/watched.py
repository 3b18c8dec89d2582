"""Statements that take long: run on a thread, so that this one can watch them, and Ctrl-C ends them."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread

import psycopg2
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from tripstore.backends.postgres.wire.connections import rows

POLL_SECONDS = 0.2


def run_watched(connection: Connection, statement: str, look: Callable[[], None]) -> None:
    """Run a statement and call `look` again and again meanwhile; when that raises, the statement is cancelled."""
    ended = Event()
    failures: list[psycopg2.Error] = []

    def run() -> None:
        try:
            rows(connection, statement)
        except psycopg2.Error as error:
            failures.append(error)
        finally:
            ended.set()

    thread = Thread(target=run, name="long statement", daemon=True)
    thread.start()
    try:
        while not ended.wait(POLL_SECONDS):
            look()
    except BaseException:
        connection.cancel()
        raise
    finally:
        thread.join()
    if failures:
        raise failures[0]
