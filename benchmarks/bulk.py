"""A company with as many trips as wanted, made within minutes: a seeded past is multiplied by Postgres itself."""

from __future__ import annotations

import time

import click

from tripstore.backends.postgres.ddl.steps import apply_all
from tripstore.backends.postgres.layout.layout import Layout
from tripstore.backends.postgres.layout.reading import load_layout
from tripstore.backends.postgres.schema_steps import schema_steps
from tripstore.backends.postgres.wire.connections import connected, rows
from tripstore.demo import legacy
from tripstore.demo.legacy.schema import CompanySchema
from tripstore.demo.legacy.seeding import Seeds
from tripstore.local.postgres import PostgresServer

#: So many are written one by one; others differ from them in their ids only.
SEEDED = 20_000
COPIES_PER_STATEMENT = 5

_COLUMNS = """
SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute
WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = '' AND NOT attname = ANY (%s)
"""
_TRIPS = """
INSERT INTO public.trips (id, {columns}) SELECT id + k * {seeded}, {columns}
FROM public.trips, generate_series({first}, {last}) AS copies (k) WHERE id <= {seeded} AND id + k * {seeded} <= {trips}
"""
_CHILDREN = """
INSERT INTO public.{table} (trip_id, {columns}) SELECT trip_id + k * {seeded}, {columns}
FROM public.{table}, generate_series({first}, {last}) AS copies (k)
WHERE trip_id <= {seeded} AND trip_id + k * {seeded} <= {trips}
"""
_SKIP = "SELECT setval(pg_get_serial_sequence('public.trips', 'id'), %s)"


def company(postgres: PostgresServer, name: str, trips: int) -> tuple[str, Layout]:
    """The URL of a company that is going to migrate, and the layout of a datastore with this name.

    It has what `tripstore legacy apply` adds, and all of it is written.
    """
    started = time.perf_counter()
    postgres.query(f"CREATE DATABASE {name}")
    url = f"{postgres.url}/{name}"
    _plant(url, trips)
    known = load_layout(legacy.LAYOUT)
    layout = Layout(name, known.row_key, known.columns)
    with connected(url, "benchmark") as connection:
        for _ in apply_all(schema_steps(layout), connection, lambda _step: lambda _done, _all: None):
            pass
        rows(connection, "VACUUM ANALYZE")
        rows(connection, "CHECKPOINT")  # else it is written to the disk beside what is measured
        size = rows(connection, "SELECT pg_database_size(current_database())")[0][0]
    click.echo(f"  {trips:,} trips with children, {size / 1024**3:.1f} GB: {time.perf_counter() - started:.0f} s")
    return url, layout


def _plant(url: str, trips: int) -> None:
    """Trips with the ids from 1 on, and their children."""
    seeded = min(trips, SEEDED)
    CompanySchema(url).upgrade()
    Seeds(url).plant(seeded)
    with connected(url, "benchmark", search_path="public", synchronous_commit="off") as connection:
        columns = {
            table: rows(connection, _COLUMNS, (f"public.{table}", ["id", "trip_id"]))[0][0]
            for table in ("trips", "billing_attempts", "trip_notes", "fare_adjustments")
        }
        copies = -(-trips // seeded) - 1
        for first in range(1, copies + 1, COPIES_PER_STATEMENT):
            last = min(first + COPIES_PER_STATEMENT - 1, copies)
            for table, named in columns.items():
                statement = _TRIPS if table == "trips" else _CHILDREN
                rows(
                    connection,
                    statement.format(table=table, columns=named, seeded=seeded, first=first, last=last, trips=trips),
                )
        rows(connection, _SKIP, (trips,))
