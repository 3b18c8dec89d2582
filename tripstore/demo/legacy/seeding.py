"""`Seeds`: a company's past at any size: cities, users, trips with their children. The same number, the same past."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from uuid import UUID

import psycopg2

from tripstore.demo.legacy.connections import Cursor
from tripstore.demo.legacy.copying import copy_rows
from tripstore.demo.legacy.fictions import FIRST_DAY, Fiction, Row
from tripstore.demo.legacy.people import People, find_people
from tripstore.demo.legacy.urls import driver_url

TRIPS_PER_COPY = 5_000

#: One trip of so many has only been requested.
OPEN_EVERY = 10

CITIES = (
    ("SF", "San Francisco", "America/Los_Angeles", "USD"),
    ("NYC", "New York", "America/New_York", "USD"),
    ("PAR", "Paris", "Europe/Paris", "EUR"),
    ("LON", "London", "Europe/London", "GBP"),
    ("AAR", "Aarhus", "Europe/Copenhagen", "DKK"),
    ("SAO", "São Paulo", "America/Sao_Paulo", "BRL"),
    ("DEL", "दिल्ली", "Asia/Kolkata", "INR"),
    ("LHR", "Lord Howe", "Australia/Lord_Howe", "AUD"),
)

HAS_USERS = "SELECT EXISTS (SELECT FROM users)"
NEXT_IDS = "SELECT nextval(pg_get_serial_sequence('trips', 'id')) FROM generate_series(1, %s)"
SKIP_IDS = "SELECT setval(pg_get_serial_sequence(%s, 'id'), %s)"
ANALYZE = "ANALYZE users, cities, trips, billing_attempts, trip_notes, fare_adjustments"


@dataclass(frozen=True)
class Seeds:
    """Fills the tables of a company."""

    url: str
    number: int = 1
    users: int = 200

    def plant(self, trips: int) -> None:
        """Add so many trips with their children; cities and users too if there are none."""
        connection = psycopg2.connect(driver_url(self.url), application_name="seeds")
        try:
            with connection, connection.cursor() as cursor:
                self._plant_people(cursor)
            for first in range(0, trips, TRIPS_PER_COPY):
                with connection, connection.cursor() as cursor:
                    _plant_trips(cursor, Random(f"{self.number}/{first}"), min(TRIPS_PER_COPY, trips - first))
            with connection, connection.cursor() as cursor:
                cursor.execute(ANALYZE)
        finally:
            connection.close()

    def _plant_people(self, cursor: Cursor) -> None:
        cursor.execute(HAS_USERS)
        if cursor.fetchall() == [(True,)]:
            return
        random = Random(self.number)
        cities: list[Row] = [
            {"id": city, "city_uuid": _uuid(random), "code": code, "name": name, "timezone": zone, "currency": currency}
            for city, (code, name, zone, currency) in enumerate(CITIES, 1)
        ]
        users = [_user(random, number) for number in range(1, self.users + 1)]
        for table, rows in (("cities", cities), ("users", users)):
            copy_rows(cursor, table, rows)
            cursor.execute(SKIP_IDS, (table, len(rows)))


def _plant_trips(cursor: Cursor, random: Random, count: int) -> None:
    people: People = find_people(cursor)
    fiction = Fiction(random, people.riders, people.drivers, people.cities)
    cursor.execute(NEXT_IDS, (count,))
    ids = [int(row[0]) for row in cursor.fetchall()]
    open_ids, closed_ids = ids[::OPEN_EVERY], [trip_id for position, trip_id in enumerate(ids) if position % OPEN_EVERY]
    for chosen, trip in ((open_ids, fiction.requested_trip), (closed_ids, fiction.whole_trip)):
        rows: list[Row] = [{"id": trip_id} | trip() for trip_id in chosen]
        copy_rows(cursor, "trips", rows)
    for table, make, most in (
        ("billing_attempts", fiction.attempt, 3),
        ("trip_notes", fiction.note, 2),
        ("fare_adjustments", fiction.adjustment, 2),
    ):
        rows = [
            {"trip_id": trip_id} | make(number) for trip_id in ids for number in range(1, random.randint(0, most) + 1)
        ]
        copy_rows(cursor, table, rows)


def _user(random: Random, number: int) -> Row:
    role = "driver" if number % 4 == 0 else "rider"
    return {
        "id": number,
        "user_uuid": _uuid(random),
        "role": role,
        "name": f"{role.title()} {number}",
        "email": f"{role}-{number}@example.com",
        "signed_up_at": FIRST_DAY,
    }


def _uuid(random: Random) -> UUID:
    return UUID(int=random.getrandbits(128), version=4)
