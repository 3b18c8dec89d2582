"""The indexes of the example company, asked of its Postgres: what its own SQL would have found."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest

from schemaless_core.cell.answers import IndexEntry
from schemaless_core.definitions.index import load_definitions
from tests.legacy import apply
from tests.legacy_databases import FLAVOURS, PATIENT, new_database, run
from tripstore.backends.postgres.backend import PostgresBackend
from tripstore.backends.postgres.layout.reading import load_layout
from tripstore.backends.postgres.queries.proposals import LiveIndexes, Proposals, proposed_indexes, unkeyed_tables
from tripstore.backends.postgres.schema_steps import schema_steps
from tripstore.backends.postgres.wire.connections import connected
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.demo.legacy import INDEXES, LAYOUT
from tripstore.demo.legacy.schema import CompanySchema
from tripstore.demo.legacy.seeding import Seeds
from tripstore.local.servers import LocalServers

DEFINITIONS = load_definitions(str(INDEXES), INDEXES.parent, "trips")
TRIPS_OF_DRIVER = """
SELECT trip_uuid, user_uuid, city_uuid, request_at FROM trips
JOIN users ON users.id = driver_id JOIN cities ON cities.id = city_id
WHERE user_uuid = %s AND request_at >= %s ORDER BY request_at DESC, trip_uuid DESC
"""
TRIPS_OF_RIDER = """
SELECT trip_uuid, user_uuid, status::text, request_at, fare_amount, (
    SELECT result::text FROM billing_attempts WHERE trip_id = trips.id ORDER BY attempt_no DESC LIMIT 1
) FROM trips JOIN users ON users.id = rider_id
WHERE user_uuid = %s AND status = 'completed' ORDER BY fare_amount NULLS FIRST, trip_uuid
"""


class Made(NamedTuple):
    url: str
    store: PostgresBackend


@pytest.fixture(scope="module", params=FLAVOURS)
def made(request: pytest.FixtureRequest, servers: LocalServers) -> Iterator[Made]:
    """The company with a past and all of our steps."""
    url, layout = new_database(servers, FLAVOURS[request.param]), load_layout(LAYOUT, "trips")
    CompanySchema(url).upgrade()
    Seeds(url, users=12).plant(150)
    with connected(url, "test") as connection:
        apply(schema_steps(layout), connection)
    with PostgresBackend(LegacyDatabase(url, PATIENT), layout, shards=4, indexes=DEFINITIONS) as store:
        yield Made(url, store)


def found(entries: list[IndexEntry]) -> list[tuple[Any, ...]]:
    return [(str(entry.row_key), *(_plain(value) for value in entry.fields.values())) for entry in entries]


def _plain(value: Any) -> Any:
    """As the driver gives it, but for UUIDs, which are texts there."""
    return value if value is None or isinstance(value, int | str | datetime) else str(value)


def test_the_trips_of_every_driver_since_a_time_are_found_page_by_page(made: Made) -> None:
    since = datetime(2014, 1, 1, tzinfo=UTC)
    counts = []
    for (driver,) in run(made.url, "SELECT user_uuid FROM users"):
        entries: list[IndexEntry] = []
        question: dict[str, Any] = {"order_by": "trip_created_at", "descending": True, "limit": 4}
        cursor = None
        while True:
            page = made.store.query_index(
                "driver_partner_index", str(driver), [("trip_created_at", ">=", since)], cursor=cursor, **question
            )
            entries += page.entries
            cursor = page.cursor
            if cursor is None:
                break
        expected = run(made.url, TRIPS_OF_DRIVER, driver, since)
        assert found(entries) == [tuple(map(_plain, row)) for row in expected]
        counts.append(len(expected))
    assert max(counts) > 4, "some have several pages"


def test_the_trips_of_every_rider_come_with_their_latest_attempt(made: Made) -> None:
    results = set()
    for (rider,) in run(made.url, "SELECT user_uuid FROM users"):
        page = made.store.query_index(
            "rider_index", str(rider), [("status", "=", "completed")], order_by="fare", consistency="verified"
        )
        expected = run(made.url, TRIPS_OF_RIDER, rider)
        assert [each[:4] + each[5:] for each in found(page.entries)] == [
            tuple(map(_plain, (*row[:4], *row[5:]))) for row in expected
        ]
        assert [entry.fields["fare"] for entry in page.entries] == [row[4] for row in expected]
        results |= {row[5] for row in expected}
    assert len(results) > 2


def test_the_company_has_every_index_that_these_need(made: Made) -> None:
    layout = made.store.layout
    with connected(made.url, "test") as connection:
        live = LiveIndexes.read(connection, layout)

    assert proposed_indexes(layout, DEFINITIONS, live) == Proposals((), ())
    assert unkeyed_tables(layout, live) == []
