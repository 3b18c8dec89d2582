"""Clusters whose primaries take writes only under a lease, and accidents of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple
from unittest.mock import patch

from schemaless_core import Datastore
from schemaless_core.engine.mysql.remembered import REMEMBERED_SECONDS
from schemaless_core.promotion.failover import STALE_SECONDS, Failover
from tests.chaos.test_unresponsive_server import rows_on
from tests.promoted import Promotable
from tripstore.local.binlog import BinlogServer
from tripstore.local.replication import LocalCluster


def lease_rows(server: BinlogServer) -> set[int]:
    return {int(str(row["server"])) for row in server.query("SELECT server FROM trips_meta.lease")}


def server_id(server: BinlogServer) -> int:
    return int(str(server.query("SELECT @@server_id AS id")[0]["id"]))


def end_lease(server: BinlogServer) -> None:
    """As its clock would, to sessions that remember no later end. Replicas would stop at a change of that row."""
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_log_bin = 0")
        cursor.execute("UPDATE trips_meta.lease SET lasts_until = UTC_TIMESTAMP(6) WHERE server = @@server_id")
    time.sleep(REMEMBERED_SECONDS)  # for so long a session goes by the later end that it has seen


def failover_of(store: Datastore, *, stale_seconds: float = STALE_SECONDS) -> Failover:
    seconds = {"silent_seconds": 1.0, "again_seconds": 0.0, "stale_seconds": stale_seconds}
    return Failover(store.clusters, store.control, store.promotions.promoter, **seconds)


@contextmanager
def other_process(made: Promotable) -> Iterator[Datastore]:
    """A store that has heard of everything so far, and of nothing from now on but what servers refuse."""
    with Datastore.open(made.document) as store:
        store.put_cell(rows_on(store, "a", 1)[0], "BASE", 1, "before")
        with patch.object(store._places, "learn", return_value=set()):
            yield store


class Pair(NamedTuple):
    """A datastore of two clusters whose primaries need a lease each."""

    store: Datastore
    clusters: list[LocalCluster]
