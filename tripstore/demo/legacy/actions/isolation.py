"""REPEATABLE READ and SERIALIZABLE: what was read decides what is written; conflicts end in 40001 and a second try."""

from __future__ import annotations

from decimal import Decimal

import sqlalchemy as sa

from tripstore.demo.legacy.actions.action import action
from tripstore.demo.legacy.models import Trip, TripNote
from tripstore.demo.legacy.services import CITY_OPS, TRIPS_API
from tripstore.demo.legacy.statements import insert_row
from tripstore.demo.legacy.turns import WorkTurn, present

TIPS = "SELECT coalesce(sum(tip_amount), 0) %% 100 FROM trips WHERE id BETWEEN %s AND %s"
SET_TIP = "UPDATE trips SET tip_amount = %s WHERE id = %s"
DELETE = "DELETE FROM trips WHERE id = %s"


@action("update trips", weight=4)
def raise_fare(turn: WorkTurn) -> None:
    """Read, compute, write, in one snapshot."""
    trip_id = turn.a_trip()
    with turn.session(TRIPS_API, "REPEATABLE READ") as session:
        trip = present(session.get(Trip, trip_id))
        trip.fare_amount = (trip.fare_amount or Decimal(0)) + 1


@action("update trips", weight=3)
def level_tips(turn: WorkTurn) -> None:
    """A sum over some trips decides about one: write skew, unless SERIALIZABLE prevents it."""
    first = turn.a_trip()
    with turn.cursor(CITY_OPS, "SERIALIZABLE") as cursor:
        cursor.execute(TIPS, (first, first + 4))
        ((tips,),) = cursor.fetchall()
        cursor.execute(SET_TIP, (tips + turn.fiction.money(), first))


@action("insert trips", "insert trip_notes", weight=2)
def report_trip(turn: WorkTurn) -> None:
    with turn.session(TRIPS_API, "SERIALIZABLE") as session:
        busy = session.scalar(sa.select(sa.func.count()).where(Trip.driver_id == turn.fiction.driver()))
        trip = Trip(**turn.fiction.whole_trip() | {"product": f"after {busy}"})
        trip.notes.append(TripNote(**turn.fiction.note(1)))
        session.add(trip)
        session.flush()
        turn.touch(trip.id)


@action(
    "insert trips", "delete trips", "delete trip_notes", "delete fare_adjustments", "delete billing_attempts", weight=1
)
def replace_trip(turn: WorkTurn) -> None:
    """A trip is deleted and another one written in its place, in one snapshot."""
    trip_id = turn.a_trip()
    with turn.cursor(TRIPS_API, "REPEATABLE READ") as cursor:
        cursor.execute(DELETE, (trip_id,))
        insert_row(cursor, "trips", turn.fiction.whole_trip())
