"""`update().where()` and `delete().where()` through a session: many rows, no object, no event per row."""

from __future__ import annotations

from datetime import timedelta

import sqlalchemy as sa
from sqlalchemy.orm import Session

from tripstore.demo.legacy.actions.action import action
from tripstore.demo.legacy.models import FareAdjustment, Trip, TripNote
from tripstore.demo.legacy.services import CITY_OPS
from tripstore.demo.legacy.turns import NothingToDo, WorkTurn, present

TRIPS_AT_ONCE = 10


@action("update trips", weight=3)
def add_surcharge(turn: WorkTurn) -> None:
    first = turn.a_trip()
    with turn.session(CITY_OPS) as session:
        chosen = sa.and_(Trip.id.between(first, first + TRIPS_AT_ONCE - 1), Trip.fare_amount.is_not(None))
        surcharge = turn.fiction.money() + 1
        _execute(session, sa.update(Trip).where(chosen).values(fare_amount=Trip.fare_amount + surcharge))


@action("update trips", weight=1)
def cancel_stale_trips(turn: WorkTurn) -> None:
    oldest = turn.an_open_trip()
    with turn.session(CITY_OPS) as session:
        at = present(session.scalar(sa.select(Trip.request_at).where(Trip.id == oldest)))
        stale = sa.and_(
            Trip.status == "requested", Trip.dropoff_at.is_(None), Trip.request_at.between(at, at + timedelta(hours=6))
        )
        _execute(session, sa.update(Trip).where(stale).values(status="cancelled"))


@action("update fare_adjustments")
def toggle_adjustments(turn: WorkTurn) -> None:
    first, _ = turn.a_child("fare_adjustments")
    with turn.session(CITY_OPS) as session:
        chosen = FareAdjustment.trip_id.between(first, first + TRIPS_AT_ONCE - 1)
        values = {"is_approved": ~FareAdjustment.is_approved, "approved_by": turn.fiction.driver()}
        _execute(session, sa.update(FareAdjustment).where(chosen).values(values))


@action("delete trip_notes", weight=1)
def delete_notes(turn: WorkTurn) -> None:
    trip_id, number = turn.a_child("trip_notes")
    with turn.session(CITY_OPS) as session:
        chosen = sa.and_(TripNote.trip_id.between(trip_id, trip_id + 2), TripNote.n >= number)
        _execute(session, sa.delete(TripNote).where(chosen))


def _execute(session: Session, statement: sa.Update | sa.Delete) -> None:
    result = session.execute(statement.execution_options(synchronize_session=False))
    if isinstance(result, sa.CursorResult) and result.rowcount == 0:
        raise NothingToDo
