"""Savepoints: a part of a transaction is taken back, the rest is committed."""

from __future__ import annotations

from psycopg2.errorcodes import UNIQUE_VIOLATION
from sqlalchemy.exc import IntegrityError

from tripstore.demo.legacy.actions.action import action
from tripstore.demo.legacy.models import Trip, TripNote
from tripstore.demo.legacy.statements import insert_row
from tripstore.demo.legacy.turns import WorkTurn, present

SET_SURGE = "UPDATE trips SET surge = %s WHERE id = %s"
SET_PRODUCT = "UPDATE trips SET product = %s WHERE id = %s"
DELETE = "DELETE FROM trips WHERE id = %s"


@action("update trips", weight=3)
def take_back_a_part(turn: WorkTurn) -> None:
    """Update, savepoint, update and insert, back to the savepoint, update."""
    trip_id = turn.a_trip()
    with turn.cursor() as cursor:
        cursor.execute(SET_SURGE, (turn.fiction.money() % 10, trip_id))
        cursor.execute("SAVEPOINT doubtful")
        cursor.execute(SET_PRODUCT, ("never to be seen", trip_id))
        insert_row(cursor, "trips", turn.fiction.requested_trip())
        cursor.execute("ROLLBACK TO SAVEPOINT doubtful")
        cursor.execute(SET_PRODUCT, (f"product {turn.random.randint(1, 99)}", trip_id))


@action("update trips")
def take_back_a_delete(turn: WorkTurn) -> None:
    """The trip goes with its children, comes back with the savepoint, and changes."""
    trip_id = turn.a_trip()
    with turn.cursor() as cursor:
        cursor.execute("SAVEPOINT gone")
        cursor.execute(DELETE, (trip_id,))
        cursor.execute("ROLLBACK TO SAVEPOINT gone")
        cursor.execute("SAVEPOINT kept")
        cursor.execute(SET_SURGE, (turn.fiction.money() % 10, trip_id))
        cursor.execute("RELEASE SAVEPOINT kept")


@action("insert trip_notes", "update trips", weight=2)
def find_a_free_number(turn: WorkTurn) -> None:
    """The ORM's nested transactions: a number is tried, refused by the unique key, and the next one tried."""
    trip_id, number = turn.a_child("trip_notes")
    with turn.session() as session:
        trip = present(session.get(Trip, trip_id))
        trip.surge = turn.fiction.money() % 10
        while True:
            try:
                with session.begin_nested():
                    session.add(TripNote(trip_id=trip_id, **turn.fiction.note(number)))
                return
            except IntegrityError as error:
                if getattr(error.orig, "pgcode", None) != UNIQUE_VIOLATION:
                    raise
                number += 1
