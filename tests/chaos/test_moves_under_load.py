"""Shards move while services put, read, ask an index and are called by a trigger; the mover is killed at every step.

Nothing is lost or doubled, no call fails, each cell is delivered, and fsck is clean (I1, I3, I6, I7, I9).
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from schemaless_core import Datastore, Json
from schemaless_core.moves import steps
from tests.chaos.actors import drain, wait_until
from tests.chaos.moving_actors import Services, killed_mover, move, percentile
from tests.crew import Notebook, noting, quick, wait_until_caught_up, working
from tests.fscks import DEEP, found_in
from tests.indexing import catch_up
from tests.scale import SCALE, scaled
from tests.stores import ServerEngine, Stores

MOVES, WRITERS = scaled(50, short=3), scaled(20, short=3)
SHARDS = 4
#: The 99th percentile of puts while shards move.
PAUSE_SECONDS_MAX = 0.3
CALM_PUTS = scaled(4_000, short=100)
POINTS = [*(step.name for step in (*steps.MOVE, steps.CUT, steps.HOLD)), "copies.written"]
INDEX: dict[str, Json] = {
    "table": "trips_of_driver",
    "column_defs": [{"column_key": "BASE", "fields": [{"field": "driver", "type": "string"}]}],
}


def chosen() -> Sequence[str]:
    """Each failpoint in turn; in CI some of them, others in every run."""
    choose = random.Random(os.environ.get("PYTEST_XDIST_TESTRUNUID"))
    points = choose.sample(POINTS, len(POINTS))
    return [points[n % len(points)] for n in range(MOVES)]


def test_movers_that_are_killed_at_every_step_lose_and_double_nothing(
    server_engine: ServerEngine, stores: Stores, failpoints: Path
) -> None:
    config = stores.config(server_engine, shards=SHARDS, indexes=[INDEX], buffer={}, triggers=quick())
    notebook = Notebook()
    with Datastore.open(config) as store, Datastore.open(config) as other:
        store.create_schema()
        services = Services(store)
        with working(other, [noting(notebook)]):
            with services.at_work(writers=WRITERS):
                wait_until("services have put without a move", lambda: len(services.pauses) >= CALM_PUTS)
                calm = percentile(services.pauses, 0.99)
                for number, point in enumerate(chosen()):
                    shard = number % SHARDS
                    to = "ba"[(number // SHARDS + 2 * shard // SHARDS) % 2]
                    (failpoints / point).write_text("kill")
                    ended = killed_mover(config, failpoints, shard, to)
                    (failpoints / point).unlink(missing_ok=True)
                    assert ended in (-9, 0), f"{point}: {ended}"
                    move(store, shard, to)
            drain(store)
            wait_until_caught_up(store, "noted")
        check(store, services, notebook)
    p99 = percentile(services.pauses, 0.99)
    figures = f"puts {len(services.pauses):,}, p99 {p99 * 1000:.0f} ms (without a move {calm * 1000:.0f} ms)"
    print(f"moves: {MOVES}, {figures}, reads {services.reads:,}")
    assert SCALE < 1 or p99 <= PAUSE_SECONDS_MAX


def check(store: Datastore, services: Services, notebook: Notebook) -> None:
    pages = store.get_cells_for_shards(dict.fromkeys(range(SHARDS), 0), 100_000)
    stored = Counter(cell.key for page in pages.values() for cell in page.cells)
    assert set(stored) == {cell.key for cell in services.acknowledged}
    assert set(stored.values()) <= {1}
    assert set(notebook.keys) >= set(stored)
    catch_up(store)
    assert found_in(store, DEEP) == []
