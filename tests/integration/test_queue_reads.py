"""What a claim and a mark read of the queue: their own changes, however much was delivered since the last vacuum."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest

from schemaless_core.deadline import Deadline
from tests.handovers import refreshed
from tests.legacy import FLAVOURS, legacy_server
from tests.legacy_backends import Company, company
from tripstore.backends.postgres.handover import walk
from tripstore.backends.postgres.handover.queue import Claimant, Queue
from tripstore.backends.postgres.handover.walk import NEAR_IDS
from tripstore.backends.postgres.wire.wire import LegacyConnection, Prepared, Row
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

#: Changes that were delivered and not swept.
DEAD = 60_000
#: Changes that are claimed and marked.
CHANGES = 50
FILL = f"""\
INSERT INTO tripstore.queue (row_key, column_name, ref_key)
SELECT gen_random_uuid(), 'BASE', n FROM generate_series(1, {DEAD}) AS n"""
# Walks begin nearer than that to the last change.
SKIP = f"""\
SELECT setval('tripstore.queue_id_seq', (SELECT last_value FROM tripstore.queue_id_seq) + {2 * NEAR_IDS})"""
PAGES = "SELECT pg_relation_size('tripstore.queue') / 8192"
#: What the planner was told of the queue: nothing, or what it held when it was looked at.
KNOWN = ("nothing", "full", "empty")


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


@pytest.fixture(params=FLAVOURS, scope="module")
def shared(request: pytest.FixtureRequest, servers: LocalServers) -> Iterator[Company]:
    flavour: Flavour = request.param
    with company(legacy_server(servers, flavour)) as made:
        yield made


@pytest.fixture(params=KNOWN)
def unswept(request: pytest.FixtureRequest, shared: Company) -> Iterator[Company]:
    """A company whose queue is mostly what nobody has swept."""
    trips = refreshed(shared)
    trips.legacy.sql("ALTER TABLE tripstore.queue SET (autovacuum_enabled = false)")
    trips.legacy.sql(FILL)
    if request.param == "full":
        trips.legacy.sql("ANALYZE tripstore.queue")
    trips.legacy.sql("DELETE FROM tripstore.queue")
    if request.param == "empty":
        trips.legacy.sql("ANALYZE tripstore.queue")
    trips.legacy.sql(SKIP)
    yield trips
    trips.legacy.sql("ALTER TABLE tripstore.queue RESET (autovacuum_enabled)")
    trips.legacy.sql("VACUUM FULL ANALYZE tripstore.queue")


@pytest.mark.parametrize("limit", [100, 500])
def test_what_was_delivered_is_not_read_again(unswept: Company, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "WHOLE_SECONDS", 3600.0)
    queue, claimant = Queue(unswept.store.layout), Claimant("one", 60.0)

    def carry(connection: LegacyConnection) -> list[int]:
        explaining = Explaining(connection)
        asked = cast(LegacyConnection, explaining)
        claimed = queue.claim(asked, claimant, limit, with_own=False)
        del explaining.pages[1:]  # of what is asked of other tables
        assert queue.mark_delivered(asked, claimed.cells, claimed.without_id) == CHANGES
        queue.look(asked)
        return explaining.pages

    def walk_once(connection: LegacyConnection) -> None:
        queue.claim(connection, claimant, limit, with_own=False)

    unswept.store.database.run(walk_once, Deadline(60))
    unswept.base(*range(1, CHANGES + 1))
    ((all_pages,),) = unswept.legacy.sql(PAGES)

    claim, mark, everything = unswept.store.database.run(carry, Deadline(60))

    assert everything >= all_pages >= 1500  # control: whoever reads all of it is seen to
    assert claim < 50 + 12 * CHANGES
    assert mark < 50 + 20 * CHANGES
