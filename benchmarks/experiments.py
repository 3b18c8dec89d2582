"""What an experiment costs the callers of the old query, of which a tenth is compared, against the query by itself.

The old query is one of SQLAlchemy, as services have them. Each block begins with calls that do not count, so that what
is compared beside callers goes on all through it, and ends when all that was taken has its verdict.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from random import Random
from statistics import median
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import Session

from benchmarks.facade import LOAD
from benchmarks.migration import Migration, migrated
from benchmarks.timing import Comparison, block_p50, paired
from tripstore.demo.legacy.models.trips import Trip
from tripstore.engines.validation.verdicts import Outcome
from tripstore.local.postgres import PostgresServer
from tripstore.local.replication import LocalCluster
from tripstore.phase import Phase

TRIPS = 2_000
NAME = "bench.trip"
#: Comparing waits for so long, and then goes on in rounds.
LEAD_SECONDS = 0.3
Query = Callable[[UUID], Any]


def measure(postgres: PostgresServer, mirror: LocalCluster, *, is_quick: bool) -> Iterator[Comparison]:
    """In alternating blocks: a caller that pauses as one does at a fifth of the load, and one that never pauses."""
    calls = 60 if is_quick else 300
    with migrated(postgres, mirror.primary, "experiments", TRIPS) as migration:
        url = migration.config["legacy"]["postgres"].replace("postgresql://", "postgresql+psycopg2://")
        engine = sa.create_engine(url)
        try:
            control = old_query(engine)
            rewritten = migration.store.experiment(NAME)(control)
            rewritten.candidate(new_query(migration))
            pause = block_p50(lambda: control(migration.row_keys[0]), calls) / 1e6 * (1 / LOAD - 1)
            yield _call_by_call(migration, rewritten, control, pause, 3 if is_quick else 41)
            for name, share, seconds, pairs, bound in (
                ("query under experiment, a tenth compared / alone", 0.1, pause, 41, 1.03),
                ("  none compared / alone", 0.0, pause, 21, None),
                ("  a tenth, without pauses / alone", 0.1, 0.0, 21, None),
            ):
                migration.phase(Phase.SHADOW, share)
                blocks = _Blocks(migration, rewritten, control, calls, seconds)
                ours, theirs = blocks.run(rounds := 3 if is_quick else pairs)
                yield paired(f"{name}, p50", ours, theirs, bound=None if bound is None else ("<=", bound))
                yield _told(f"    comparisons, all equal, in {rounds} blocks", blocks.compared, share)
        finally:
            engine.dispose()


def old_query(engine: sa.Engine) -> Query:
    wanted = sa.select(Trip.status, Trip.fare_amount, Trip.distance_km).where(sa.text("trip_uuid = :trip"))

    def control(trip: UUID) -> Any:
        with Session(engine) as session:
            return session.execute(wanted, {"trip": str(trip)}).one()

    return control


def new_query(migration: Migration) -> Query:
    def candidate(trip: UUID) -> Any:
        found = migration.store.get_cell_latest(trip, "BASE")
        body: Any = None if found is None else found.body
        return {"status": body["status"], "fare_amount": Decimal(body["fare"]), "distance_km": body["distance_km"]}

    return candidate


def _call_by_call(migration: Migration, ours: Query, theirs: Query, pause: float, rounds: int) -> Comparison:
    """One call of either in turns, so that whatever else the machine does meets both: what a call itself waits for."""
    migration.phase(Phase.SHADOW, 0.1)
    random = Random(5)
    figures: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        durations: tuple[list[float], list[float]] = ([], [])
        for number in range(200):
            for side in (0, 1) if number % 2 else (1, 0):
                trip = random.choice(migration.row_keys)
                time.sleep(pause)  # a caller that has other work as well
                begun = time.perf_counter()
                (ours, theirs)[side](trip)
                durations[side].append(time.perf_counter() - begun)
        for side in (0, 1):
            figures[side].append(median(durations[side]) * 1e6)
    return paired("  the same, call by call, p50", *figures)


class _Blocks:
    """Of both, in turns."""

    def __init__(self, migration: Migration, ours: Query, theirs: Query, calls: int, pause: float) -> None:
        self._migration = migration
        self._queries = ours, theirs
        self._calls = calls
        self._pause = pause
        self._random = Random(3)
        self._before = _compared(migration)

    @property
    def compared(self) -> int:
        return _compared(self._migration) - self._before

    def run(self, pairs: int) -> tuple[list[float], list[float]]:
        figures: tuple[list[float], list[float]] = ([], [])
        for pair in range(pairs + 1):
            for side in (0, 1) if pair % 2 else (1, 0):
                p50 = self._block(self._queries[side])
                if pair:  # the first one warms up
                    figures[side].append(p50)
        return figures

    def _block(self, query: Query) -> float:
        def call() -> object:
            return query(self._random.choice(self._migration.row_keys))

        lead = block_p50(call, 10, self._pause) / 1e6 + self._pause
        block_p50(call, round(LEAD_SECONDS / lead), self._pause)
        p50 = block_p50(call, self._calls, self._pause)
        assert self._migration.duo.shadow.drain(30), "some have no verdict"
        return p50


def _compared(migration: Migration) -> int:
    tally = migration.duo.tally
    assert not tally.total(Outcome.MISMATCH), tally.counts()
    return tally.total(Outcome.EQUAL, Outcome.IN_FLIGHT, operation=f"experiment:{NAME}")


def _told(name: str, compared: int, share: float) -> Comparison:
    assert bool(compared) is bool(share), (compared, share)
    return Comparison(name, compared, compared, 1.0, (1.0, 1.0), "")
