"""The legacy store: what capture and gate cost the company's own code, and our calls against hand-written psycopg2."""

from __future__ import annotations

import itertools
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from random import Random
from uuid import UUID

import psycopg2
import sqlalchemy as sa
from sqlalchemy.orm import Session

from benchmarks.timing import Comparison, compare, paired
from schemaless_core import Json
from tripstore.backends.postgres.backend import PostgresBackend
from tripstore.backends.postgres.ddl.steps import apply_all
from tripstore.backends.postgres.layout.layout import Layout
from tripstore.backends.postgres.layout.reading import load_layout
from tripstore.backends.postgres.schema_steps import schema_steps
from tripstore.backends.postgres.wire.connections import connected, rows
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.demo import legacy
from tripstore.demo.legacy.fictions import Fiction
from tripstore.demo.legacy.models import BillingAttempt, Trip
from tripstore.demo.legacy.people import find_people
from tripstore.demo.legacy.schema import CompanySchema
from tripstore.demo.legacy.seeding import Seeds
from tripstore.demo.legacy.urls import sqlalchemy_url
from tripstore.local.postgres import PostgresServer

PGBENCH_CLIENTS = 4
SHARDS = 64

_PGBENCH = {
    "update": "\\set id random(1, {trips})\nUPDATE trips SET fare_amount = fare_amount + 0.01 WHERE id = :id;\n",
    "mixed": "\\set id random(1, {trips})\n\\set attempt random(1000, 2000000000)\nBEGIN;\n"
    "SELECT status, fare_amount FROM trips WHERE id = :id;\n"
    "UPDATE trips SET fare_amount = fare_amount + 0.01 WHERE id = :id;\n"
    "INSERT INTO billing_attempts (trip_id, attempt_no, result, amount, currency) "
    "VALUES (:id, :attempt, 'captured', 12.50, 'EUR');\nCOMMIT;\n",
    # Each client keeps to a part of its own: overlapping ranges would deadlock.
    "bulk": "\\set id :client_id * {trips} / 4 + random(1, {trips} / 4 - 100)\n"
    "UPDATE trips SET fare_amount = fare_amount + 0.01 WHERE id BETWEEN :id AND :id + 99;\n",
}

#: What a developer would write who knows both tables by heart.
_SELECT = """
SELECT trip.base_version, driver.user_uuid, rider.user_uuid, city.city_uuid, trip.status, trip.product, trip.request_at,
    trip.begin_at, trip.dropoff_at, trip.local_date, trip.currency, trip.fare_amount, trip.tip_amount, trip.surge,
    trip.distance_km, trip.leg_km, trip.duration_seconds, trip.passengers, trip.is_shared, trip.tags, trip.route,
    trip.client, trip.signature
FROM trips AS trip
LEFT JOIN users AS driver ON driver.id = trip.driver_id
LEFT JOIN users AS rider ON rider.id = trip.rider_id
LEFT JOIN cities AS city ON city.id = trip.city_id
WHERE trip.trip_uuid = %s
"""
_UPSERT = """
INSERT INTO trips (trip_uuid, rider_id, driver_id, city_id, status, product, request_at, currency, fare_amount,
    distance_km, duration_seconds, passengers, is_shared, tags)
SELECT %s, rider.id, driver.id, city.id, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s
FROM users AS rider, users AS driver, cities AS city
WHERE rider.user_uuid = %s AND driver.user_uuid = %s AND city.city_uuid = %s
ON CONFLICT (trip_uuid) DO UPDATE SET rider_id = excluded.rider_id, driver_id = excluded.driver_id,
    city_id = excluded.city_id, status = excluded.status, product = excluded.product,
    request_at = excluded.request_at, currency = excluded.currency, fare_amount = excluded.fare_amount,
    distance_km = excluded.distance_km, duration_seconds = excluded.duration_seconds,
    passengers = excluded.passengers, is_shared = excluded.is_shared, tags = excluded.tags
"""


