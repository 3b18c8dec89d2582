"""DELETE: trips with whatever hangs on them, and trips that come back under the id that they had."""

from __future__ import annotations

from tripstore.demo.legacy.actions.action import action
from tripstore.demo.legacy.connections import Cursor
from tripstore.demo.legacy.fictions import Row
from tripstore.demo.legacy.services import CITY_OPS, IMPORTER
from tripstore.demo.legacy.statements import TRIP_COLUMNS, fetch_value, insert_row, named_row
from tripstore.demo.legacy.turns import NothingToDo, WorkTurn, present

DELETE = "DELETE FROM trips WHERE id = %s"
DELETE_DEAR = """
DELETE FROM trips USING cities WHERE city_id = cities.id AND trips.id BETWEEN %s AND %s AND fare_amount > 125
"""
DELETE_ADJUSTMENT = "DELETE FROM fare_adjustments WHERE trip_id = %s AND n = %s"
LOCK = "SELECT id FROM trips WHERE id = %s FOR UPDATE"
IS_BILLED = "SELECT true FROM billing_attempts WHERE trip_id = %s LIMIT 1"
TAKE_OUT = f"DELETE FROM trips WHERE id = %s RETURNING {TRIP_COLUMNS}"


@action("delete trips", "delete trip_notes", "delete fare_adjustments", "delete billing_attempts")
def delete_trip(turn: WorkTurn) -> None:
    """One statement; Postgres deletes the children."""
    trip_id = turn.a_trip()
    with turn.cursor() as cursor:
        cursor.execute(DELETE, (trip_id,))


@action("delete trips", "delete trip_notes", "delete fare_adjustments", "delete billing_attempts", weight=1)
def delete_several_trips(turn: WorkTurn) -> None:
    first = turn.a_trip()
    with turn.cursor(CITY_OPS) as cursor:
        cursor.execute(DELETE_DEAR, (first, first + 3))


@action("delete fare_adjustments")
def delete_adjustment(turn: WorkTurn) -> None:
    key = turn.a_child("fare_adjustments")
    with turn.cursor() as cursor:
        cursor.execute(DELETE_ADJUSTMENT, key)


@action("update trips", "delete trip_notes", "delete fare_adjustments")
def restore_trip(turn: WorkTurn) -> None:
    """A trip is taken out and put back in one transaction. Its notes and adjustments are lost on the way.

    Only trips without an attempt to bill them: attempts are numbered for ever, and would begin at one again.
    """
    trip_id = turn.an_unbilled_trip()
    with turn.cursor(IMPORTER) as cursor:
        row = _take_out(cursor, trip_id)
        insert_row(cursor, "trips", row | {"fraud_score": turn.random.random()})


@action("update trips", "delete trip_notes", "delete fare_adjustments")
def reimport_trip(turn: WorkTurn) -> None:
    """The same in two transactions: in between, the trip is not there."""
    trip_id = turn.an_unbilled_trip()
    with turn.cursor(IMPORTER) as cursor:
        row = _take_out(cursor, trip_id)
    with turn.cursor(IMPORTER) as cursor:
        changed = row | {"surge": turn.fiction.money() % 10, "fraud_score": turn.random.random()}
        insert_row(cursor, "trips", changed, "ON CONFLICT (id) DO NOTHING")


def _take_out(cursor: Cursor, trip_id: int) -> Row:
    present(fetch_value(cursor, LOCK, (trip_id,)))
    if fetch_value(cursor, IS_BILLED, (trip_id,)):
        raise NothingToDo
    cursor.execute(TAKE_OUT, (trip_id,))
    return present(named_row(cursor))
