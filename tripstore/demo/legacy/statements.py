"""Raw SQL as the services write it: one row in, one row out, by the columns that they name."""

from __future__ import annotations

from collections.abc import Sequence

from psycopg2 import sql
from psycopg2.extras import Json

from tripstore.demo.legacy.connections import Cursor
from tripstore.demo.legacy.fictions import Row

INSERT = sql.SQL("INSERT INTO public.{table} ({columns}) VALUES ({values}) {tail}")

#: What a trip is made of, without what Postgres sets by itself.
TRIP_COLUMNS = (
    "id, rider_id, driver_id, city_id, status, product, request_at, begin_at, dropoff_at, local_date, currency,"
    " fare_amount, tip_amount, surge, distance_km, leg_km, duration_seconds, passengers, is_shared, tags, route,"
    " client, signature, request_ip, fraud_score"
)


def insert_row(cursor: Cursor, table: str, row: Row, tail: str = "") -> None:
    """Insert a row; `tail` is what follows the values: ON CONFLICT, RETURNING."""
    statement = INSERT.format(
        table=sql.Identifier(table),
        columns=sql.SQL(", ").join(map(sql.Identifier, row)),
        values=sql.SQL(", ").join(sql.Placeholder() * len(row)),
        tail=sql.SQL(tail),
    )
    cursor.execute(statement, adapted(row))


def adapted(row: Row) -> list[object]:
    """The values as the driver wants them."""
    return [Json(value) if isinstance(value, dict) else value for value in row.values()]


def fetch_value(cursor: Cursor, statement: str, values: Sequence[object] = ()) -> object | None:
    """The first value of the first row, or None."""
    cursor.execute(statement, values)
    row = cursor.fetchone()
    return row[0] if row else None


def named_row(cursor: Cursor) -> Row | None:
    """The row just fetched, by column."""
    row = cursor.fetchone()
    if row is None or cursor.description is None:
        return None
    return {column.name: value for column, value in zip(cursor.description, row, strict=True)}
