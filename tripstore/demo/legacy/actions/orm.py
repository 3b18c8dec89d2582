"""SQLAlchemy's ORM: objects are made, changed, appended, removed; the session finds out which statements that means."""

from __future__ import annotations

from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import Session

from tripstore.demo.legacy.actions.action import action
from tripstore.demo.legacy.fictions import Row
from tripstore.demo.legacy.models import BillingAttempt, FareAdjustment, Trip, TripNote, User
from tripstore.demo.legacy.turns import NothingToDo, WorkTurn, present

TRIPS_AT_ONCE = 5


@action("insert trips", weight=12)
def request_trip(turn: WorkTurn) -> None:
    with turn.session() as session:
        trip = Trip(**turn.fiction.requested_trip())
        session.add(trip)
        session.flush()
        turn.touch(trip.id)


@action("insert trips", "insert trip_notes", "insert billing_attempts", "insert fare_adjustments", weight=6)
def report_trip(turn: WorkTurn) -> None:
    """A finished trip with its children, in one flush."""
    fiction = turn.fiction
    with turn.session() as session:
        trip = Trip(**fiction.whole_trip())
        trip.notes = [TripNote(**fiction.note(number)) for number in (1, 2)]
        trip.attempts = [BillingAttempt(**fiction.attempt(1))]
        trip.adjustments = [FareAdjustment(**fiction.adjustment(1))]
        session.add(trip)
        session.flush()
        turn.touch(trip.id)


@action("insert users", "insert trips", weight=1)
def sign_up_and_request(turn: WorkTurn) -> None:
    """A new rider asks for a trip: the pair of id and UUID is as young as the trip that points to it."""
    number = turn.random.getrandbits(60)
    with turn.session() as session:
        user = User(role="rider", name="A new rider", email=f"new-{number}@example.com", user_uuid=_uuid(turn))
        user.signed_up_at = turn.fiction.moment()
        trip = Trip(**turn.fiction.requested_trip())
        trip.rider = user
        session.add(trip)
        session.flush()
        turn.touch(trip.id)


@action("update trips", weight=12)
def accept_trip(turn: WorkTurn) -> None:
    with turn.session() as session:
        _fill(_trip(turn, session, turn.an_open_trip()), turn.fiction.accepted_trip())


@action("update trips", weight=12)
def complete_trip(turn: WorkTurn) -> None:
    with turn.session() as session:
        trip = _trip(turn, session, turn.a_trip())
        _fill(trip, turn.fiction.completed_trip(trip.request_at))


@action("insert trip_notes", weight=6)
def append_note(turn: WorkTurn) -> None:
    with turn.session() as session:
        trip = _trip(turn, session, turn.a_trip())
        trip.notes.append(TripNote(**turn.fiction.note(max((note.n for note in trip.notes), default=0) + 1)))


@action("update trip_notes", weight=4)
def edit_note(turn: WorkTurn) -> None:
    trip_id, number = turn.a_child("trip_notes")
    with turn.session() as session:
        note = present(session.scalars(sa.select(TripNote).filter_by(trip_id=trip_id, n=number)).one_or_none())
        _fill(note, {"text": turn.fiction.text() + " (edited)", "tags": turn.fiction.tags()})


@action("delete trip_notes")
def remove_note(turn: WorkTurn) -> None:
    """Taken from its trip's list, a note is an orphan, and the session deletes it."""
    with turn.session() as session:
        trip = _trip(turn, session, turn.a_child("trip_notes")[0])
        if not trip.notes:
            raise NothingToDo
        trip.notes.remove(trip.notes[-1])


@action("insert fare_adjustments", "update trips", weight=4)
def propose_adjustment(turn: WorkTurn) -> None:
    """A child and its parent in one flush."""
    with turn.session() as session:
        trip = _trip(turn, session, turn.a_trip())
        row = turn.fiction.adjustment(max((adjustment.n for adjustment in trip.adjustments), default=0) + 1)
        trip.adjustments.append(FareAdjustment(**row))
        trip.tags = [*(trip.tags or []), "adjusted"][-4:]
        trip.surge = turn.fiction.money() % 10


@action("update fare_adjustments", weight=4)
def approve_adjustment(turn: WorkTurn) -> None:
    key = turn.a_child("fare_adjustments")
    with turn.session() as session:
        adjustment = present(session.get(FareAdjustment, key))
        adjustment.is_approved = not adjustment.is_approved
        adjustment.approved_by = turn.fiction.driver()


@action("delete trips", "delete trip_notes", "delete fare_adjustments", "delete billing_attempts")
def delete_trip(turn: WorkTurn) -> None:
    """Notes are deleted by the session, one by one; the other children by Postgres."""
    with turn.session() as session:
        session.delete(_trip(turn, session, turn.a_trip()))


@action("update trips")
def merge_trip(turn: WorkTurn) -> None:
    """An object that a queue delivered is merged into the row, as far as it is filled in."""
    trip_id = turn.a_trip()
    with turn.session() as session:
        present(session.get(Trip, trip_id, with_for_update=True))
        session.merge(Trip(id=trip_id, tip_amount=turn.fiction.money(), route=turn.fiction.document()))


@action("insert trips", "update trips", weight=1)
def write_mappings(turn: WorkTurn) -> None:
    """The bulk methods of old: no object is made, no event is heard."""
    changed = turn.a_trip()
    with turn.session() as session:
        present(session.get(Trip, changed, with_for_update=True))
        session.expunge_all()
        session.bulk_insert_mappings(sa.inspect(Trip), [turn.fiction.requested_trip() for _ in range(TRIPS_AT_ONCE)])
        session.bulk_update_mappings(sa.inspect(Trip), [{"id": changed, "tip_amount": turn.fiction.money()}])


def _trip(turn: WorkTurn, session: Session, trip_id: int) -> Trip:
    return present(session.get(Trip, trip_id))


def _fill(thing: object, row: Row) -> None:
    for name, value in row.items():
        setattr(thing, name, value)


def _uuid(turn: WorkTurn) -> UUID:
    return UUID(int=turn.random.getrandbits(128), version=4)
