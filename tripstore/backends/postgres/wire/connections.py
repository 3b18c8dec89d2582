"""Connections for work that may take its time: DDL, looks at the catalogue, back-fills. Cells go through `database`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg2
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from tripstore.backends.postgres.errors import LegacyUnavailable

#: What makes the text of values independent of whoever asks. Capture's functions carry the same.
RENDERING = {
    "search_path": "pg_catalog, pg_temp",
    "extra_float_digits": "1",
    "TimeZone": "UTC",
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "postgres",
    "bytea_output": "hex",
}

#: What makes the text of values that we send mean what it says, whatever a role's own settings are.
MEANING = {"client_encoding": "UTF8", "array_nulls": "on", "standard_conforming_strings": "on", "xmloption": "content"}

CONNECT_SECONDS = 5
#: A machine or network that is gone is noticed while a long answer is waited for.
KEEPALIVES: dict[str, Any] = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}


def options(**more: str) -> str:
    """Settings of a session of ours; they cost no round trip."""
    return as_options(RENDERING | MEANING | more)


def as_options(settings: Mapping[str, str]) -> str:
    """Settings as libpq takes them."""
    return " ".join(f"-c {name}={value.replace(' ', chr(92) + ' ')}" for name, value in settings.items())


@contextmanager
def connected(url: str, what: str, **settings: str) -> Iterator[Connection]:
    """A connection in autocommit mode that says in pg_stat_activity what it is for."""
    try:
        connection = psycopg2.connect(
            url,
            connect_timeout=CONNECT_SECONDS,
            application_name=f"tripstore {what}",
            options=options(**settings),
            **KEEPALIVES,
        )
    except psycopg2.OperationalError as error:
        reason = str(error).strip().splitlines()[0]
        raise LegacyUnavailable(f"Postgres cannot be reached ({reason}).", hint="Check legacy.postgres.") from error
    try:
        connection.autocommit = True
        yield connection
    finally:
        connection.close()


def rows(connection: Connection, statement: str, parameters: Any = None) -> list[tuple[Any, ...]]:
    """Run one statement and return its rows, none for a statement that has no answer."""
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return cursor.fetchall() if cursor.description else []
