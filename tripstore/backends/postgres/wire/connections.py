"""Connections for work that may take its time: DDL, looks at the catalogue, back-fills. Cells go through `database`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import psycopg2
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from schemaless_core.deadline import Deadline
from tripstore.backends.postgres.errors import LegacyUnavailable
from tripstore.backends.postgres.wire.pooler import narrowed
from tripstore.backends.postgres.wire.session import Session, WantedSettings, prepare_session
from tripstore.backends.postgres.wire.translation import certificate_refused, settings_refused
from tripstore.backends.postgres.wire.way_in import way_in

#: What makes the text of values independent of the session. Capture's functions carry the same.
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

#: A commit that was acknowledged survives a crash, whatever a role's own setting is.
DURABILITY = {"synchronous_commit": "on"}

#: What a policy would hide from us is an error: a row that we are not shown is no row that is missing (I12).
SIGHT = {"row_security": "off"}

#: Where the URL stands, unless it is said.
KEY = "legacy.postgres"
CONNECT_SECONDS = 5
#: A machine or network that is gone is noticed while a long answer is waited for.
KEEPALIVES: dict[str, Any] = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}


def wanted(**more: str) -> WantedSettings:
    """The settings of a session of ours. Its search path is pinned when the role's was read."""
    at_start = RENDERING | MEANING | DURABILITY | SIGHT | more
    return WantedSettings(at_start, {"search_path": at_start.pop("search_path")})


@contextmanager
def connected(url: str, what: str, *, key: str = KEY, **settings: str) -> Iterator[Connection]:
    """A connection in autocommit mode that says in pg_stat_activity what it is for; `key` names where the URL stands.

    Raises `StandbyRefused` where a standby answers, and `SessionRefused` behind a pooler that keeps no session for us.
    """
    needed = wanted(**settings)
    connection = _opened(url, what, needed, key)
    try:
        connection.autocommit = True
        with _reached(key):
            prepare(connection, needed, url)
        yield connection
    finally:
        connection.close()


def prepare(connection: Connection, needed: WantedSettings, url: str) -> Session:
    """`prepare_session` on a connection of the driver's synchronous kind."""
    told, limit = connection.info.backend_pid, Deadline(CONNECT_SECONDS)
    return prepare_session(partial(rows, connection), told, needed, narrowed(url, connection.info), limit)


def _opened(url: str, what: str, needed: WantedSettings, key: str) -> Connection:
    with _reached(key):
        connection: Connection = psycopg2.connect(
            url,
            connect_timeout=CONNECT_SECONDS,
            application_name=f"tripstore {what}",
            client_encoding=MEANING["client_encoding"],
            options=needed.options,
            **KEEPALIVES,
        )
        return connection


@contextmanager
def _reached(key: str) -> Iterator[None]:
    try:
        yield
    except psycopg2.OperationalError as error:
        reason = str(error).strip().splitlines()[0]
        if (refused := settings_refused(reason)) is not None:
            raise refused from error
        if (unverified := certificate_refused(reason)) is not None:
            raise unverified from error
        raise LegacyUnavailable(f"Postgres cannot be reached ({reason}).", hint=way_in(reason, key)) from error


def rows(connection: Connection, statement: str, parameters: Any = None) -> list[tuple[Any, ...]]:
    """Run one statement and return its rows, none for a statement that has no answer."""
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return cursor.fetchall() if cursor.description else []
