"""What a claim and a mark read of the queue: their own changes, however much was delivered since the last vacuum."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast
from uuid import uuid4

import pytest

from schemaless_core.cell.cell import Cell
from schemaless_core.deadline import Deadline
from tests.legacy import FLAVOURS, legacy_server
from tests.legacy_backends import Company, company
from tripstore.backends.postgres.handover import queue as queue_sql
from tripstore.backends.postgres.handover import walk
from tripstore.backends.postgres.handover.queue import Claimant, Queue
from tripstore.backends.postgres.handover.walk import NEAR_IDS
from tripstore.backends.postgres.wire import wire
from tripstore.backends.postgres.wire.wire import LegacyConnection, Prepared, Row
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

#: Changes that were delivered and not swept.
DEAD = 60_000
#: Changes that are claimed and marked, and the pages that this may take of a queue of so many more.
CHANGES = 50
CLAIM_PAGES_MAX, MARK_PAGES_MAX, PAGES_MIN = 50 + 12 * CHANGES, 50 + 20 * CHANGES, 1_500
#: What the planner was told of the queue: nothing, or what it held when it was looked at.
KNOWN = ("nothing", "full", "empty")
CLAIMANT = Claimant("one", 60.0)

_FILL = f"""\
INSERT INTO tripstore.queue (row_key, column_name, ref_key)
SELECT gen_random_uuid(), 'BASE', n FROM generate_series(1, {DEAD}) AS n"""
# Walks begin nearer than that to the last change.
_SKIP = f"""\
SELECT setval('tripstore.queue_id_seq', (SELECT last_value FROM tripstore.queue_id_seq) + {2 * NEAR_IDS})"""
_PAGES = "SELECT pg_relation_size('tripstore.queue') / 8192"


class Explaining:
    """A connection that counts the pages that each packet's last statement reads, before it runs it."""

    def __init__(self, connection: LegacyConnection) -> None:
        self._connection = connection
        self.pages: list[int] = []

    def call(self, statement: Prepared, arguments: str) -> str:
        return self._connection.call(statement, arguments)

    def rows(self, sql: str, parameters: Sequence[Any] | None = None) -> list[Row]:
        before, _, last = sql.rpartition(";")
        explain = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {last}"
        self._connection.rows("BEGIN")
        ((plan,),) = self._connection.rows(f"{before}; {explain}" if before else explain, parameters)
        self._connection.rows("ROLLBACK")
        self.pages.append(plan[0]["Plan"]["Shared Hit Blocks"] + plan[0]["Plan"]["Shared Read Blocks"])
        return self._connection.rows(sql, parameters)


class Pages(NamedTuple):
    """How many were read by whom, of how many."""

    claim: int
    mark: int
    look: int
    all: int


@pytest.fixture(params=FLAVOURS)
def trips(request: pytest.FixtureRequest, servers: LocalServers) -> Iterator[Company]:
    """A company whose queue no relay sweeps or looks at."""
    flavour: Flavour = request.param
    with company(legacy_server(servers, flavour)) as made:
        made.legacy.sql("ALTER TABLE tripstore.queue SET (autovacuum_enabled = false)")
        yield made


@pytest.fixture
def connection(trips: Company, monkeypatch: pytest.MonkeyPatch) -> Iterator[LegacyConnection]:
    """Plans stay; walks begin near the last change, once one has begun at the beginning."""
    monkeypatch.setattr(wire, "PLAN_SECONDS", 3600.0)
    monkeypatch.setattr(walk, "WHOLE_SECONDS", 3600.0)
    connection = trips.store.database.connect_apart("queue reads")
    connection.deadline = Deadline(120)
    yield connection
    trips.store.database.part_with(connection)


def fill(trips: Company, known: str) -> None:
    """Many changes came, and were delivered."""
    trips.legacy.sql(_FILL)
    if known == "full":
        trips.legacy.sql("ANALYZE tripstore.queue")
    trips.legacy.sql("DELETE FROM tripstore.queue")
    if known == "empty":
        trips.legacy.sql("ANALYZE tripstore.queue")
    trips.legacy.sql(_SKIP)


def pages_of(trips: Company, queue: Queue, connection: LegacyConnection, limit: int) -> Pages:
    """By a claim of a few changes, by their mark, and by a look at everything."""
    queue.claim(connection, CLAIMANT, limit, with_own=False)
    trips.base(*range(1, CHANGES + 1))
    explaining = Explaining(connection)
    asked = cast(LegacyConnection, explaining)
    claimed = queue.claim(asked, CLAIMANT, limit, with_own=False)
    of_claim = explaining.pages[0]
    assert queue.mark_delivered(asked, claimed.cells, claimed.without_id) == CHANGES
    of_mark = explaining.pages[-1]
    queue.look(asked)
    return Pages(of_claim, of_mark, explaining.pages[-1], trips.legacy.sql(_PAGES)[0][0])


@pytest.mark.parametrize("known", KNOWN)
@pytest.mark.parametrize("limit", [100, 500])
def test_what_was_delivered_is_not_read_again(
    trips: Company, connection: LegacyConnection, known: str, limit: int
) -> None:
    fill(trips, known)

    pages = pages_of(trips, Queue(trips.store.layout), connection, limit)

    assert pages.look >= pages.all >= PAGES_MIN  # a statement that reads all of it is seen to
    assert pages.claim < CLAIM_PAGES_MAX
    assert pages.mark < MARK_PAGES_MAX


def plan_for_nothing(trips: Company, connection: LegacyConnection) -> Queue:
    """A queue whose statements were planned when it was empty, and known to be."""
    trips.legacy.sql("VACUUM ANALYZE tripstore.queue")
    queue = Queue(trips.store.layout)
    assert queue.claim(connection, CLAIMANT, 100).cells == ()
    assert queue.mark_delivered(connection, [Cell(uuid4(), "BASE", 1, None)]) == 0
    return queue


def test_a_plan_that_was_made_for_an_empty_queue_reads_no_more_of_a_full_one(
    trips: Company, connection: LegacyConnection
) -> None:
    queue = plan_for_nothing(trips, connection)
    fill(trips, "nothing")

    pages = pages_of(trips, queue, connection, 100)

    assert pages.all >= PAGES_MIN
    assert pages.claim < CLAIM_PAGES_MAX
    assert pages.mark < MARK_PAGES_MAX


def test_control_a_plan_for_an_empty_queue_that_may_scan_reads_all_of_it(
    trips: Company, connection: LegacyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_CLAIM_BEGINS", "_MARK_BEGINS"):
        monkeypatch.setattr(queue_sql, name, "")
    queue = plan_for_nothing(trips, connection)
    fill(trips, "nothing")

    pages = pages_of(trips, queue, connection, 100)

    assert pages.claim > pages.all
    assert pages.mark > CHANGES * pages.all
