"""What an experiment costs the callers of the old query, of which a tenth is compared, against the query by itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from random import Random
from typing import Any
from uuid import UUID

import psycopg2

from benchmarks.facade import LOAD
from benchmarks.migration import Migration, migrated
from benchmarks.timing import Comparison, block_p50, compare
from schemaless_core import Cell
from tripstore.engines.validation.verdicts import Outcome
from tripstore.local.postgres import PostgresServer
from tripstore.local.replication import LocalCluster
from tripstore.phase import Phase

TRIPS = 2_000
SHARE = 0.1
SQL = "SELECT status, fare_amount::text FROM trips WHERE trip_uuid = %s"
_THREAD = threading.local()


def measure(postgres: PostgresServer, mirror: LocalCluster, *, is_quick: bool) -> Iterator[Comparison]:
    """In alternating blocks: a caller that pauses as one does at a fifth of the load, and one that never pauses."""
    calls, pairs = (
        (60, 3) if is_quick else (1_500, 25)
    )  # what is compared is compared within its block, nearly all of it
    with migrated(postgres, mirror.primary, "experiments", TRIPS) as migration:
        migration.phase(Phase.SHADOW, SHARE)
        control, candidate = queries(migration)
        rewritten = migration.store.experiment("bench.trip")(control)
        rewritten.candidate(candidate)
        random = Random(3)

        def asked(query: Callable[[UUID], Any]) -> Callable[[], object]:
            return lambda: query(random.choice(migration.row_keys))

        alone = block_p50(asked(control), calls) / 1e6
        pause = alone * (1 / LOAD - 1)
        before = _compared(migration)
        begun = time.perf_counter()
        yield compare(
            "query under experiment, a tenth compared / alone, p50",
            asked(rewritten),
            asked(control),
            calls=calls,
            pairs=pairs,
            bound=("<=", 1.03),
            pause_seconds=pause,
        )
        seconds = time.perf_counter() - begun
        yield _told("  comparisons meanwhile", (_compared(migration) - before) / seconds)
        yield compare(
            "  the same of a caller that never pauses", asked(rewritten), asked(control), calls=calls, pairs=pairs
        )


def queries(migration: Migration) -> tuple[Callable[[UUID], Any], Callable[[UUID], Any]]:
    """The old query, over a connection per thread as services have them, and its rewrite."""
    url = migration.config["legacy"]["postgres"]

    def control(trip: UUID) -> Any:
        connection = getattr(_THREAD, "connection", None)
        if connection is None:
            connection = _THREAD.connection = psycopg2.connect(url)
            connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute(SQL, (str(trip),))
            return cursor.fetchone()

    def candidate(trip: UUID) -> Any:
        found: Cell | None = migration.store.get_cell_latest(trip, "BASE")
        body: Any = found and found.body
        return body and (body.get("status"), body.get("fare"))

    return control, candidate


def _compared(migration: Migration) -> int:
    assert migration.duo.shadow.drain(30), "some have no verdict"
    tally = migration.duo.tally
    assert not tally.total(Outcome.MISMATCH), tally.counts()
    return tally.total(Outcome.EQUAL, operation="experiment:bench.trip")


def _told(name: str, per_second: float) -> Comparison:
    return Comparison(name, per_second, per_second, 1.0, (1.0, 1.0), "/s")
