"""How long after the acknowledged put the entry of a cell can be found, seen by another process."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection
from uuid import UUID, uuid4

import pymysql

from benchmarks.cells import SPAWN, Config
from benchmarks.timing import Comparison
from benchmarks.triggers import PUTS_PER_SECOND, percentile
from schemaless_core import Datastore, Json
from schemaless_core.definitions.values import IndexFieldType, index_shard_of
from schemaless_core.urls import parse_node_url

INDEX = "driver_partner_index"
DEFINITION = {
    "table": INDEX,
    "column_defs": [
        {
            "column_key": "BASE",
            "fields": [
                {"field": "driver_partner_uuid", "type": "UUID"},
                {"field": "city_uuid", "type": "UUID"},
                {"field": "trip_created_at", "type": "datetime"},
            ],
        }
    ],
}
#: Of so many puts one is watched.
WATCHED_EVERY = 10
LOOK_SECONDS = 0.001
#: Connections are opened and tables met for the first time before anything is watched.
WARM_SECONDS = 2.0
FIND = "SELECT 1 FROM {table} WHERE f_driver_partner_uuid = %s AND row_key = %s"


def lag(config: Config, seconds: float) -> Comparison:
    """Entries are written right after the commit, off the caller's thread; no worker runs here."""
    config = config | {"indexes": [DEFINITION]}
    ours, theirs = SPAWN.Pipe()
    with Datastore.open(config) as store:
        store.create_schema()
        clusters = {shard: name for name, shards in _shards(store).items() for shard in shards}
        urls = {name: str(cluster["primary"]) for name, cluster in config["clusters"].items()}
        observer = SPAWN.Process(target=_observe, args=(store.config.datastore, clusters, urls, theirs), daemon=True)
        observer.start()
        _at_a_steady_rate(store, seconds, ours)
        ours.send(None)
        lags: list[float] = ours.recv()
        observer.join()
    return percentile("index lag p99 at 500 puts/s (ms)", lags, 20.0)


def _shards(store: Datastore) -> dict[str, list[int]]:
    topology = store.schema.plan().topology
    return {name: list(topology.shards_of(name)) for name in topology.clusters}


def _at_a_steady_rate(store: Datastore, seconds: float, channel: Connection) -> None:
    started = time.monotonic()
    for number in range(int(seconds * PUTS_PER_SECOND)):
        pause = started + number / PUTS_PER_SECOND - time.monotonic()
        if pause > 0:
            time.sleep(pause)
        row_key, driver = uuid4(), uuid4()
        body: Json = {
            "driver_partner_uuid": str(driver),
            "city_uuid": str(driver),
            "trip_created_at": "2026-11-20T12:00:00Z",
        }
        store.put_cell(row_key, "BASE", 1, body)
        if number % WATCHED_EVERY == 0 and time.monotonic() - started > WARM_SECONDS:
            channel.send((row_key, driver, time.monotonic()))


def _observe(datastore: str, clusters: Mapping[int, str], urls: Mapping[str, str], channel: Connection) -> None:
    """Look for the entries of the cells it is told of, one after the other."""
    servers = {name: parse_node_url("primary", url) for name, url in urls.items()}
    connections = {
        name: pymysql.connect(
            host=url.host, port=url.port, user=url.user, password=url.password, autocommit=True, ssl_disabled=True
        )
        for name, url in servers.items()
    }
    told: list[tuple[UUID, UUID, float]] = []
    is_over = threading.Event()

    def listen() -> None:
        while (news := channel.recv()) is not None:
            told.append(news)
        is_over.set()

    threading.Thread(target=listen, daemon=True).start()
    lags: list[float] = []
    waiting: list[tuple[UUID, UUID, float]] = []
    while not (is_over.is_set() and len(lags) == len(told)):
        waiting += told[len(lags) + len(waiting) :]
        for item in list(waiting):
            row_key, driver, acknowledged = item
            shard = index_shard_of(IndexFieldType.UUID, driver, len(clusters))
            with connections[clusters[shard]].cursor() as cursor:
                table = f"{datastore}_{shard:04d}.{INDEX}_v1"
                if cursor.execute(FIND.format(table=table), (driver.bytes, row_key.bytes)):
                    lags.append(time.monotonic() - acknowledged)
                    waiting.remove(item)
        time.sleep(LOOK_SECONDS)
    channel.send(lags)
