"""Shards move, and clusters are split, while services put, read, ask an index and are called by a trigger.

The mover is killed at every step.
The control database goes away meanwhile, again and again. A relay carries what Postgres takes into shards that move.

Nothing is lost or doubled, no call fails, each cell is delivered, and fsck is clean (I1, I3, I6, I7, I9).
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from schemaless_core import Datastore, Json
from schemaless_core.control.jobs.records import JobState
from schemaless_core.failpoints import FailpointReached
from schemaless_core.moves import steps
from schemaless_core.moves.orders import MoveOrder
from schemaless_core.moves.runner import ShardOrder
from schemaless_core.moves.splits import SplitOrder, Splits
from schemaless_core.moves.steps import Moved
from tests.chaos.actors import drain, wait_until
from tests.chaos.moving_actors import (
    HOLD_SECONDS,
    PAUSE_SECONDS,
    Flip,
    Services,
    dying,
    is_closed,
    killed_mover,
    move,
    percentile,
)
from tests.crew import Notebook, noting, quick, wait_until_caught_up, working
from tests.facades import migration
from tests.fscks import DEEP, found_in, kinds_in
from tests.indexing import catch_up
from tests.mirrors import log_of, missing, relaying, wait_until_delivered
from tests.repairs import failing_at
from tests.scale import SCALE, scaled
from tests.stores import ServerEngine, Stores
from tripstore.local.servers import LocalServers
from tripstore.phase import Phase
from tripstore.ports.opened import OpenedAsRow

SPLITS = scaled(4, short=1)
MOVES, WRITERS = scaled(50, short=3), scaled(20, short=3)
SHARDS = 4
#: The 99th percentile of puts while shards move.
PAUSE_SECONDS_MAX = 0.3
#: Of its own cluster; what waits longer is buffered.
PUT_SECONDS = 0.25
#: For a buffer on a machine that is busy with much else.
PATIENT_BUFFER: Json = {"put_seconds": 20.0}
CALM_PUTS = scaled(4_000, short=100)
POINTS = [*(step.name for step in (*steps.MOVE, steps.CUT, steps.HOLD)), "copies.written"]
DONE = JobState.DONE
INDEX: dict[str, Json] = {
    "table": "trips_of_driver",
    "column_defs": [{"column_key": "BASE", "fields": [{"field": "driver", "type": "string"}]}],
}


def chosen() -> Sequence[str]:
    """Each failpoint in turn; in CI some of them, others in every run."""
    choose = random.Random(os.environ.get("PYTEST_XDIST_TESTRUNUID"))
    points = choose.sample(POINTS, len(POINTS))
    return [points[n % len(points)] for n in range(MOVES)]


def going(number: int) -> tuple[int, str]:
    """The shard of a move, and its target: to and fro, so that each cluster has one always, and a buffer with it."""
    turn, n = divmod(number, SHARDS)
    shard = n // 2 + n % 2 * (SHARDS // 2)
    return shard, "ba"[(turn + n) % 2]


def test_movers_that_are_killed_at_every_step_lose_and_double_nothing(
    server_engine: ServerEngine, stores: Stores, servers: LocalServers, failpoints: Path
) -> None:
    (control,) = servers.clusters(server_engine, [f"control-{server_engine}"], replicas=0)
    proxy = control.primary.proxy()
    config = stores.config(server_engine, shards=SHARDS, indexes=[INDEX], triggers=quick(), buffer=PATIENT_BUFFER)
    config |= {"deadlines": config["deadlines"] | {"put_seconds": PUT_SECONDS}, "control": proxy.url}
    notebook, flips = Notebook(), list[Flip]()
    with Datastore.open(config) as store, Datastore.open(config) as other:
        store.create_schema()
        services = Services(store)
        with working(other, [noting(notebook)]):
            with services.at_work(writers=WRITERS):
                wait_until("services have put without a move", lambda: len(services.puts) >= CALM_PUTS)
                calm = percentile([put.seconds for put in services.puts], 0.99)
                with dying(proxy):
                    for number, point in enumerate(chosen()):
                        shard, to = going(number)
                        (failpoints / point).write_text("kill")
                        ended = killed_mover(config, failpoints, shard, to)
                        died_at = time.monotonic()
                        (failpoints / point).unlink(missing_ok=True)
                        assert ended in (-9, 0), f"{point}: {ended}"
                        flips += move(store, shard, to, died_at if is_closed(store, shard) else None)
                for number in range(SPLITS):
                    split_and_back(store, *("ab" if number % 2 else "ba"))
            drain(store)
            wait_until_caught_up(store, "noted")
        check(store, services, notebook)
    tell(services, flips, calm)


def split_and_back(store: Datastore, cluster: str, into: str) -> None:
    """Half of a cluster's shards go to the other one, and come back."""
    splits = Splits(store.control, store.moves())
    before = splits.moves.owned()
    assert splits.moves.runner(splits.begin(splits.plan(SplitOrder(cluster, into, HOLD_SECONDS))), "test").run() is DONE
    split = splits.get(cluster)
    assert set(splits.moves.owned()[cluster]) == set(before[cluster]) - set(split.shards)
    back = splits.back(split, HOLD_SECONDS)
    splits.end(split)
    assert splits.moves.runner(splits.moves.begin(back), "test").run() is DONE
    assert {name: set(shards) for name, shards in splits.moves.owned().items()} == {
        name: set(shards) for name, shards in before.items()
    }


