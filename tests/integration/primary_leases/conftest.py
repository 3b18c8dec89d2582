"""Clusters with leases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from schemaless_core import Datastore
from schemaless_core.promotion.ports import PromotionOrder
from tests.chaos.test_promotions_in_switches import config_of
from tests.integration.primary_leases.leased import Pair
from tests.promoted import Promotable, promotable
from tests.stores import ServerEngine
from tripstore.local.servers import LocalServers


@pytest.fixture
def made(server_engine: ServerEngine, tmp_path: Path) -> Iterator[Promotable]:
    with promotable(server_engine, tmp_path / "control", replicas=1) as it:
        yield it


@pytest.fixture
def leased(made: Promotable) -> Promotable:
    """Its cluster a has a lease; cluster b has no replica, and needs none."""
    made.promote(PromotionOrder(to=made.leads(), leases=True))
    return made


@pytest.fixture
def pair(server_engine: ServerEngine, tmp_path: Path) -> Iterator[Pair]:
    with LocalServers() as servers:
        clusters = servers.clusters(server_engine, ["a", "b"], replicas=1)
        document = {"datastore": "trips", "shards": 4} | config_of(clusters, tmp_path)
        with Datastore.open(document) as store:
            store.create_schema()
            for cluster in clusters:
                cluster.wait_for_replicas()
            for name in "ab":
                promoter = store.promotions.promoter(name)
                promoter.promote(PromotionOrder(to=promoter.old(), leases=True))
            yield Pair(store, clusters)
