"""The billing service: its role may use the company's tables, some columns of them, and knows no other schema."""

from __future__ import annotations

from typing import cast

from tripstore.demo.legacy.actions.action import action
from tripstore.demo.legacy.services import BILLING
from tripstore.demo.legacy.statements import fetch_value, insert_row
from tripstore.demo.legacy.turns import WorkTurn, present

LOCK = "SELECT id FROM public.trips WHERE id = %s FOR NO KEY UPDATE"
LAST = "SELECT coalesce(max(attempt_no), 0) FROM public.billing_attempts WHERE trip_id = %s"
TIP = "UPDATE public.trips SET tip_amount = %s WHERE id = %s"


@action("insert billing_attempts", weight=8)
def bill_trip(turn: WorkTurn) -> None:
    """The next attempt, numbered under the trip's lock."""
    trip_id = turn.a_trip()
    with turn.cursor(BILLING) as cursor:
        present(fetch_value(cursor, LOCK, (trip_id,)))
        last = cast(int, fetch_value(cursor, LAST, (trip_id,)))  # an integer column, and coalesced
        insert_row(cursor, "billing_attempts", {"trip_id": trip_id} | turn.fiction.attempt(last + 1))


@action("insert billing_attempts", weight=3)
def bill_trip_at_once(turn: WorkTurn) -> None:
    """The next attempt, numbered without a lock: two at once collide, and one of them tries again."""
    trip_id = turn.a_trip()
    with turn.cursor(BILLING) as cursor:
        last = cast(int, fetch_value(cursor, LAST, (trip_id,)))  # an integer column, and coalesced
        insert_row(cursor, "billing_attempts", {"trip_id": trip_id} | turn.fiction.attempt(last + 1))


@action("update trips", weight=3)
def take_tip(turn: WorkTurn) -> None:
    """The one column of trips that this role may change and that says something of the trip."""
    trip_id = turn.a_trip()
    with turn.cursor(BILLING) as cursor:
        cursor.execute(TIP, (turn.fiction.money(), trip_id))
