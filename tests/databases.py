"""Databases on the Postgres servers of a run: made quickly, and dropped after the test file that made them.

A run makes thousands of 8 MB each, and the memory that they may lie in is not endless.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

import psycopg2
from psycopg2 import errors
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from tests.places import are_in_memory

_CREATE = "CREATE DATABASE {name} TEMPLATE {template} STRATEGY {strategy}"
_DROP = "DROP DATABASE IF EXISTS {name}"
_SELECT_USED = "SELECT DISTINCT datname FROM pg_stat_activity WHERE datname IS NOT NULL"

#: Names by the URL of their server.
_made: dict[str, set[str]] = {}
_keepers = 0


def create_database(server: str, name: str, template: str = "template1") -> None:
    """Make a database on the server at this URL."""
    with closing(_connected(server)) as connection, connection.cursor() as cursor:
        # Copies of files are half the work of copies in the log; on a disk, though, they wait for a checkpoint.
        strategy = "file_copy" if are_in_memory() else "wal_log"
        cursor.execute(_CREATE.format(name=name, template=template, strategy=strategy))
    if not _keepers:
        _made.setdefault(server, set()).add(name)


@contextmanager
def kept() -> Iterator[None]:
    """What is made within this block stays until the end of the run: templates, and what all tests share."""
    global _keepers  # one thread runs tests
    _keepers += 1
    try:
        yield
    finally:
        _keepers -= 1


def drop_databases() -> None:
    """Drop what test files made that have ended, but for databases that still have sessions: they have another turn."""
    for server, names in _made.items():
        with suppress(psycopg2.OperationalError):  # a server that its test ended
            _drop(server, names)


def _drop(server: str, names: set[str]) -> None:
    with closing(_connected(server)) as connection, connection.cursor() as cursor:
        cursor.execute(_SELECT_USED)
        used = {name for (name,) in cursor.fetchall()}
        for name in sorted(names - used):
            # An active slot, a subscription and a prepared transaction hold a database, too.
            with suppress(errors.ObjectInUse):
                cursor.execute(_DROP.format(name=name))
            names.discard(name)


def _connected(server: str) -> Connection:
    connection = psycopg2.connect(server, dbname="postgres", connect_timeout=5)
    connection.autocommit = True
    return connection
