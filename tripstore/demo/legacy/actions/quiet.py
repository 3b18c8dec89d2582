"""Writes that say nothing new of a trip: the same values again, or columns that no layout maps."""

from __future__ import annotations

import sqlalchemy as sa

from tripstore.demo.legacy.actions.action import action
from tripstore.demo.legacy.models import Trip
from tripstore.demo.legacy.services import BILLING
from tripstore.demo.legacy.turns import WorkTurn, present

SAME = "UPDATE trips SET status = status, fare_amount = fare_amount, tags = tags, route = route WHERE id = %s"
SCORE = "UPDATE public.trips SET fraud_score = %s WHERE id = %s"
EXPORT = "UPDATE public.billing_attempts SET exported_at = %s WHERE trip_id = %s"
COUNT_READ = "UPDATE trip_notes SET reads = reads + 1 WHERE trip_id = %s"


@action(weight=3)
def write_the_same(turn: WorkTurn) -> None:
    """Every row is written, no value changes but `updated_at`."""
    trip_id = turn.a_trip()
    with turn.cursor() as cursor:
        cursor.execute(SAME, (trip_id,))


@action()
def assign_the_same(turn: WorkTurn) -> None:
    """The ORM finds no change, and writes nothing."""
    with turn.session() as session:
        trip = present(session.get(Trip, turn.a_trip()))
        trip.status = trip.status


@action("update trips", weight=3)
def score_fraud(turn: WorkTurn) -> None:
    """A column that is not mapped, by a role without grants on anything new."""
    trip_id = turn.a_trip()
    with turn.cursor(BILLING) as cursor:
        cursor.execute(SCORE, (turn.random.random(), trip_id))


@action("update billing_attempts", weight=3)
def export_attempts(turn: WorkTurn) -> None:
    """Facts change after all, in a column that says nothing of them."""
    trip_id, _ = turn.a_child("billing_attempts")
    with turn.cursor(BILLING) as cursor:
        cursor.execute(EXPORT, (turn.fiction.moment(), trip_id))


@action("update trip_notes", weight=2)
def count_read(turn: WorkTurn) -> None:
    trip_id, _ = turn.a_child("trip_notes")
    with turn.cursor() as cursor:
        cursor.execute(COUNT_READ, (trip_id,))


@action("update trips", weight=1)
def forget_address(turn: WorkTurn) -> None:
    """A bulk update of a column that is not mapped."""
    first = turn.a_trip()
    address = f"10.0.{turn.random.randint(0, 255)}.{turn.random.randint(0, 255)}"
    with turn.session() as session:
        statement = sa.update(Trip).where(Trip.id.between(first, first + 5)).values(request_ip=address)
        session.execute(statement.execution_options(synchronize_session=False))
