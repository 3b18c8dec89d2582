"""COPY: a file of trips from elsewhere, and of their children."""

from __future__ import annotations

from tripstore.demo.legacy.actions.action import action
from tripstore.demo.legacy.copying import copy_rows
from tripstore.demo.legacy.fictions import Row
from tripstore.demo.legacy.services import IMPORTER
from tripstore.demo.legacy.turns import WorkTurn

NEXT_IDS = "SELECT nextval(pg_get_serial_sequence('trips', 'id')) FROM generate_series(1, %s)"
TRIPS_AT_ONCE = 20


@action("insert trips", "insert billing_attempts", "insert trip_notes", "insert fare_adjustments", weight=1)
def copy_trips(turn: WorkTurn) -> None:
    fiction = turn.fiction
    with turn.cursor(IMPORTER) as cursor:
        cursor.execute(NEXT_IDS, (TRIPS_AT_ONCE,))
        ids = [turn.touch(row[0]) for row in cursor.fetchall()]
        trips: list[Row] = [{"id": trip_id} | fiction.whole_trip() for trip_id in ids]
        copy_rows(cursor, "trips", trips)
        for table, make in (
            ("billing_attempts", fiction.attempt),
            ("trip_notes", fiction.note),
            ("fare_adjustments", fiction.adjustment),
        ):
            children: list[Row] = [{"trip_id": trip_id} | make(number) for trip_id in ids for number in (1, 2)]
            copy_rows(cursor, table, children)


@action("insert trips", weight=1)
def copy_requests(turn: WorkTurn) -> None:
    """Trips without ids: the sequence gives them."""
    with turn.cursor(IMPORTER) as cursor:
        copy_rows(cursor, "trips", [turn.fiction.requested_trip() for _ in range(TRIPS_AT_ONCE)])
