"""A diff over a table with many children for each parent: every child, against the highest of each parent alone.

The highest alone is what a diff compared when it took one child for all of them: a twentieth of the rows. How much
longer all of them take is the second line. One process, both stores equal.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import click

from benchmarks.cells import Config
from benchmarks.jobs.diff import SHARDS, copy_all
from benchmarks.timing import Comparison, paired
from tripstore.backends.postgres.ddl.steps import apply_all
from tripstore.backends.postgres.layout.reading import load_layout
from tripstore.backends.postgres.schema_steps import schema_steps
from tripstore.backends.postgres.wire.connections import connected, rows
from tripstore.engines.validation.diff.buckets import ShardedDigests
from tripstore.engines.validation.diff.diff import CellDiff
from tripstore.engines.validation.diff.portions import Walk, bounds_of
from tripstore.engines.validation.diff.suspects import Judge, NothingInFlight, Roles
from tripstore.facade.facade import Facade
from tripstore.local.binlog import BinlogServer
from tripstore.local.postgres import PostgresServer
from tripstore.migration.diff.diff import ROWS, SUM_SECONDS, Diffing
from tripstore.migration.diff.order import Order
from tripstore.wiring import connect

PARENTS = 50_000
CHILDREN = 20
ROUNDS = 3

_TABLES = """
CREATE TABLE public.trips (
    id bigserial PRIMARY KEY, trip_uuid uuid NOT NULL DEFAULT pg_catalog.gen_random_uuid() UNIQUE, status text
);
CREATE TABLE public.notes (
    trip_id bigint NOT NULL REFERENCES public.trips (id) ON DELETE CASCADE, trip_uuid uuid NOT NULL, n bigint NOT NULL,
    text text, author int, written_at timestamptz, PRIMARY KEY (trip_id, n), UNIQUE (trip_uuid, n)
);
INSERT INTO public.trips (status) SELECT 'completed' FROM generate_series(1, {parents});
INSERT INTO public.notes (trip_id, trip_uuid, n, text, author, written_at)
SELECT id, trip_uuid, n, 'note ' || n || ' of trip ' || id, id % 1000, '2026-01-01'::timestamptz + id * interval '1 s'
FROM public.trips, generate_series(1, {children}) AS n ORDER BY random()
"""
_LAYOUT = {
    "datastore": "families",
    "row_key": {"table": "trips", "id": "id", "uuid": "trip_uuid"},
    "columns": {
        "BASE": {"table": "trips", "ref_key": {"version": "base_version"}, "fields": {"status": {"type": "string"}}},
        "NOTES": {
            "table": "notes",
            "parent": {"column": "trip_id"},
            "ref_key": {"column": "n", "version": "note_version"},
            "fields": {
                "text": {"type": "string"},
                "author": {"type": "int"},
                "written_at": {"type": "datetime"},
            },
        },
    },
}


def measure(postgres: PostgresServer, mirror: BinlogServer, *, scale: float) -> Iterator[Comparison]:
    """At scale 1 a million children of fifty thousand parents."""
    parents = max(round(PARENTS * scale), 2_000)
    children = parents * CHILDREN
    config = _made(postgres, mirror, parents)
    with connect(config) as store:
        walks = _every(store.facade), _highest(store.facade)
        every, highest = list[float](), list[float]()
        for number in range(ROUNDS + 1):
            times = _seconds(walks[0], children), _seconds(walks[1], parents)
            if number:  # the first one warms
                every.append(times[0])
                highest.append(times[1])
    name = f"diff of {CHILDREN} children per parent"
    speeds = [children / seconds for seconds in every], [parents / seconds for seconds in highest]
    yield paired(f"{name}: rows of the company, against the highest alone", *speeds, unit="rows/s")
    yield paired(f"{name}: the time of every row, against the highest alone", every, highest, unit="s")


def _every(facade: Facade) -> Walk:
    return Diffing(facade).walks(Order(columns=["NOTES"], indexes=False, decoded=0))[ROWS]


def _highest(facade: Facade) -> Walk:
    """As it was: one child of each parent."""
    assert facade.duo is not None
    legacy, store = facade.duo.legacy, facade.store.as_copier()
    judge = Judge(lambda: Roles(legacy, store, True), NothingInFlight())
    return CellDiff(legacy.sums.by({}), ShardedDigests(store, SUM_SECONDS), judge, ["NOTES"])


def _seconds(walk: Walk, rows_wanted: int) -> float:
    begun = time.perf_counter()
    portion = walk.step(bounds_of(range(SHARDS)), None)
    seconds = time.perf_counter() - begun
    assert portion.is_end
    assert portion.counts["equal"] == portion.counts["rows"] == rows_wanted, portion.counts
    return seconds


def _made(postgres: PostgresServer, mirror: BinlogServer, parents: int) -> Config:
    postgres.query("CREATE DATABASE families")
    url = f"{postgres.url}/families"
    config: Config = {
        "datastore": "families",
        "shards": SHARDS,
        "clusters": {"a": {"primary": mirror.url}},
        "legacy": {"postgres": url, "layout": _LAYOUT, "put_seconds": 60, "read_seconds": 60},
    }
    with connected(url, "benchmark") as connection:
        rows(connection, _TABLES.format(parents=parents, children=CHILDREN))
        steps = schema_steps(load_layout(_LAYOUT, "families"))
        for _ in apply_all(steps, connection, lambda _step: lambda _done, _all: None):
            pass
        rows(connection, "ANALYZE public.trips; ANALYZE public.notes")
    started = time.perf_counter()
    copy_all(config)
    click.echo(f"  {parents:,} parents with {CHILDREN} children each, copied: {time.perf_counter() - started:.0f} s")
    return config
