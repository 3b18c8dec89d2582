"""MERGE: one statement inserts, updates and deletes."""

from __future__ import annotations

from tripstore.demo.legacy.actions.action import action
from tripstore.demo.legacy.services import IMPORTER
from tripstore.demo.legacy.turns import WorkTurn

MERGE_NOTES = """
MERGE INTO trip_notes AS note
USING (
    SELECT id AS trip_id, n, %(text)s || n AS text FROM trips, generate_series(1, 3) AS n WHERE id = %(trip)s
) AS sent
ON note.trip_id = sent.trip_id AND note.n = sent.n
WHEN MATCHED AND note.n = 2 THEN DELETE
WHEN MATCHED THEN UPDATE SET text = sent.text, written_at = %(at)s
WHEN NOT MATCHED THEN
    INSERT (trip_id, n, kind, text, written_at) VALUES (sent.trip_id, sent.n, 'rider', sent.text, %(at)s)
"""
MERGE_TRIPS = """
MERGE INTO trips AS trip
USING (SELECT id, dropoff_at FROM trips WHERE id BETWEEN %(first)s AND %(first)s + 5) AS sent
ON trip.id = sent.id
WHEN MATCHED AND sent.dropoff_at IS NULL THEN UPDATE SET product = %(product)s, surge = %(surge)s
WHEN MATCHED AND trip.id %% 2 = 0 THEN UPDATE SET duration_seconds = coalesce(trip.duration_seconds, 0) + 1
WHEN MATCHED THEN DO NOTHING
"""


@action("insert trip_notes", "update trip_notes", "delete trip_notes", weight=3)
def merge_notes(turn: WorkTurn) -> None:
    values = {"text": turn.fiction.text(), "trip": turn.a_child("trip_notes")[0], "at": turn.fiction.moment()}
    with turn.cursor(IMPORTER) as cursor:
        cursor.execute(MERGE_NOTES, values)


@action("update trips", weight=2)
def merge_trips(turn: WorkTurn) -> None:
    surge = turn.fiction.money() % 10
    values = {"first": turn.a_trip(), "product": f"product {turn.random.randint(1, 99)}", "surge": surge}
    with turn.cursor(IMPORTER) as cursor:
        cursor.execute(MERGE_TRIPS, values)
