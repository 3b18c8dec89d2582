"""Raw SQL by psycopg2, as the services that trust no ORM write it."""

from __future__ import annotations

from typing import cast

from psycopg2.extras import execute_values

from tripstore.demo.legacy.actions.action import action
from tripstore.demo.legacy.statements import adapted, fetch_value, insert_row
from tripstore.demo.legacy.turns import NothingToDo, WorkTurn

START = "UPDATE trips SET status = 'in_progress', begin_at = %s, driver_id = %s WHERE id = %s"
SWAP = "UPDATE trips SET driver_id = %s WHERE id = %s"
COMPLETE_AND_TELL = """
WITH closed AS (
    UPDATE trips SET status = 'completed', dropoff_at = %s, tip_amount = %s WHERE id = %s RETURNING id, dropoff_at
)
INSERT INTO trip_events (trip_id, happened_at, kind) SELECT id, dropoff_at, %s FROM closed
"""
PREPARE = "PREPARE tip(numeric, bigint) AS UPDATE trips SET tip_amount = $1 WHERE id = $2"
NEST = """
UPDATE trips
SET route = jsonb_set(coalesce(route, '{}'), '{detour}', to_jsonb(%s::numeric)),
    tags = (array_append(tags, %s))[greatest(1, coalesce(cardinality(tags), 0) - 2):],
    leg_km = (leg_km || %s::float8)[greatest(1, coalesce(cardinality(leg_km), 0) - 4):]
WHERE id = %s
"""
LOOP = """
DO $$
DECLARE trip record;
BEGIN
    FOR trip IN SELECT id FROM trips WHERE id BETWEEN %(first)s AND %(first)s + 4 ORDER BY id FOR UPDATE LOOP
        BEGIN
            UPDATE trips SET surge = %(surge)s WHERE id = trip.id;
            IF trip.id %% 2 = 1 THEN RAISE EXCEPTION 'odd trips are taken back'; END IF;
        EXCEPTION WHEN raise_exception THEN
            UPDATE trips SET passengers = 1 + (coalesce(passengers, 0) %% 8) WHERE id = trip.id;
        END;
    END LOOP;
END $$
"""


@action("insert trips", weight=5)
def insert_trip(turn: WorkTurn) -> None:
    with turn.cursor() as cursor:
        insert_row(cursor, "trips", turn.fiction.requested_trip(), "RETURNING id")
        for (trip_id,) in cursor.fetchall():
            turn.touch(trip_id)


@action("update trips", weight=12)
def start_trip(turn: WorkTurn) -> None:
    trip_id = turn.a_trip()
    with turn.cursor() as cursor:
        cursor.execute(START, (turn.fiction.moment(), turn.fiction.driver(), trip_id))


@action("update trips", weight=4)
def swap_drivers(turn: WorkTurn) -> None:
    """Two trips, in whatever order they come: those who meet the other way round deadlock."""
    one, other = turn.a_trip(), turn.a_trip()
    with turn.cursor() as cursor:
        for trip_id in (one, other):
            cursor.execute(SWAP, (turn.fiction.driver(), trip_id))


@action("update trips", "insert trip_events", weight=3)
def complete_and_tell(turn: WorkTurn) -> None:
    """A writable CTE: two tables in one statement."""
    trip_id = turn.a_trip()
    with turn.cursor() as cursor:
        kind = f"completed-{turn.random.getrandbits(48):x}"
        cursor.execute(COMPLETE_AND_TELL, (turn.fiction.moment(), turn.fiction.money(), trip_id, kind))


@action("update trips", weight=3)
def tip_by_prepared_statement(turn: WorkTurn) -> None:
    trip_id = turn.a_trip()
    with turn.cursor() as cursor:
        cursor.execute(PREPARE)
        cursor.execute("EXECUTE tip(%s, %s)", (turn.fiction.money(), trip_id))
        cursor.execute("DEALLOCATE tip")


@action("update trips", weight=3)
def change_parts(turn: WorkTurn) -> None:
    """Parts of a document and of arrays, computed by Postgres."""
    trip_id = turn.a_trip()
    with turn.cursor() as cursor:
        part = turn.random.uniform(0, 9)
        cursor.execute(NEST, (turn.fiction.money(), f"tag {turn.random.randint(1, 99)}", part, trip_id))


@action("update trips", weight=1)
def change_in_a_loop(turn: WorkTurn) -> None:
    """A block of PL/pgSQL whose inner blocks are subtransactions, half of them rolled back."""
    first = turn.a_trip()
    with turn.cursor() as cursor:
        cursor.execute(LOOP, {"first": first, "surge": turn.fiction.money() % 10})


@action("insert fare_adjustments", weight=2)
def insert_many_adjustments(turn: WorkTurn) -> None:
    """One INSERT with many rows, into several partitions."""
    first = turn.a_trip()
    with turn.cursor() as cursor:
        cursor.execute("SELECT id FROM trips WHERE id BETWEEN %s AND %s FOR KEY SHARE", (first, first + 9))
        rows = []
        for (trip_id,) in sorted(cursor.fetchall()):
            last = fetch_value(cursor, "SELECT max(n) FROM fare_adjustments WHERE trip_id = %s", (trip_id,))
            rows.append({"trip_id": trip_id} | turn.fiction.adjustment(cast(int, last or 0) + 1))  # an integer column
        if not rows:
            raise NothingToDo
        statement = f"INSERT INTO fare_adjustments ({', '.join(rows[0])}) VALUES %s"
        execute_values(cursor, statement, [adapted(row) for row in rows])
