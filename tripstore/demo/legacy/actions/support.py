"""The support desk: notes, by a role that may write nothing else."""

from __future__ import annotations

from tripstore.demo.legacy.actions.action import action
from tripstore.demo.legacy.services import SUPPORT
from tripstore.demo.legacy.statements import insert_row
from tripstore.demo.legacy.turns import WorkTurn

ADD = """
INSERT INTO trip_notes (trip_id, n, kind, text, context, written_at)
SELECT trips.id, 1 + coalesce((SELECT max(n) FROM trip_notes WHERE trip_id = trips.id), 0), 'support', %s,
       jsonb_build_object('fare', trips.fare_amount, 'rider', users.name), %s
FROM trips JOIN users ON users.id = trips.rider_id WHERE trips.id = %s
"""
EDIT = "UPDATE trip_notes SET text = text || %s, rating = %s WHERE trip_id = %s AND n = %s"
DELETE = "DELETE FROM trip_notes WHERE trip_id = %s AND n = %s"


@action("insert trip_notes", weight=4)
def add_note(turn: WorkTurn) -> None:
    """INSERT … SELECT: the row comes out of other tables."""
    trip_id = turn.a_trip()
    with turn.cursor(SUPPORT) as cursor:
        cursor.execute(ADD, (turn.fiction.text(), turn.fiction.moment(), trip_id))


@action("update trip_notes", weight=3)
def add_to_note(turn: WorkTurn) -> None:
    trip_id, number = turn.a_child("trip_notes")
    with turn.cursor(SUPPORT) as cursor:
        cursor.execute(EDIT, ("!", turn.random.randint(1, 5), trip_id, number))


@action("delete trip_notes", "insert trip_notes")
def rewrite_note(turn: WorkTurn) -> None:
    """The note goes and comes again under its number, in one transaction."""
    trip_id, number = turn.a_child("trip_notes")
    with turn.cursor(SUPPORT) as cursor:
        cursor.execute(DELETE, (trip_id, number))
        insert_row(cursor, "trip_notes", {"trip_id": trip_id} | turn.fiction.note(number))