def tell(services: Services, flips: Sequence[Flip], calm: float) -> None:
    """The bound is for puts of the shard that moves, while it takes none: all others are calm."""
    assert flips
    of_living = [flip for flip in flips if not flip.is_of_killed]
    met, met_living = (
        [put.seconds for put in services.puts if any(flip.met(put) for flip in some)] for some in (flips, of_living)
    )
    p99 = percentile(met, 0.99)
    figures = {
        "puts": p99,
        "puts beside a mover that lives": percentile(met_living, 0.99),
        "puts without a move": calm,
        "shards closed by a mover that lives": percentile([flip.ended - flip.begun for flip in of_living], 0.99),
    }
    told = ", ".join(f"{name} {seconds * 1000:.0f} ms" for name, seconds in figures.items())
    counts = f"{MOVES} moves, {len(flips)} flips, {len(services.puts):,} puts, {len(met):,} of a shard in its flip"
    print(f"moves: {counts}, {services.reads:,} reads; p99: {told}")
    assert SCALE < 1 or p99 <= PAUSE_SECONDS_MAX


@pytest.mark.parametrize("point", ["move.practise", "move.leave", "move.decide", "move.close", "move.open"])
def test_i8_a_relay_carries_into_shards_that_move(
    server_engine: ServerEngine, stores: Stores, servers: LocalServers, point: str
) -> None:
    """The mover dies: what Postgres took is there once, and each shard opens as a mirror's."""
    with migration(servers, stores, engine=server_engine, shards=SHARDS) as moving:
        moving.phase(Phase.SHADOW)
        store, ended = moving.facade.store, threading.Event()
        moves = store.moves(OpenedAsRow(moving.duo.ports.control))

        def write() -> None:
            while not ended.wait(PAUSE_SECONDS):
                _id, key = moving.legacy.trip()
                moving.legacy.sql("UPDATE trips SET status = 'done' WHERE trip_uuid = %s", str(key))

        writer = threading.Thread(target=write)
        with relaying(moving):
            writer.start()
            try:
                for shard, to in ((0, "b"), (SHARDS - 1, "a")):
                    mover = moves.mover(ShardOrder(shard, to), MoveOrder((shard,), to, HOLD_SECONDS))
                    with failing_at(point), pytest.raises(FailpointReached):
                        mover.run(lambda step: None)
                    while not isinstance(mover.run(lambda step: None), Moved):
                        pass
            finally:
                ended.set()
                writer.join()
            wait_until_delivered(moving)
        assert missing(moving) == []
        keys = Counter(cell.key for cell in log_of(moving))
        assert set(keys.values()) == {1}
        assert kinds_in(store) == []


def check(store: Datastore, services: Services, notebook: Notebook) -> None:
    pages = store.get_cells_for_shards(dict.fromkeys(range(SHARDS), 0), 100_000)
    stored = Counter(cell.key for page in pages.values() for cell in page.cells)
    assert set(stored) == {cell.key for cell in services.acknowledged}
    assert set(stored.values()) <= {1}
    assert set(notebook.keys) >= set(stored)
    catch_up(store)
    assert found_in(store, DEEP) == []
