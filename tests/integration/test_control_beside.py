"""The control database is on a server of a cluster, as it is by default: what a promotion says, and the way out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pymysql
import pytest

from schemaless_core import Cell, Datastore, PutStatus
from schemaless_core.errors import PromotionRefused
from schemaless_core.promotion.ports import PromotionOrder
from schemaless_core.promotion.promoter import MOVE_CONTROL
from schemaless_core.servers.doctor import Doctor
from schemaless_core.urls import parse_node_url
from tests.chaos.test_unresponsive_server import rows_on
from tests.promoted import Promotable, promotable
from tests.stores import ServerEngine
from tripstore.cli.shards.failover import _document
from tripstore.local.binlog import BinlogServer

CONTROL = "trips_control"


@pytest.fixture
def beside(server_engine: ServerEngine, tmp_path: Path) -> Iterator[Promotable]:
    with promotable(server_engine, tmp_path, replicas=1, control=None) as made:
        yield made


def test_i9_it_is_in_the_way_also_when_it_is_gone_until_it_is_elsewhere(beside: Promotable) -> None:
    """A copy of it is on the replica of the server that dies."""
    (cell,) = beside.put(1)
    assert _seen_to_be_in_the_way(beside.store, PromotionOrder())
    plan = beside.store.promotions.promoter("a").plan(PromotionOrder())
    assert [(each.is_leader, each.has_control) for each in plan.servers] == [(True, True), (False, False)]
    (place,) = _places(beside.store)
    assert "on a server of cluster a" in place
    named = beside.document | {"control": beside.old.url.replace("127.0.0.1", "localhost")}
    with Datastore.open(named) as other:
        assert _seen_to_be_in_the_way(other, PromotionOrder()), "by another address"
    beside.cluster.wait_for_replicas()
    beside.old.kill()
    dead = beside.order(dead=(beside.old,))
    assert _seen_to_be_in_the_way(beside.store, dead)

    elsewhere = beside.document["clusters"]["b"]["primary"]
    _copy_control(beside.replica(), elsewhere)
    with Datastore.open(beside.document | {"control": elsewhere}) as store:
        assert _places(store) == [], "b has no replica"
        store.promotions.promoter("a").promote(dead)
        store.create_schema()
        (row,) = rows_on(store, "a", 1)

        assert store.using(deadline=10.0).put_cell(row, "BASE", 1, "x").status is PutStatus.CREATED
        assert store.get_cell(*cell.key) == Cell(*cell.key, "x")


def _seen_to_be_in_the_way(store: Datastore, order: PromotionOrder) -> bool:
    """By a promotion, by the look before failover is switched on, by a worker, and by the worker's dry run."""
    failover = store.failover()
    switched_on = PromotionOrder(to=order.to or str(store.config.clusters[0].primary), leases=True)
    for promote in (
        lambda: store.promotions.promoter("a").promote(order),
        lambda: store.promotions.promoter("a").check(switched_on),
        lambda: failover.promote("a"),
    ):
        with pytest.raises(PromotionRefused, match=r"The control database is on 127\.0\.0\.1") as refused:
            promote()
        assert refused.value.hint == MOVE_CONTROL
    (shown,) = _document({"a": failover.outlook("a")}, {"a": False}).clusters
    is_off, *others = shown.refusals
    return is_off == "it is off" and any("The control database is on 127.0.0.1" in each for each in others)


def _places(store: Datastore) -> list[str]:
    facts = [each.fact for each in Doctor(store.config, store.clusters, store.control).findings()]
    assert not any(fact.is_fine for fact in facts if fact.name == "place")
    return [fact.value for fact in facts if fact.name == "place"]


def _copy_control(replica: BinlogServer, elsewhere: str) -> None:
    """As a dump of its tables does."""
    url = parse_node_url("control", elsewhere)
    with closing(
        pymysql.connect(host=url.host, port=url.port, user=url.user, password=url.password or "", autocommit=True)
    ) as connection:
        cursor = connection.cursor()
        cursor.execute(f"CREATE DATABASE {CONTROL} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
        cursor.execute(f"USE {CONTROL}")
        for table in replica.query(
            "SELECT table_name AS name FROM information_schema.tables WHERE table_schema = %s", CONTROL
        ):
            (made,) = replica.query(f"SHOW CREATE TABLE {CONTROL}.{table['name']}")
            cursor.execute(str(made["Create Table"]))
            rows = replica.query(f"SELECT * FROM {CONTROL}.{table['name']}")
            for row in rows:
                marks = ", ".join(["%s"] * len(row))
                cursor.execute(f"INSERT INTO {table['name']} VALUES ({marks})", list(row.values()))