def measure(server: PostgresServer, pgbench: Path | None, *, quick: bool) -> Iterator[Comparison]:
    """Two databases of the same company on one server: one as it was, one with row keys, capture and gate."""
    trips, calls, pairs = (800, 40, 3) if quick else (10_000, 250, 11)
    plain, captured = (_company(server, name, trips) for name in ("plain", "captured"))
    layout = load_layout(legacy.LAYOUT)
    with connected(captured, "benchmark") as connection:
        for _ in apply_all(schema_steps(layout), connection, lambda _step: lambda _done, _all: None):
            pass
    yield from _orm(plain, captured, trips, calls, pairs)
    if pgbench is not None:
        for name, script in _PGBENCH.items():
            yield _with_pgbench(pgbench, name, script.format(trips=trips), plain, captured, 1 if quick else 5)
    yield from _calls(captured, layout, calls, pairs)


def _company(server: PostgresServer, name: str, trips: int) -> str:
    server.query(f"CREATE DATABASE {name}")
    url = f"{server.url}/{name}"
    CompanySchema(url).upgrade()
    Seeds(url).plant(trips)
    server.query("VACUUM ANALYZE", database=name)
    return url


# ---------------------------------------------------------------------------------------------- the company's code


class _Service:
    """What a service does with its trips, through SQLAlchemy."""

    def __init__(self, url: str, trips: int) -> None:
        self._engine = sa.create_engine(sqlalchemy_url(url))
        self._random = Random(7)
        self._trips = trips
        self._numbers = itertools.count(1_000)
        with psycopg2.connect(url) as connection, connection.cursor() as cursor:
            people = find_people(cursor)
        connection.close()
        self._fiction = Fiction(self._random, people.riders, people.drivers, people.cities)

    def update(self) -> None:
        with Session(self._engine) as session, session.begin():
            self._change(session)

    def insert(self) -> None:
        with Session(self._engine) as session, session.begin():
            session.add(Trip(**self._fiction.whole_trip()))

    def mixed(self) -> None:
        """A trip is read and changed, and an attempt to bill it added."""
        with Session(self._engine) as session, session.begin():
            trip = self._change(session)
            session.add(BillingAttempt(trip_id=trip.id, **self._fiction.attempt(next(self._numbers))))

    def close(self) -> None:
        self._engine.dispose()

    def _change(self, session: Session) -> Trip:
        trip = session.get_one(Trip, self._random.randint(1, self._trips))
        trip.fare_amount = Decimal(self._random.randint(100, 100_000)) / 100
        return trip


def _orm(plain: str, captured: str, trips: int, calls: int, pairs: int) -> Iterator[Comparison]:
    with closing(_Service(captured, trips)) as ours, closing(_Service(plain, trips)) as theirs:
        for name in ("update", "insert", "mixed"):
            yield compare(
                f"SQLAlchemy ORM {name} with capture",
                getattr(ours, name),
                getattr(theirs, name),
                calls=calls,
                pairs=pairs,
                bound=("<=", 1.25),
            )


def _with_pgbench(program: Path, name: str, script: str, plain: str, captured: str, pairs: int) -> Comparison:
    def p50(url: str) -> float:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "script.sql")
            file.write_text(script)
            command = [str(program), "-n", "-c", str(PGBENCH_CLIENTS), "-j", "1", "-T", "2", "-f", str(file)]
            subprocess.run([*command, "-l", "--log-prefix=log", url], check=True, capture_output=True, cwd=folder)
            lines = [line for log in Path(folder).glob("log*") for line in log.read_text().splitlines()]
        return statistics.median(int(line.split()[2]) for line in lines)

    figures = [(p50(captured), p50(plain)) for _ in range(pairs)]
    ours, theirs = zip(*figures, strict=True)
    return paired(f"  pgbench {name} with capture, {PGBENCH_CLIENTS} clients", ours, theirs)


