"""How fast an index is filled behind a backfill: entries a second of one worker, against a loop by hand.

The loop trusts the log: each cell is the only one of its row, no entry was written before, and no one else writes. Ours
finds out by itself that it is so, and holds where it is not.
"""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, cast
from uuid import UUID, uuid4

import msgspec
import pymysql
from pymysql.constants import CLIENT

from benchmarks.cells import BODY
from benchmarks.indexes import INDEX
from benchmarks.timing import Comparison, paired
from benchmarks.triggers import running
from schemaless_core import Cell, Datastore, Json, canonical_bytes
from schemaless_core.cell.encoded import EncodedCell
from schemaless_core.definitions.values import IndexFieldType, index_shard_of
from schemaless_core.triggers.group import Group, RunOutcome
from tripstore.local.binlog import BinlogServer

#: Entries a second that one worker is to write.
WANTED = 40_000.0
CELLS_PER_PUT = 2_000
TRIPS_PER_DRIVER = 20
#: Of the loop by hand.
CELLS_PER_PAGE = 2_000
PATIENCE_SECONDS = 600


def measure(store: Datastore, server: BinlogServer, cells: int, pairs: int) -> Iterator[Comparison]:
    """The datastore has the index, and no cells yet."""
    _backfill(store, cells)
    ours, theirs = [], []
    for _pair in range(pairs + 1):
        number = store.indexes.create(INDEX)
        ours.append(cells / _by_worker(store, f"index:{INDEX}:v{number}", cells))
        store.indexes.drop(INDEX, number)
        theirs.append(cells / _by_hand(store, server))
    ours, theirs = ours[1:], theirs[1:]  # the first pair warms
    middle = statistics.median(ours)
    spread = min(ours) / WANTED, max(ours) / WANTED
    name = "index filled behind a backfill"
    yield Comparison(f"{name} (entries/s)", middle, WANTED, middle / WANTED, spread, unit="/s", bound=(">=", 1.0))
    yield paired(f"{name}, by hand (entries/s)", ours, theirs, unit="/s")


def _backfill(store: Datastore, cells: int) -> None:
    copier = store.as_copier()
    for first in range(0, cells, CELLS_PER_PUT):
        numbers = range(first, min(first + CELLS_PER_PUT, cells))
        rows = [EncodedCell(uuid4().bytes, b"BASE", 1, _body(number)) for number in numbers]
        assert copier.put_encoded(rows).equal == len(rows)


def _body(number: int) -> bytes:
    """Of a driver with some trips."""
    driver = UUID(int=random.Random(number // TRIPS_PER_DRIVER).getrandbits(128))
    return canonical_bytes({**cast(dict[str, Json], BODY), "driver_partner_uuid": str(driver)})


class _Filling:
    """Knows when a group began and when it has passed so many cells."""

    def __init__(self, group: Group, cells: int) -> None:
        self._deliver = group.deliver
        self._left = cells
        self._begun = 0.0
        self.seconds = 0.0
        self.is_done = threading.Event()

    def deliver(self, runs: Mapping[int, Sequence[Cell]], *arguments: Any, **named: Any) -> Mapping[int, RunOutcome]:
        self._begun = self._begun or time.perf_counter()
        outcomes = self._deliver(runs, *arguments, **named)
        self._left -= sum(outcome.done for outcome in outcomes.values())
        if self._left <= 0 and not self.is_done.is_set():
            self.seconds = time.perf_counter() - self._begun
            self.is_done.set()
        return outcomes


def _by_worker(store: Datastore, name: str, cells: int) -> float:
    """With the first page read before the clock runs, and the last offsets saved after it stops."""
    (group,) = (group for group in store.indexes.groups() if group.name == name)
    filling = _Filling(group, cells)
    group.deliver = filling.deliver  # type: ignore[method-assign]  # the version is dropped after this
    with running(store.triggers.worker(lambda: [group])):
        assert filling.is_done.wait(PATIENCE_SECONDS)
    return filling.seconds


def _by_hand(store: Datastore, server: BinlogServer) -> float:
    name, shards = store.config.datastore, store.config.shards
    connection = pymysql.connect(
        host="127.0.0.1",
        port=server.port,
        user="root",
        password=server.password,
        autocommit=True,
        ssl_disabled=True,
        client_flag=CLIENT.MULTI_STATEMENTS,
    )
    with connection, connection.cursor() as cursor:
        for shard in range(shards):
            cursor.execute(f"DROP TABLE IF EXISTS {name}_{shard:04d}.by_hand")
            cursor.execute(f"CREATE TABLE {name}_{shard:04d}.by_hand LIKE {name}_{shard:04d}.{INDEX}_v1")
        begun = time.perf_counter()
        for shard in range(shards):
            _fill_by_hand(cursor, name, shard, shards)
        return time.perf_counter() - begun


def _fill_by_hand(cursor: Any, name: str, shard: int, shards: int) -> None:
    added_id = 0
    while True:
        cursor.execute(
            f"SELECT added_id, row_key, ref_key, body FROM {name}_{shard:04d}.cell"
            f" WHERE added_id > {added_id} ORDER BY added_id LIMIT {CELLS_PER_PAGE}"
        )
        if not (rows := cursor.fetchall()):
            return
        added_id = rows[-1][0]
        entries: defaultdict[int, list[str]] = defaultdict(list)
        for _added_id, row_key, ref_key, text in rows:
            body = msgspec.json.decode(text)
            driver, city = UUID(body["driver_partner_uuid"]), UUID(body["city_uuid"])
            moment = datetime.fromisoformat(body["trip_created_at"])
            entries[index_shard_of(IndexFieldType.UUID, driver, shards)].append(
                f"(X'{driver.hex}', X'{row_key.hex()}', X'{city.hex}', '{moment:%Y-%m-%d %H:%M:%S.%f}', {ref_key}, 0)"
            )
        statements = [
            f"INSERT INTO {name}_{to:04d}.by_hand (f_driver_partner_uuid, row_key, f_city_uuid, f_trip_created_at,"
            f" ref_0, dead) VALUES {', '.join(entries[to])}"
            for to in sorted(entries)
        ]
        cursor.execute("; ".join(["BEGIN", *statements, "COMMIT"]))
        while cursor.nextset():
            pass
