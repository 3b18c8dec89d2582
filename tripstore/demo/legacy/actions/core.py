"""SQLAlchemy's Core: tables and statements, no models, no session."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from tripstore.demo.legacy.actions.action import action
from tripstore.demo.legacy.models import Base
from tripstore.demo.legacy.turns import NothingToDo, WorkTurn

TRIPS = Base.metadata.tables["trips"]
CITIES = Base.metadata.tables["cities"]
NOTES = Base.metadata.tables["trip_notes"]
ATTEMPTS = Base.metadata.tables["billing_attempts"]
EVENTS = Base.metadata.tables["trip_events"]
TRIPS_AT_ONCE = 10


@action("insert trips", weight=5)
def insert_trip(turn: WorkTurn) -> None:
    with turn.core() as connection:
        row = turn.fiction.whole_trip()
        turn.touch(connection.execute(TRIPS.insert().values(row).returning(TRIPS.c.id)).scalar_one())


@action("insert trips", weight=1)
def insert_many_trips(turn: WorkTurn) -> None:
    """One INSERT with many rows."""
    with turn.core() as connection:
        rows = [turn.fiction.requested_trip() for _ in range(TRIPS_AT_ONCE)]
        for trip_id in connection.scalars(TRIPS.insert().values(rows).returning(TRIPS.c.id)):
            turn.touch(trip_id)


@action("insert billing_attempts", weight=3)
def insert_attempts(turn: WorkTurn) -> None:
    """Several rows by executemany, with numbers found under the trip's lock."""
    trip_id = turn.a_trip()
    with turn.core() as connection:
        locked = connection.scalar(sa.select(TRIPS.c.id).where(TRIPS.c.id == trip_id).with_for_update())
        if locked is None:
            raise NothingToDo
        last = connection.scalar(sa.select(sa.func.max(ATTEMPTS.c.attempt_no)).where(ATTEMPTS.c.trip_id == trip_id))
        numbers = range((last or 0) + 1, (last or 0) + 3)
        connection.execute(ATTEMPTS.insert(), [{"trip_id": trip_id} | turn.fiction.attempt(n) for n in numbers])


@action("insert trip_events", weight=2)
def insert_event(turn: WorkTurn) -> None:
    """Into a table that no layout maps."""
    with turn.core() as connection:
        connection.execute(EVENTS.insert().values({"trip_id": turn.a_trip()} | turn.fiction.event()))


@action("insert trip_notes", "update trip_notes", weight=3)
def upsert_note(turn: WorkTurn) -> None:
    trip_id, number = turn.a_child("trip_notes")
    number += turn.random.randint(0, 1)
    with turn.core() as connection:
        statement = insert(NOTES).values({"trip_id": trip_id} | turn.fiction.note(number))
        taken = statement.excluded
        connection.execute(
            statement.on_conflict_do_update(
                index_elements=["trip_id", "n"],
                set_={"text": sa.func.concat(taken.text, " (again)"), "rating": taken.rating, "context": taken.context},
            )
        )


@action("update trips")
def date_trips(turn: WorkTurn) -> None:
    """UPDATE … FROM: the row's new value comes from another table."""
    first = turn.a_trip()
    local = sa.cast(sa.func.timezone(CITIES.c.timezone, TRIPS.c.request_at), sa.Date)
    with turn.core() as connection:
        connection.execute(
            TRIPS.update()
            .values(local_date=local + turn.random.randint(2, 90))
            .where(TRIPS.c.city_id == CITIES.c.id, TRIPS.c.id.between(first, first + TRIPS_AT_ONCE - 1))
        )
