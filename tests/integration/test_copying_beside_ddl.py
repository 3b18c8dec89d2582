"""Chunks that are read while an ALTER TABLE that writes its table anew is about to commit (I12).

What it writes carries its own number, so a snapshot of before sees an empty table, and no error tells.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

import pytest

from tests.chaos.actors import wait_until
from tests.legacy import FLAVOURS, layout, legacy_server
from tests.legacy_backends import Company, company
from tests.past import Bodies, bodies
from tripstore.backends.postgres.cells.past import reader as copying
from tripstore.backends.postgres.cells.past.reader import PastReader
from tripstore.backends.postgres.errors import LegacyUnavailable
from tripstore.handover.ports import Blocks, Chunk, Past
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

ALTERS = {
    "the parent's": "ALTER TABLE trips ALTER memo TYPE varchar(100) USING (memo || 'x')::varchar(100)",
    "a child's": "ALTER TABLE attempts ALTER memo TYPE varchar(100) USING (memo || 'x')::varchar(100)",
    "a looked-up one": "ALTER TABLE users ALTER name TYPE varchar(100) USING (name || 'x')::varchar(100)",
}
WAITING = "SELECT 1 FROM pg_locks WHERE NOT granted AND mode = 'AccessShareLock'"
_LEAF = "SELECT oid::bigint, pg_relation_filenode(oid)::bigint FROM pg_class WHERE oid = 'trips'::regclass"


@pytest.fixture(params=FLAVOURS)
def trips(request: pytest.FixtureRequest, servers: LocalServers) -> Iterator[Company]:
    """Two trips with a child each."""
    flavour: Flavour = request.param
    with company(legacy_server(servers, flavour)) as made:
        made.legacy.sql(
            "INSERT INTO trips (trip_uuid, status, driver_id)"
            " SELECT gen_random_uuid(), 'old', n FROM generate_series(1, 2) AS n"
        )
        made.legacy.sql("INSERT INTO attempts (trip_id, trip_uuid, attempt_no) SELECT id, trip_uuid, 1 FROM trips")
        yield made


def read_while(trips: Company, alter: str, chunk: Chunk) -> Past:
    """Read it when the table was written anew, and the ALTER TABLE commits once the reader waits for it."""
    while True:
        with suppress(LegacyUnavailable):  # it waited for too long: a worker reads such a chunk again
            return _read_while(trips, alter, chunk)


def _read_while(trips: Company, alter: str, chunk: Chunk) -> Past:
    with (
        closing(PastReader(trips.legacy.url, layout())) as reader,
        closing(trips.legacy.connect()) as altering,
        altering.cursor() as cursor,
        ThreadPoolExecutor(1) as pool,
    ):
        cursor.execute(alter)
        reading = pool.submit(reader.read, chunk)
        wait_until("the reader waits", lambda: trips.legacy.sql(WAITING) or reading.done())
        altering.commit()
        return reading.result()


def standing(trips: Company) -> Bodies:
    with closing(PastReader(trips.legacy.url, layout())) as reader:
        return bodies(reader.read(Chunk()).cells)


@pytest.mark.parametrize("alter", ALTERS.values(), ids=ALTERS.keys())
def test_i12_rows_of_a_table_that_is_written_anew_meanwhile_are_read(trips: Company, alter: str) -> None:
    expected = standing(trips)

    past = read_while(trips, alter, Chunk())

    assert len(expected) == 6
    assert bodies(past.cells) == expected
    assert past.unreadable == ()


def test_i12_pairs_of_a_table_that_is_written_anew_meanwhile_are_read_by_blocks(trips: Company) -> None:
    ((oid, filenode),) = trips.legacy.sql(_LEAF)
    blocks = Blocks('"public"."trips"', '"public"."trips"', oid, filenode, 0, 1)

    past = read_while(trips, ALTERS["a looked-up one"], Chunk(blocks=blocks))

    assert past.unreadable == ()
    assert len(past.cells) == 4
    assert all(b"driver_uuid" in cell.body for cell in past.cells if cell.column_name == b"BASE")


@pytest.mark.parametrize("alter", ALTERS.values(), ids=ALTERS.keys())
def test_i12_control_with_a_snapshot_of_before_the_lock_the_table_is_empty(
    trips: Company, alter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = standing(trips)
    monkeypatch.setattr(copying, "hold_all", lambda _: "SELECT")

    past = read_while(trips, alter, Chunk())

    assert len(past.cells) < 6 or past.unreadable or bodies(past.cells) != expected
    assert past.after is None, "the part is done"
