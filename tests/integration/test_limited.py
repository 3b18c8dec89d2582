"""Packets under a limit: one that ends just at it is done or is not, and no statement after it pays for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest
from psycopg2 import errors as postgres
from psycopg2.extensions import connection as Connection  # noqa: N812

from tests.legacy import FLAVOURS
from tests.legacy_databases import new_database
from tripstore.backends.postgres.ddl.ddl import Patience, limited
from tripstore.backends.postgres.wire.connections import connected, rows
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

SHORT = Patience(lock_timeout_seconds=0.005)
PACKETS = 600
CONTROL_SECONDS = 60.0


class Found(NamedTuple):
    """What became of packets that all took about as long as they may."""

    done: int
    cancelled: int
    cancelled_later: int  #: The statement after it, on which there is no limit.


def at_the_limit(
    connection: Connection, packet: Callable[[Sequence[str]], str], is_enough: Callable[[Found], bool]
) -> Found:
    work, found = 10_000, Found(0, 0, 0)
    while not is_enough(found):
        try:
            rows(connection, packet([f"SELECT count(*) FROM generate_series(1, {work})"]))
            found, work = found._replace(done=found.done + 1), int(work * 1.01) + 1
        except postgres.QueryCanceled:
            found, work = found._replace(cancelled=found.cancelled + 1), int(work * 0.99)
        try:
            assert rows(connection, "SELECT 7") == [(7,)]
        except postgres.QueryCanceled:
            found = found._replace(cancelled_later=found.cancelled_later + 1)
    return found


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_packet_that_ends_at_its_limit_harms_no_statement_after_it(servers: LocalServers, flavour: Flavour) -> None:
    with connected(new_database(servers, flavour, ""), "limited", statement_timeout="0") as connection:
        found = at_the_limit(
            connection,
            lambda statements: limited(statements, SHORT),
            lambda found: min(found.done, found.cancelled) >= PACKETS / 4 and found.done + found.cancelled >= PACKETS,
        )

    assert found.cancelled_later == 0


def test_control_without_a_last_statement_the_next_one_is_cancelled(servers: LocalServers) -> None:
    until = time.monotonic() + CONTROL_SECONDS
    with connected(new_database(servers, FLAVOURS[0], ""), "limited", statement_timeout="0") as connection:
        found = at_the_limit(
            connection,
            lambda statements: limited(statements[:-1], SHORT, last=statements[-1]),
            lambda found: found.cancelled_later > 0 or time.monotonic() > until,
        )

    assert found.cancelled_later > 0
