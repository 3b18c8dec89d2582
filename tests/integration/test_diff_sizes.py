"""How large a diff will be, as Postgres estimates it: the parts are cut by it, and the time that is left is told."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.facades import Migration, migration
from tests.stores import Stores
from tripstore.backends.postgres.sizes import ABOUT_ROWS
from tripstore.backends.postgres.wire.connections import connected, rows
from tripstore.local.servers import LocalServers
from tripstore.migration.diff import diff as diffing_module
from tripstore.migration.diff.diff import PARTS_MAX, Diffing
from tripstore.migration.diff.order import Order
from tripstore.phase import Phase

TRIPS = 3_000
PARTED = """
CREATE TABLE public.parted (n int) PARTITION BY RANGE (n);
CREATE TABLE public.parted_low PARTITION OF public.parted FOR VALUES FROM (0) TO (500) WITH (autovacuum_enabled = off);
CREATE TABLE public.parted_high PARTITION OF public.parted FOR VALUES FROM (500) TO (1000) PARTITION BY RANGE (n);
CREATE TABLE public.parted_leaf PARTITION OF public.parted_high
    FOR VALUES FROM (500) TO (1000) WITH (autovacuum_enabled = off);
INSERT INTO public.parted SELECT n FROM generate_series(0, 999) AS n
"""


@pytest.fixture(scope="module")
def company(servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    with migration(servers, stores, shards=8) as made:
        made.legacy.sql(
            "INSERT INTO trips (driver_id, status, fare, distance, request_at) "
            f"SELECT 1 + n % 2, 'requested', 1, 1, '2014-08-01' FROM generate_series(1, {TRIPS}) AS n"
        )
        made.phase(Phase.DUALWRITE)
        yield made


def about(company: Migration, table: str, dense: int) -> int:
    with connected(company.legacy.url, "test") as connection:
        return int(rows(connection, ABOUT_ROWS, (f"public.{table}", dense))[0][0])


def test_a_plain_table_is_estimated_and_said_before_and_in_the_job(company: Migration) -> None:
    """Each trip is a cell of BASE and one of its legacy id."""
    company.legacy.sql("ANALYZE")
    plan = Diffing(company.facade).plan(Order(indexes=False, decoded=0))

    assert plan.estimate == plan.spec["estimate"] == 2 * TRIPS


def test_what_is_large_is_cut_and_never_in_too_many(company: Migration, monkeypatch: pytest.MonkeyPatch) -> None:
    company.legacy.sql("ANALYZE")
    numbers = []
    for cells in (TRIPS * 3, TRIPS, 1):
        monkeypatch.setattr(diffing_module, "CELLS_PER_PART", cells)
        numbers.append(len(Diffing(company.facade).plan(Order(indexes=False, decoded=0)).parts))

    assert numbers == [1, 3, min(PARTS_MAX, 8)]


def test_rows_of_partitions_count_once(company: Migration) -> None:
    """The table itself knows how many all of them have: that is no further row."""
    company.legacy.sql(PARTED)
    try:
        assert about(company, "parted", 0) == 0
        assert about(company, "parted", 7) % 7 == 0 < about(company, "parted", 7)
        company.legacy.sql("ANALYZE public.parted")
        assert about(company, "parted", 7) == 1_000
        assert about(company, "parted_high", 7) == about(company, "parted_leaf", 7) == 500
    finally:
        company.legacy.sql("DROP TABLE public.parted")