# ------------------------------------------------------------------------------------------------------- our calls


@dataclass(frozen=True)
class People:
    riders: Sequence[str]
    drivers: Sequence[str]
    cities: Sequence[str]

    def body(self, random: Random) -> dict[str, Json]:
        return {
            "rider_uuid": random.choice(self.riders),
            "driver_partner_uuid": random.choice(self.drivers),
            "city_uuid": random.choice(self.cities),
            "status": "completed",
            "product": "standard",
            "trip_created_at": "2014-08-01T12:00:00.000000Z",
            "dropoff_at": None,
            "currency": "EUR",
            "fare": f"{random.randint(100, 99_999) / 100:.2f}",
            "distance_km": random.random() * 40,
            "duration_seconds": random.randint(60, 5_000),
            "passengers": 2,
            "is_shared": False,
            "tags": ["airport", "promo"],
        }


def known_people(url: str) -> People:
    statements = (
        "SELECT user_uuid::text FROM public.users WHERE role = 'rider'",
        "SELECT user_uuid::text FROM public.users WHERE role = 'driver'",
        "SELECT city_uuid::text FROM public.cities",
    )
    with connected(url, "benchmark") as connection:
        return People(*([text for (text,) in rows(connection, statement)] for statement in statements))


def _calls(url: str, layout: Layout, calls: int, pairs: int) -> Iterator[Comparison]:
    with connected(url, "benchmark") as connection:
        keys = [UUID(key) for (key,) in rows(connection, "SELECT trip_uuid FROM public.trips LIMIT 500")]
    people = known_people(url)
    with (
        PostgresBackend(LegacyDatabase(url), layout, shards=SHARDS) as store,
        closing(psycopg2.connect(url)) as reader,
        closing(psycopg2.connect(url)) as writer,
    ):
        reader.autocommit = True
        random = Random(11)
        yield compare(
            "get_cell_latest, a trip of the company's",
            lambda: store.get_cell_latest(random.choice(keys), "BASE"),
            lambda: _hand_written_read(reader, random.choice(keys)),
            calls=calls,
            pairs=pairs,
            bound=("<=", 1.25),
        )
        versions = itertools.count(1_000)
        put, upsert = _puts(store, writer, people, random, keys, versions)
        yield compare("put_cell, another version of a trip", put, upsert, calls=calls, pairs=pairs, bound=("<=", 1.4))
        put, upsert = _puts(store, writer, people, random, None, itertools.repeat(1))
        yield compare("put_cell, a new trip", put, upsert, calls=calls, pairs=pairs, bound=("<=", 1.4))


def _hand_written_read(connection: psycopg2.extensions.connection, row_key: UUID) -> tuple[object, ...]:
    with connection.cursor() as cursor:
        cursor.execute(_SELECT, (str(row_key),))
        (found,) = cursor.fetchall()
    assert found[0] >= 1
    return tuple(found)


def _puts(
    store: PostgresBackend,
    connection: psycopg2.extensions.connection,
    people: People,
    random: Random,
    keys: Sequence[UUID] | None,
    versions: Iterator[int],
) -> tuple[Callable[[], None], Callable[[], None]]:
    def key() -> UUID:
        return random.choice(keys) if keys else UUID(int=random.getrandbits(128), version=4)

    def put() -> None:
        store.put_cell(key(), "BASE", next(versions), people.body(random))

    def upsert() -> None:
        body = people.body(random)
        names = ("status", "product", "trip_created_at", "currency", "fare", "distance_km", "duration_seconds")
        values = [body[name] for name in (*names, "passengers", "is_shared", "tags")]
        uuids = (body["rider_uuid"], body["driver_partner_uuid"], body["city_uuid"])
        with connection, connection.cursor() as cursor:
            cursor.execute(_UPSERT, (str(key()), *values, *uuids))
            assert cursor.rowcount == 1

    return put, upsert
