"""`WorkTurn`: one unit of work of a service, from the first look to the commit or to the change of mind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from random import Random
from typing import Literal, Protocol, TypeVar

import psycopg2
import sqlalchemy as sa
from sqlalchemy.orm import Session

from tripstore.demo.legacy.connections import Connections, Cursor
from tripstore.demo.legacy.fictions import Fiction
from tripstore.demo.legacy.services import CITY_OPS, TRIPS_API, Service

Isolation = Literal["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]
Found = TypeVar("Found")

LAST_TRIP = "SELECT coalesce(max(id), 0) FROM trips"
HOT_TRIP = "SELECT id FROM trips ORDER BY id OFFSET %s LIMIT 1"
TRIP_FROM = "SELECT id FROM trips WHERE id >= %s ORDER BY id LIMIT 1"
OPEN_TRIP = """
SELECT id FROM trips WHERE dropoff_at IS NULL AND status = 'requested' AND request_at >= %s
ORDER BY request_at, id LIMIT 1
"""
UNBILLED_TRIP = """
SELECT id FROM trips WHERE id >= %s AND NOT EXISTS (SELECT FROM billing_attempts WHERE trip_id = trips.id)
ORDER BY id LIMIT 1
"""
CHILD = {
    table: f"SELECT trip_id, {number} FROM {table} WHERE trip_id >= %s ORDER BY trip_id, {number} LIMIT 1"
    for table, number in (("billing_attempts", "attempt_no"), ("trip_notes", "n"), ("fare_adjustments", "n"))
}
Child = Literal["billing_attempts", "trip_notes", "fare_adjustments"]


class NothingToDo(Exception):
    """There is no row that this action could change."""


@dataclass(frozen=True)
class ServiceHabits:
    """How the services behave."""

    rollback_ratio: float = 0.05  #: Units of work that end in ROLLBACK after all their statements.
    hot_ratio: float = 0.2  #: Units of work about one of the hot trips: they meet others there.
    hot_trips: int = 16
    pause_seconds: float = 0.0  #: How long a long transaction sits idle in the middle.
    retries: int = 8  #: After a conflict.


class Transaction(Protocol):
    """What has an end."""

    def commit(self) -> None: ...
    def rollback(self) -> None: ...


class WorkTurn:
    """What an action works with: chance, fiction, rows to choose from, and transactions of the services."""

    def __init__(
        self, connections: Connections, random: Random, fiction: Fiction, habits: ServiceHabits, *, gives_up: bool
    ) -> None:
        self.random = random
        self.fiction = fiction
        self.habits = habits
        self.gives_up = gives_up
        self.trips: list[int] = []  #: The trips that were touched.
        self._connections = connections

    @contextmanager
    def session(self, service: Service = TRIPS_API, isolation: Isolation = "READ COMMITTED") -> Iterator[Session]:
        """An ORM session, flushed and committed at the end, or rolled back."""
        engine = self._connections.engine(service).execution_options(isolation_level=isolation)
        with Session(engine) as session:
            yield session
            session.flush()
            self._end(session)

    @contextmanager
    def core(self, service: Service = CITY_OPS, isolation: Isolation = "READ COMMITTED") -> Iterator[sa.Connection]:
        """A connection of SQLAlchemy's Core, committed at the end, or rolled back."""
        engine = self._connections.engine(service).execution_options(isolation_level=isolation)
        with engine.connect() as connection:
            yield connection
            self._end(connection)

    @contextmanager
    def cursor(self, service: Service = TRIPS_API, isolation: Isolation = "READ COMMITTED") -> Iterator[Cursor]:
        """A cursor of the driver's in a transaction, committed at the end, or rolled back."""
        connection = self._connections.raw(service)
        try:
            with connection.cursor() as cursor:
                cursor.execute(f"SET TRANSACTION ISOLATION LEVEL {isolation}")
                yield cursor
            self._end(connection)
        except BaseException:
            with suppress(psycopg2.Error):  # it may be dead; then it is opened anew
                connection.rollback()
            raise

    def touch(self, trip_id: int) -> int:
        """Remember a trip that this is about."""
        self.trips.append(trip_id)
        return trip_id

    def a_trip(self) -> int:
        """Any trip, now and then a hot one."""
        if self.random.random() < self.habits.hot_ratio:
            hot = self._find(HOT_TRIP, self.random.randrange(self.habits.hot_trips))
            if hot is not None:
                return self.touch(hot[0])
        return self._from(TRIP_FROM)

    def an_open_trip(self) -> int:
        """A trip that was requested and no more."""
        return self._either(OPEN_TRIP, self.fiction.moment(), "-infinity")

    def an_unbilled_trip(self) -> int:
        """A trip without an attempt to bill it yet, as far as we know."""
        return self._from(UNBILLED_TRIP)

    def a_child(self, table: Child) -> tuple[int, int]:
        """A child row: its trip and its number."""
        found = self._find(CHILD[table], self._anywhere()) or self._find(CHILD[table], 0)
        if found is None:
            raise NothingToDo
        return self.touch(found[0]), found[1]

    def _from(self, query: str) -> int:
        return self._either(query, self._anywhere(), 0)

    def _either(self, query: str, value: object, otherwise: object) -> int:
        found = self._find(query, value) or self._find(query, otherwise)
        if found is None:
            raise NothingToDo
        return self.touch(found[0])

    def _anywhere(self) -> int:
        last = self._find(LAST_TRIP)
        return self.random.randint(1, max(1, last[0] if last else 1))

    def _find(self, query: str, *values: object) -> tuple[int, ...] | None:
        rows = self._connections.look(query, *values)
        return rows[0] if rows else None

    def _end(self, transaction: Transaction) -> None:
        if self.gives_up:
            transaction.rollback()
        else:
            transaction.commit()


def present(found: Found | None) -> Found:
    """What was found; when it is not there any more, there is nothing to do."""
    if found is None:
        raise NothingToDo
    return found
