"""kill -9 of servers, of writers, of both: whatever was acknowledged is there, and no retry conflicts (I1, I4)."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from schemaless_core import Datastore
from tests.chaos.actors import Diary, Tailer, check_log, end, running, wait_until, writer
from tests.fscks import DEEP, found_in
from tests.scale import scaled
from tests.stores import ServerEngine, Stores

ROUNDS = scaled(50, least=3)


@pytest.fixture(scope="session")
def stores(stores: Stores) -> Stores:
    """On servers with replicas."""
    return stores.replicated


def test_every_acknowledged_cell_survives_kills(server_engine: ServerEngine, stores: Stores, tmp_path: Path) -> None:
    config = stores.config(server_engine, shards=4, deadlines={"put_seconds": 1.0, "read_seconds": 5.0})
    store = Datastore.open(config)
    store.create_schema()
    diaries = [Diary(tmp_path / f"writer-{n}") for n in range(2)]
    writers = [writer(config, diary, n) for n, diary in enumerate(diaries)]
    primaries = [cluster.primary for cluster in stores.clusters(server_engine)]
    choose = random.Random()
    killed = {"server": 0, "writer": 0}

    with running(writers):
        for number in range(ROUNDS):
            before = [len(diary.acknowledged()) for diary in diaries]
            wait_until("both writers get on", lambda: _got_on(diaries, before, 20), 60)  # noqa: B023  # called at once
            kinds = [["server"], ["writer"], ["server", "writer"], ["writer", "server"]][number % 4]
            victim = choose.choice(primaries)
            for kind in kinds:
                killed[kind] += 1
                if kind == "server":
                    victim.kill()
                else:
                    n = choose.randrange(len(writers))
                    end(writers[n])
                    writers[n] = writer(config, diaries[n], 100 * number + n)
                    writers[n].start()
            if "server" in kinds:
                victim.start()

    stored = Tailer(store)
    stored.catch_up()
    cells = check_log(stored.delivered)
    by_key = {cell.key: cell for found in stored.delivered.values() for cell in found}
    acknowledged = [cell for diary in diaries for cell in diary.acknowledged()]
    stores.wait_for_replicas(server_engine)
    faults = found_in(store, DEEP)
    store.close()

    assert faults == []
    assert [cell for cell in acknowledged if by_key.get(cell.key) != cell] == []
    assert [cell for diary in diaries for cell in diary.conflicts()] == []
    assert len(by_key) == cells
    print(f"{server_engine}: {ROUNDS} rounds, {killed} killed, {len(acknowledged):,} acknowledged, none missing")
    assert killed["server"] >= ROUNDS // 2


def _got_on(diaries: list[Diary], before: list[int], by: int) -> bool:
    return all(len(diary.acknowledged()) >= n + by for diary, n in zip(diaries, before, strict=True))
