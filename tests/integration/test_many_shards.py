"""4096 shards on two clusters: created in under a minute, again for nothing, resumed after a kill."""

from __future__ import annotations

import time
from typing import Any
from uuid import uuid4

import pytest

from schemaless_core import Cell, Datastore
from tests.scale import scaled
from tests.stores import SERVER_ENGINES, ServerEngine
from tripstore.local.servers import LocalServers

SHARDS = scaled(4096, least=128)
CREATE_SECONDS_MAX = 60


@pytest.mark.parametrize("engine", SERVER_ENGINES)
def test_all_shards_are_created_within_a_minute(engine: ServerEngine) -> None:
    with LocalServers() as servers:
        clusters = servers.clusters(engine, ["a", "b"], replicas=0, shards=SHARDS // 2)
        config: dict[str, Any] = {
            "datastore": "trips",
            "shards": SHARDS,
            "clusters": {cluster.name: {"primary": cluster.primary.url} for cluster in clusters},
            "deadlines": {"put_seconds": 20.0, "read_seconds": 20.0},
        }
        with Datastore.open(config) as store:
            steps: list[tuple[int, int]] = []
            started = time.monotonic()
            store.create_schema(progress=lambda done, total: steps.append((done, total)))
            first = time.monotonic() - started
            started = time.monotonic()
            again = store.create_schema()
            second = time.monotonic() - started

            cells = [Cell(uuid4(), "BASE", 1, n) for n in range(2_000)]
            store.put_cells(cells)
            pages = store.get_cells_for_shards(dict.fromkeys(range(SHARDS), 0), 100)

    print(f"{engine}: {SHARDS} shards on two clusters in {first:.1f} s, again in {second:.2f} s")
    assert first < CREATE_SECONDS_MAX
    assert again.is_done
    assert steps[-1] == (SHARDS, SHARDS)
    assert sum(len(page.cells) for page in pages.values()) == 2_000
