"""The cell store against cells kept by hand: puts, reads, batches, many processes, many shards."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from multiprocessing.synchronize import Barrier
from typing import Any
from uuid import UUID, uuid4

from benchmarks.by_hand.cells import CellsByHand, SQLAlchemyPeers
from benchmarks.timing import Comparison, compare, paired
from schemaless_core import Cell, ColumnKey, Datastore, Json
from schemaless_core.cell.sharding import shard_of
from tripstore.local.binlog import BinlogServer
from tripstore.local.replication import LocalCluster

Config = dict[str, Any]
SPAWN = multiprocessing.get_context("spawn")
SHARDS = 16
PROCESSES = 8
PATIENT = {"put_seconds": 10.0, "read_seconds": 10.0}


def body_of(number: int) -> Json:
    return {
        "city_uuid": f"{number % 40:032x}",
        "driver_partner_uuid": f"{number:032x}",
        "fare": 12.5,
        "route": [[55.67, 12.56], [55.68, 12.57], [55.69, 12.58]],
        "trip_created_at": "2026-11-20T12:00:00.000000Z",
    }


BODY = body_of(7)


def config_of(name: str, shards: int, clusters: list[LocalCluster]) -> Config:
    nodes = {cluster.name: {"primary": cluster.primary.url} for cluster in clusters}
    return {"datastore": name, "shards": shards, "clusters": nodes, "deadlines": PATIENT}


def keys_of(shard: int, shards: int) -> Iterator[UUID]:
    """New row keys of one shard, made ahead of any clock."""
    while True:
        row_key = uuid4()
        if shard_of(row_key, shards) == shard:
            yield row_key


def rows_of(shard: int | None, count: int) -> list[Cell]:
    """Cells of one shard, or of all."""
    keys = keys_of(shard, SHARDS) if shard is not None else iter(uuid4, None)
    return [Cell(next(keys), "BASE", 1, BODY) for _ in range(count)]


def single_calls(store: Datastore, server: BinlogServer, calls: int, pairs: int) -> Iterator[Comparison]:
    """put_cell and get_cell_latest against PyMySQL by hand, and SQLAlchemy's distance to that."""
    by_hand, peers = CellsByHand(server, SHARDS), SQLAlchemyPeers(server, store)
    by_hand.make_tables()

    def ours_put() -> None:
        store.put_cell(uuid4(), "BASE", 1, BODY)

    def put_by_hand() -> None:
        by_hand.put(uuid4(), "BASE", 1, BODY)

    yield compare("put_cell", ours_put, put_by_hand, calls=calls, pairs=pairs, bound=("<=", 1.25))
    yield compare("  SQLAlchemy Core insert", lambda: peers.core_put(BODY), put_by_hand, calls=calls, pairs=3)
    yield compare("  SQLAlchemy ORM insert", lambda: peers.orm_put(BODY), put_by_hand, calls=calls, pairs=3)

    known = [uuid4() for _ in range(256)]
    store.put_cells([Cell(key, "BASE", ref, BODY) for key in known for ref in (1, 2)])
    turn = _cycle(known)

    def ours_get() -> None:
        assert store.get_cell_latest(turn(), "BASE") is not None

    for key in known:
        for ref_key in (1, 2):
            by_hand.put(key, "BASE", ref_key, BODY)

    def get_by_hand() -> None:
        assert by_hand.get_latest(turn(), "BASE") is not None

    yield compare("get_cell_latest", ours_get, get_by_hand, calls=calls, pairs=pairs, bound=("<=", 1.15))
    yield compare("  SQLAlchemy Core select", lambda: peers.core_get(turn()), get_by_hand, calls=calls, pairs=3)
    yield compare("  SQLAlchemy ORM select", lambda: peers.orm_get(turn()), get_by_hand, calls=calls, pairs=3)
    peers.close()
    by_hand.close()


