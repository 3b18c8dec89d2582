"""A cluster that answers each ping and takes no write keeps cells of other clusters waiting once, not in each round."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from schemaless_core import Datastore, PutStatus
from schemaless_core.buffers import replayer, silent_clusters
from schemaless_core.buffers.silent_clusters import Present, SilentClusters
from schemaless_core.servers.clusters import Cluster
from tests.chaos.test_unresponsive_server import rows_on
from tests.stores import ServerEngine, Stores

DEADLINES = {"put_seconds": 0.3, "read_seconds": 5.0, "connect_seconds": 5.0, "pool_seconds": 5.0}


@pytest.fixture
def store(server_engine: ServerEngine, stores: Stores, monkeypatch: pytest.MonkeyPatch) -> Iterator[Datastore]:
    """Cells of both clusters wait, each in the other's buffer; the replayer waits half a second for an answer."""
    monkeypatch.setattr(replayer, "CALL_SECONDS", 0.5)
    config = stores.config(server_engine, shards=4)
    config |= {"deadlines": DEADLINES, "buffer": {"put_seconds": 5.0}}
    with Datastore.open(config) as made:
        made.create_schema()
        for row in [*rows_on(made, "a", 1), *rows_on(made, "b", 1)]:
            made.using(deadline=10.0).put_cell(row, "WARM", 1, "warm")
        yield made


@contextmanager
def hung(store: Datastore, stores: Stores, engine: ServerEngine, cluster: str) -> Iterator[None]:
    """Another session holds all counter rows: no put ends, and every read is answered."""
    server = dict(zip("ab", stores.clusters(engine), strict=True))[cluster].primary
    with server.connect() as connection, connection.cursor() as cursor:
        connection.begin()
        cursor.execute(f"SELECT * FROM {store.config.datastore}_meta.shard_state FOR UPDATE")
        yield
        connection.rollback()


def keep(store: Datastore, stores: Stores, engine: ServerEngine, cluster: str, count: int) -> None:
    """Cells of a cluster wait in the buffer of the other one."""
    with hung(store, stores, engine, cluster):
        for row in rows_on(store, cluster, count):
            assert store.put_cell(row, "BASE", 1, cluster).status is PutStatus.BUFFERED


def rounds(store: Datastore, monkeypatch: pytest.MonkeyPatch, count: int) -> tuple[list[int], list[list[str]]]:
    """What each round carried, and which clusters it wrote to."""
    replaying, carried, asked, write = store.replayer(), list[int](), list[list[str]](), Cluster.write

    def heard(cluster: Cluster, *call: Any) -> Any:
        asked[-1].append(cluster.name)
        return write(cluster, *call)

    monkeypatch.setattr(Cluster, "write", heard)
    for _ in range(count):
        asked.append([])
        carried.append(replaying.round().cells)
    return carried, asked


def test_i5_a_cluster_that_takes_no_write_is_left_alone(
    store: Datastore, stores: Stores, server_engine: ServerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round carries one cell here. Later it is offered one; when it takes that, the others follow."""
    monkeypatch.setattr(replayer, "CELLS_PER_TAKE", 1)
    monkeypatch.setattr(replayer, "SHARDS_PER_TAKE", 1)
    keep(store, stores, server_engine, "b", 3)
    keep(store, stores, server_engine, "a", 2)
    with hung(store, stores, server_engine, "a"):
        carried, asked = rounds(store, monkeypatch, 3)

        assert carried == [1, 1, 1]
        assert sorted(asked[0]) == ["a", "b"]
        assert asked[1:] == [["b"], ["b"]]

    monkeypatch.setattr(silent_clusters, "ALONE_SECONDS", 0.0)
    carried, asked = rounds(store, monkeypatch, 2)
    assert carried == [1, 1]


def test_i5_control_a_replayer_that_forgets_who_was_silent_waits_in_each_round(
    store: Datastore, stores: Stores, server_engine: ServerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SilentClusters, "heard", lambda self, cluster, *, is_silent: None)
    monkeypatch.setattr(replayer, "CELLS_PER_TAKE", 1)
    monkeypatch.setattr(replayer, "SHARDS_PER_TAKE", 1)
    keep(store, stores, server_engine, "b", 3)
    keep(store, stores, server_engine, "a", 1)
    with hung(store, stores, server_engine, "a"):
        carried, asked = rounds(store, monkeypatch, 3)

    assert carried == [1, 1, 1]
    assert [sorted(each) for each in asked] == [["a", "b"]] * 3


def test_one_shard_of_a_cluster_is_offered_after_a_while() -> None:
    now = [0.0]
    silent = SilentClusters(lambda: now[0])
    shards = [(0, "a"), (1, "a"), (2, "b")]
    assert silent.sort(shards) == Present([0, 1, 2], [])
    silent.heard("a", is_silent=True)
    assert silent.sort(shards) == Present([2], [])
    now[0] = silent_clusters.ALONE_SECONDS
    assert silent.sort(shards) == Present([2], [0])
    silent.heard("a", is_silent=True)
    assert silent.sort(shards) == Present([2], [])
    silent.heard("a", is_silent=False)
    assert silent.sort(shards) == Present([0, 1, 2], [])
