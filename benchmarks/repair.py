"""Repair: cells a second, by what is wrong with them, in one process that looks at each before and after.

Schemaless lacks the cells, or holds other bytes, or lost them so that the log has holes, or holds cells that are
nobody's. Ours looks at each cell in both stores, twice or three times, and once at each log for holes. The peer is
the fastest way that there is to write cells here: the same cells put by a copier that looks at nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from uuid import UUID, uuid4

import pymysql

from benchmarks.cells import Config
from benchmarks.diff import arguments_of, made
from benchmarks.timing import Comparison, paired
from schemaless_core import Cell
from schemaless_core.encoded import encode_cell
from schemaless_core.sharding import shard_of
from tripstore.backends.postgres.wire.connections import connected, rows
from tripstore.handover.authority import Backend
from tripstore.local.binlog import BinlogServer
from tripstore.local.postgres import PostgresServer
from tripstore.repairing.job import TARGETS_PER_PART
from tripstore.repairing.opening import Repairs
from tripstore.repairing.targets import Target
from tripstore.store import TripStore
from tripstore.wiring import connect

CELLS = 20_000
SHARDS = 64
ROUNDS = 3

Damage = Callable[[TripStore, BinlogServer, list[UUID]], list[UUID]]


def measure(postgres: PostgresServer, mirror: BinlogServer, *, scale: float) -> Iterator[Comparison]:
    """Cells a second of both; at scale 1 twenty thousand of each kind."""
    count = max(round(CELLS * scale), 500)
    logging.getLogger("schemaless_core.mends").setLevel(logging.ERROR)  # a line for each transaction
    config = made(postgres, mirror, count)
    with connected(f"{postgres.url}/flat", "benchmark") as connection:
        keys = [UUID(str(key)) for (key,) in rows(connection, "SELECT trip_uuid FROM public.trips ORDER BY id")]
    for name, damage in _DAMAGES.items():
        speeds, plain = [], []
        for _ in range(ROUNDS):
            speeds.append(count / _repaired(config, mirror, keys, damage))
            plain.append(count / _put(config, count))
        yield paired(f"repair of cells {name}, against plain puts", speeds, plain, unit="cells/s")


def _repaired(config: Config, mirror: BinlogServer, keys: list[UUID], damage: Damage) -> float:
    """Seconds for all of them, as the parts of a job."""
    with connect(config) as store:
        targets = [Target(key, "BASE") for key in damage(store, mirror, keys)]
        repairing = Repairs(store.facade).repairing(Backend.LEGACY, job="repair-bench")
        begun = time.perf_counter()
        for first in range(0, len(targets), TARGETS_PER_PART):
            outcomes = repairing.repair(targets[first : first + TARGETS_PER_PART])
            assert all(each.is_equal and each.done for each in outcomes), outcomes[0]
        return time.perf_counter() - begun


def _put(config: Config, count: int) -> float:
    with connect(config) as store:
        copier = store.facade.store.as_copier().using(deadline=60.0)
        cells = [encode_cell(Cell(uuid4(), "SPARE", 1, {"status": "completed", "n": n}), 1000) for n in range(count)]
        begun = time.perf_counter()
        for first in range(0, count, TARGETS_PER_PART):
            copier.put_encoded(cells[first : first + TARGETS_PER_PART])
        return time.perf_counter() - begun


def _lacking(store: TripStore, mirror: BinlogServer, keys: list[UUID]) -> list[UUID]:
    """As if they had never been copied: with their holes passed."""
    _lost(store, mirror, keys)
    repairs = Repairs(store.facade)
    while holes := repairs.holes():
        repairs.close(holes)
    return keys


def _changed(_store: TripStore, mirror: BinlogServer, keys: list[UUID]) -> list[UUID]:
    _execute(
        mirror, keys, "UPDATE flat_{shard:04d}.cell SET body = '{{\"status\":\"foreign\"}}' WHERE column_name = 'BASE'"
    )
    return keys


def _torn(_store: TripStore, mirror: BinlogServer, keys: list[UUID]) -> list[UUID]:
    _execute(mirror, keys, "UPDATE flat_{shard:04d}.cell SET body = 'torn' WHERE column_name = 'BASE'")
    return keys


def _lost(_store: TripStore, mirror: BinlogServer, keys: list[UUID]) -> list[UUID]:
    _execute(mirror, keys, "DELETE FROM flat_{shard:04d}.cell WHERE column_name = 'BASE'")
    return keys


def _extra(store: TripStore, _mirror: BinlogServer, keys: list[UUID]) -> list[UUID]:
    found = [uuid4() for _ in keys]
    copier = store.facade.store.as_copier().using(deadline=60.0)
    for first in range(0, len(found), 1_000):
        copier.put_encoded(
            [encode_cell(Cell(key, "BASE", 1, {"status": "x"}), 1000) for key in found[first : first + 1_000]]
        )
    return found


def _execute(mirror: BinlogServer, keys: list[UUID], statement: str) -> None:
    """In every shard that has rows."""
    with closing(pymysql.connect(**arguments_of(mirror), autocommit=True)) as connection, connection.cursor() as cursor:
        for shard in {shard_of(key, SHARDS) for key in keys}:
            cursor.execute(statement.format(shard=shard))


_DAMAGES: dict[str, Damage] = {
    "that the mirror lacks": _lacking,
    "with other bytes": _changed,
    "whose bytes are torn": _torn,
    "that left holes": _lost,
    "that are nobody's": _extra,
}