def batches(store: Datastore, server: BinlogServer, pairs: int) -> Iterator[Comparison]:
    """put_cells of 500 against executemany of 500 rows into one plain table."""
    by_hand = CellsByHand(server, SHARDS)
    by_hand.make_plain_table()
    given = _counter(500)

    # Keys are made before the clock starts; bodies are encoded within it by both.
    keys = keys_of(3, SHARDS)
    blocks = 10 * pairs + 5
    one_shard = [[Cell(next(keys), "BASE", 1, BODY) for _ in range(500)] for _ in range(blocks)]
    all_shards = [rows_of(None, 500) for _ in range(blocks)]
    rows = [[(uuid4(), "BASE", 1, BODY) for _ in range(500)] for _ in range(2 * blocks)]

    def executemany() -> None:
        by_hand.put_many(given(), rows.pop())

    yield compare(
        "put_cells 500, one shard (speed)",
        lambda: store.put_cells(one_shard.pop()),
        executemany,
        calls=10,
        pairs=pairs,
        bound=(">=", 0.85),
        invert=True,
    )
    yield compare(
        "put_cells 500, 16 shards (time)",
        lambda: store.put_cells(all_shards.pop()),
        executemany,
        calls=10,
        pairs=pairs,
        bound=("<=", 1.2),
    )
    known = rows_of(None, 500)
    store.put_cells(known)
    columns = [ColumnKey(cell.row_key, "BASE") for cell in known]
    single = _cycle([cell.row_key for cell in known])
    yield compare(
        "  get_cells_latest 500, per cell / get_cell_latest",
        lambda: store.get_cells_latest(columns),
        lambda: [store.get_cell_latest(single(), "BASE") for _ in range(500)],
        calls=3,
        pairs=3,
    )
    by_hand.close()


def many_processes(config: Config, server: BinlogServer, seconds: float, rounds: int) -> Comparison:
    """Eight writing processes: cells per second, ours against PyMySQL by hand, in turn."""
    ours: list[float] = []
    theirs: list[float] = []
    for number in range(rounds):
        order = [(_write_ours, ours), (_write_by_hand, theirs)]
        for work, figures in order if number % 2 else order[::-1]:
            figures.append(_throughput(work, config, (server.port, server.password), seconds))
    return paired(f"put_cell from {PROCESSES} processes (speed)", ours, theirs, unit="/s", bound=(">=", 0.85))


def many_shards(few: Datastore, many: Datastore, calls: int, pairs: int) -> Iterator[Comparison]:
    """The same calls with 4096 shards and with 16."""
    for store in (few, many):
        for _ in range(3):
            store.put_cells([Cell(uuid4(), "BASE", 1, BODY) for _ in range(4_000)])
    yield compare(
        "put_cell, 4096 shards / 16",
        lambda: many.put_cell(uuid4(), "BASE", 1, BODY),
        lambda: few.put_cell(uuid4(), "BASE", 1, BODY),
        calls=calls,
        pairs=pairs,
        bound=("<=", 1.1),
    )
    yield compare(
        "get_cell_latest, 4096 shards / 16",
        lambda: many.get_cell_latest(uuid4(), "BASE"),
        lambda: few.get_cell_latest(uuid4(), "BASE"),
        calls=calls,
        pairs=pairs,
        bound=("<=", 1.1),
    )


def _throughput(work: Callable[..., None], config: Config, login: tuple[int, str], seconds: float) -> float:
    start = SPAWN.Barrier(PROCESSES + 1)
    counts = SPAWN.Queue()
    workers = [
        SPAWN.Process(target=work, args=(config, login, seconds, start, counts), daemon=True) for _ in range(PROCESSES)
    ]
    for worker in workers:
        worker.start()
    start.wait(120)
    total = sum(counts.get(timeout=120) for _ in workers)
    for worker in workers:
        worker.join()
    return float(total) / seconds


def _write_ours(config: Config, _login: tuple[int, str], seconds: float, start: Barrier, counts: Any) -> None:
    with Datastore.open(config) as store:
        store.get_cell_latest(uuid4(), "BASE")
        start.wait()
        counts.put(_count(lambda: store.put_cell(uuid4(), "BASE", 1, BODY), seconds))


def _write_by_hand(_config: Config, login: tuple[int, str], seconds: float, start: Barrier, counts: Any) -> None:
    server: Any = type("Login", (), {"port": login[0], "password": login[1]})
    by_hand = CellsByHand(server, SHARDS)
    start.wait()
    counts.put(_count(lambda: by_hand.put(uuid4(), "BASE", 1, BODY), seconds))
    by_hand.close()


def _count(call: Callable[[], object], seconds: float) -> int:
    count, end_at = 0, time.perf_counter() + seconds
    while time.perf_counter() < end_at:
        call()
        count += 1
    return count


def _cycle(values: list[UUID]) -> Callable[[], UUID]:
    position = -1

    def turn() -> UUID:
        nonlocal position
        position = (position + 1) % len(values)
        return values[position]

    return turn


def _counter(step: int) -> Callable[[], int]:
    given = 1 - step

    def turn() -> int:
        nonlocal given
        given += step
        return given

    return turn
