"""Whether a process can serve calls now, as a load balancer asks it."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing

import pytest

from schemaless_core import Datastore, Health
from tests.chaos.actors import wait_until
from tests.facades import Migration, migration
from tests.integration.test_facade_processes import refusing_address
from tests.stores import ServerEngine, Stores
from tripstore.config import load_config
from tripstore.local.servers import LocalServers
from tripstore.phase import Phase
from tripstore.store import TripStore
from tripstore.wiring import build


@pytest.mark.parametrize(
    ("silent", "health"),
    [
        ("", Health(True, ("a", "b"), ())),
        ("a", Health(True, ("b",), ("a",))),
        ("ab", Health(False, (), ("a", "b"))),
    ],
)
def test_a_store_is_ready_while_one_cluster_answers(
    stores: Stores, server_engine: ServerEngine, silent: str, health: Health
) -> None:
    """Servers that are stopped accept connections, and say nothing."""
    store = stores.fresh(server_engine)
    assert store.health() == Health(True, ("a", "b"), ())
    with ExitStack() as resuming:
        for name, cluster in zip("ab", stores.clusters(server_engine), strict=True):
            if name in silent:
                cluster.primary.pause()
                resuming.callback(cluster.primary.resume)
        begun = time.monotonic()
        found = store.health(deadline=0.3)
        seconds = time.monotonic() - begun

    assert found == health
    assert seconds < 1.0


def test_files_are_asked_too(stores: Stores) -> None:
    assert stores.fresh("sqlite").health() == Health(True, ("a", "b"), ())


def test_a_process_that_reaches_no_server_says_so_and_raises_nothing() -> None:
    with refusing_address("mysql") as url, Datastore.open(_config(url)) as store:
        assert store.health() == Health(False, (), ("a",))


def _config(url: str) -> dict[str, object]:
    return {"datastore": "trips", "shards": 2, "clusters": {"a": {"primary": url}}}


def other_process(moving: Migration, *, postgres: str = "", cluster: str = "") -> TripStore:
    """A process that finds no server at these addresses."""
    document = dict(moving.document)
    if postgres:
        document["legacy"] = {**document["legacy"], "postgres": f"{postgres}/company"}
    if cluster:
        document |= {"clusters": {"a": {"primary": cluster}}, "control": cluster}
    return TripStore(build(load_config(document)))


def test_i10_the_backend_that_answers_callers_is_asked_and_the_mirror_is_not(
    servers: LocalServers, stores: Stores
) -> None:
    with (
        migration(servers, stores) as moving,
        refusing_address("postgresql") as postgres,
        refusing_address("mysql") as cluster,
    ):
        moving.phase(Phase.DUALWRITE)

        assert moving.store.health() == Health(True, ("postgres",), ())
        with closing(other_process(moving, cluster=cluster)) as store:
            assert store.health() == Health(True, ("postgres",), ())
        with closing(other_process(moving, postgres=postgres)) as store:
            assert store.health() == Health(False, (), ("postgres",))

        moving.phase(Phase.SHADOW)
        moving.switch()

        assert moving.store.health() == Health(True, ("a", "b"), ())
        with closing(other_process(moving, postgres=postgres)) as store:
            wait_until("it hears of the switch", lambda: store.health() == Health(True, ("a", "b"), ()))
