"""What stands on the servers of a datastore, looked at beside the code under test."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pymysql

DATABASES = "SELECT schema_name FROM information_schema.schemata WHERE LEFT(schema_name, %s) = %s ORDER BY schema_name"
HAS_CELLS = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = %s AND table_name = 'cell'"


class Written:
    """Databases, files and cells of one configuration."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._prefix = f"{config['datastore']}_"
        self._primaries = {name: cluster["primary"] for name, cluster in config["clusters"].items()}

    def now(self) -> list[str]:
        """Everything that was created, on any server: databases, or files."""
        return [f"{name}: {thing}" for name, url in self._primaries.items() for thing in self._things(url)]

    def cells(self) -> int:
        """All cells on all servers."""
        return sum(self._cells(url) for url in self._primaries.values())

    def forget(self, cluster: str) -> None:
        """Leave nothing on one server."""
        url = self._primaries[cluster]
        if url.startswith("sqlite"):
            shutil.rmtree(_folder(url))
            return
        with _connected(url) as connection, connection.cursor() as cursor:
            for database in self._databases(cursor):
                cursor.execute(f"DROP DATABASE `{database}`")

    def _things(self, url: str) -> list[str]:
        if url.startswith("sqlite"):
            return sorted(str(path) for path in _folder(url).glob("*"))
        with _connected(url) as connection, connection.cursor() as cursor:
            return self._databases(cursor)

    def _cells(self, url: str) -> int:
        return sum(self._counts(url))

    def _counts(self, url: str) -> Iterator[int]:
        if url.startswith("sqlite"):
            for file in _folder(url).glob(f"{self._prefix[:-1]}.db"):
                with closing(sqlite3.connect(file)) as opened:
                    yield opened.execute("SELECT COUNT(*) FROM cell").fetchone()[0]
            return
        with _connected(url) as connection, connection.cursor() as cursor:
            for database in self._databases(cursor):
                cursor.execute(HAS_CELLS, (database,))
                if cursor.fetchall() == ((1,),):
                    cursor.execute(f"SELECT COUNT(*) FROM `{database}`.cell")
                    yield cursor.fetchall()[0][0]

    def _databases(self, cursor: pymysql.cursors.Cursor) -> list[str]:
        cursor.execute(DATABASES, (len(self._prefix), self._prefix))
        return [str(name) for (name,) in cursor.fetchall()]


def _folder(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


def _connected(url: str) -> pymysql.Connection[pymysql.cursors.Cursor]:
    parts = urlsplit(url)
    assert parts.hostname
    assert parts.port
    assert parts.username
    return pymysql.connect(
        host=parts.hostname, port=parts.port, user=parts.username, password=parts.password or "", autocommit=True
    )
