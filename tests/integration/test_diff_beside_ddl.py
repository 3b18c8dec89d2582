"""A diff that begins while an ALTER TABLE that writes its table anew is about to commit (I12).

A snapshot of before sees an empty table, and no error tells: of a mirror that lacks everything, too, it would be equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from tests.chaos.actors import wait_until
from tests.integration.test_copying_beside_ddl import ALTERS, WAITING
from tests.legacy import FLAVOURS, legacy_server
from tests.legacy_backends import SHARDS, Company, company
from tripstore.engines.validation.diff.buckets import Sums
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

ALTERED = [ALTERS["the parent's"], ALTERS["a child's"]]


@pytest.fixture(params=FLAVOURS)
def trips(request: pytest.FixtureRequest, servers: LocalServers) -> Iterator[Company]:
    """Two trips with a child each."""
    flavour: Flavour = request.param
    with company(legacy_server(servers, flavour)) as made:
        made.legacy.sql("INSERT INTO trips (status) SELECT 'old' FROM generate_series(1, 2)")
        made.legacy.sql("INSERT INTO attempts (trip_id, trip_uuid, attempt_no) SELECT id, trip_uuid, 1 FROM trips")
        yield made


def sums(trips: Company) -> Sums:
    return trips.store.sums.checksums(range(SHARDS), None)


def sums_while(trips: Company, alter: str) -> Sums:
    """Those of a diff that came when the table was written anew, and waited for the ALTER TABLE to commit."""
    with (
        closing(trips.legacy.connect()) as altering,
        altering.cursor() as cursor,
        ThreadPoolExecutor(1) as pool,
    ):
        cursor.execute(alter)
        summing = pool.submit(sums, trips)
        wait_until("the diff waits", lambda: trips.legacy.sql(WAITING) or summing.done())
        altering.commit()
        return summing.result()


@pytest.mark.parametrize("alter", ALTERED)
def test_i12_rows_of_a_table_that_is_written_anew_meanwhile_are_summed(trips: Company, alter: str) -> None:
    expected = sums(trips)

    found = sums_while(trips, alter)

    assert sum(table.rows for table in expected.tables.values()) == 4
    assert found == expected


@pytest.mark.parametrize("alter", ALTERED)
def test_i12_control_with_a_snapshot_of_before_the_lock_the_table_is_empty(trips: Company, alter: str) -> None:
    expected = sums(trips)
    trips.store.sums._held = "SELECT"

    found = sums_while(trips, alter)

    assert sum(table.rows for table in found.tables.values()) == 2
    assert found != expected
