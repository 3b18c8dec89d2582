"""Packets under a limit: one that ends just at it is done or is not, and no statement after it pays for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest
from psycopg2 import errors as postgres
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from tests.legacy import FLAVOURS
from tests.legacy_databases import new_database
from tripstore.backends.postgres.ddl.ddl import Patience, limited
from tripstore.backends.postgres.wire.connections import connected, rows
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

SHORT = Patience(lock_timeout_seconds=0.005)
SHORT_MILLISECONDS = 5
PACKETS = 600
#: So often the control must be seen to fail.
TIMES = 3
CONTROL_SECONDS = 60.0


class Found(NamedTuple):
    """What became of packets that all took about as long as they may."""

    packets: int = 0
    cancelled: int = 0
    cancelled_later: int = 0  #: The statement after it, on which there is no limit.


def at_the_limit(
    connection: Connection, packet: Callable[[Sequence[str]], str], is_enough: Callable[[Found], bool]
) -> Found:
    work, found = 10_000, Found()
    while not is_enough(found):
        found = found._replace(packets=found.packets + 1)
        try:
            rows(connection, packet([f"SELECT count(*) FROM generate_series(1, {work})"]))
            work = int(work * 1.01) + 1
        except postgres.QueryCanceled:
            found, work = found._replace(cancelled=found.cancelled + 1), int(work * 0.99)
        try:
            assert rows(connection, "SELECT 7") == [(7,)]
        except postgres.QueryCanceled:
            found = found._replace(cancelled_later=found.cancelled_later + 1)
    return found


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_packet_that_ends_at_its_limit_harms_no_statement_after_it(servers: LocalServers, flavour: Flavour) -> None:
    """Control: without the last statements of a packet, in so many packets the next statement is cancelled often."""
    until = time.monotonic() + CONTROL_SECONDS
    with connected(new_database(servers, flavour, ""), "limited", statement_timeout="0") as connection:
        control = at_the_limit(
            connection,
            lambda statements: "; ".join([f"SET LOCAL statement_timeout = {SHORT_MILLISECONDS}", *statements]),
            lambda found: found.cancelled_later >= TIMES or time.monotonic() > until,
        )
        found = at_the_limit(
            connection,
            lambda statements: limited(statements, SHORT),
            lambda found: found.packets >= max(PACKETS, control.packets) and found.cancelled > 0,
        )

    assert control.cancelled_later >= TIMES
    assert found.packets > found.cancelled > 0
    assert found.cancelled_later == 0


def test_the_limit_holds_for_each_statement_and_not_for_the_last(servers: LocalServers) -> None:
    long = f"SELECT pg_catalog.pg_sleep({4 * SHORT.lock_timeout_seconds})"
    with connected(new_database(servers, FLAVOURS[0], "CREATE TABLE public.t (n int)"), "limited") as connection:
        with pytest.raises(postgres.QueryCanceled):
            rows(connection, limited(["INSERT INTO public.t VALUES (1)", long], SHORT))
        assert rows(connection, "SELECT n FROM public.t") == []
        assert rows(connection, limited(["INSERT INTO public.t VALUES (2)"], SHORT, last=f"{long}, 3")) == [("", 3)]
        assert rows(connection, "SELECT n FROM public.t") == [(2,)]
