"""Long transactions: many statements, several tables, a pause in the middle, locks until the end."""

from __future__ import annotations

from tripstore.demo.legacy.actions.action import action
from tripstore.demo.legacy.connections import Cursor
from tripstore.demo.legacy.services import CITY_OPS
from tripstore.demo.legacy.statements import fetch_value, insert_row
from tripstore.demo.legacy.turns import NothingToDo, WorkTurn

TRIPS_AT_ONCE = 6

STAGE = """
CREATE TEMP TABLE staged ON COMMIT DROP AS
SELECT id, coalesce(fare_amount, 0) + %s AS fare FROM trips WHERE id BETWEEN %s AND %s
"""
UPDATE_STAGED = "UPDATE trips SET fare_amount = staged.fare FROM staged WHERE trips.id = staged.id"
LAST_NOTE = "SELECT coalesce(max(n), 0) + 1 FROM trip_notes WHERE trip_id = %s"
LOCK = "SELECT id FROM trips WHERE id BETWEEN %s AND %s ORDER BY id FOR UPDATE"
STATUS = "UPDATE trips SET status = %s WHERE id = %s"
DROP_OFF = "UPDATE trips SET status = 'completed', dropoff_at = %s, distance_km = %s WHERE id = %s"


@action("update trips", "insert trip_notes", weight=2)
def close_books(turn: WorkTurn) -> None:
    """The same trips change several times within one transaction; only the last state of each counts, or none."""
    first = turn.a_trip()
    with turn.cursor(CITY_OPS) as cursor:
        cursor.execute(LOCK, (first, first + TRIPS_AT_ONCE - 1))
        ids = [row[0] for row in cursor.fetchall()]
        if not ids:
            raise NothingToDo
        for trip_id in ids:
            cursor.execute(STATUS, ("in_progress", trip_id))
        _pause(turn, cursor)
        for trip_id in ids:
            number = fetch_value(cursor, LAST_NOTE, (trip_id,))
            insert_row(cursor, "trip_notes", {"trip_id": trip_id} | turn.fiction.note(1) | {"n": number})
            cursor.execute(DROP_OFF, (turn.fiction.moment(), turn.random.uniform(0, 50), trip_id))


@action("update trips", weight=1)
def correct_staged(turn: WorkTurn) -> None:
    """New values are prepared in a temporary table, then written all at once."""
    first = turn.a_trip()
    with turn.cursor(CITY_OPS) as cursor:
        cursor.execute(STAGE, (turn.fiction.money() + 1, first, first + TRIPS_AT_ONCE - 1))
        _pause(turn, cursor)
        cursor.execute(UPDATE_STAGED)


def _pause(turn: WorkTurn, cursor: Cursor) -> None:
    if turn.habits.pause_seconds:
        cursor.execute("SELECT pg_sleep(%s)", (turn.habits.pause_seconds,))
