"""INSERT … ON CONFLICT: the writer does not know, or does not want to know, whether the row is there."""

from __future__ import annotations

from typing import cast

from tripstore.demo.legacy.actions.action import action
from tripstore.demo.legacy.services import IMPORTER
from tripstore.demo.legacy.statements import fetch_value, insert_row
from tripstore.demo.legacy.turns import WorkTurn, present

LOCK = "SELECT id FROM trips WHERE id = %s FOR UPDATE"
NEXT_ID = "SELECT nextval(pg_get_serial_sequence('trips', 'id'))"
OVERWRITE_TRIP = """
ON CONFLICT (id) DO UPDATE SET (status, request_at, surge, tags, client) =
    (EXCLUDED.status, EXCLUDED.request_at, EXCLUDED.surge, EXCLUDED.tags, EXCLUDED.client)
"""
OVERWRITE_ADJUSTMENT = """
ON CONFLICT (trip_id, n) DO UPDATE SET amount = EXCLUDED.amount, explanation = EXCLUDED.explanation,
    line_items = EXCLUDED.line_items, proposed_at = EXCLUDED.proposed_at
"""


@action("insert trips", "update trips", weight=4)
def upsert_trip(turn: WorkTurn) -> None:
    """An import writes its trips again and again; those that it knows are locked first."""
    known = turn.a_trip() if turn.random.random() < 0.6 else None
    with turn.cursor(IMPORTER) as cursor:
        if known is None:
            trip_id = turn.touch(cast(int, fetch_value(cursor, NEXT_ID)))  # a sequence always answers
        else:
            trip_id = cast(int, present(fetch_value(cursor, LOCK, (known,))))  # the id we asked for
        insert_row(cursor, "trips", {"id": trip_id} | turn.fiction.requested_trip(), OVERWRITE_TRIP)


@action("insert fare_adjustments", "update fare_adjustments", weight=3)
def upsert_adjustment(turn: WorkTurn) -> None:
    trip_id, number = turn.a_child("fare_adjustments")
    number += turn.random.randint(0, 1)
    with turn.cursor(IMPORTER) as cursor:
        row = {"trip_id": trip_id} | turn.fiction.adjustment(number)
        insert_row(cursor, "fare_adjustments", row, OVERWRITE_ADJUSTMENT)


@action("insert billing_attempts", weight=3)
def insert_attempt_unless_there(turn: WorkTurn) -> None:
    """What a service does that may have been here before it crashed."""
    trip_id, number = turn.a_child("billing_attempts")
    number += turn.random.randint(0, 1)
    with turn.cursor(IMPORTER) as cursor:
        row = {"trip_id": trip_id} | turn.fiction.attempt(number)
        insert_row(cursor, "billing_attempts", row, "ON CONFLICT (trip_id, attempt_no) DO NOTHING")
