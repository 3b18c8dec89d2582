"""The connection of a long copy: synchronous, since the driver knows COPY on no other. It writes nothing."""

from __future__ import annotations

from typing import NamedTuple

import psycopg2
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from tripstore.backends.postgres.wire.connections import (
    CONNECT_SECONDS,
    KEEPALIVES,
    MEANING,
    prepare,
    wanted,
)
from tripstore.backends.postgres.wire.translation import translate_connect
from tripstore.backends.postgres.wire.watched import watched

#: A process that was stopped half-way through a chunk must not hold the server's horizon for longer.
IDLE_SECONDS = 30


class PastConnection(NamedTuple):
    """Autocommit: transactions begin and end by SQL."""

    driver: Connection
    #: What the role's sessions have before ours is pinned: a predicate of the company's may rely on it.
    search_path: str


def past_connection(url: str, *, statement_seconds: float) -> PastConnection:
    """Connect with the settings that make texts of values independent of the role."""
    needed = wanted(**_settings(statement_seconds))
    try:
        connection = psycopg2.connect(
            url,
            connect_timeout=CONNECT_SECONDS,
            application_name="tripstore backfill",
            client_encoding=MEANING["client_encoding"],
            options=needed.options,
            **KEEPALIVES,
        )
        try:
            connection.cursor_factory = watched(statement_seconds)
            connection.autocommit = True
            session = prepare(connection, needed, url)
        except BaseException:
            connection.close()
            raise
    except psycopg2.Error as error:
        raise translate_connect(error) from error
    return PastConnection(connection, session.search_path)


def _settings(statement_seconds: float) -> dict[str, str]:
    return {
        "statement_timeout": str(max(round(statement_seconds * 1000), 1)),
        "idle_in_transaction_session_timeout": str(IDLE_SECONDS * 1000),
        "lock_timeout": "1000",
        "default_transaction_read_only": "on",
        # A flush that did not wait for a standby says so as a warning.
        "client_min_messages": "warning",
        # A chunk is a small part of each table, whatever a statistic of yesterday says.
        "enable_seqscan": "off",
        # One core of the company's server per process, and no more.
        "max_parallel_workers_per_gather": "0",
        "jit": "off",
    }
