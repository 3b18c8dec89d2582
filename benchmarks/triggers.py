"""Triggers against a hand-written loop, and how long a cell takes from its put to its function."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from uuid import UUID, uuid4

import msgspec
import pymysql

from benchmarks.cells import BODY, SPAWN, Config, body_of
from benchmarks.timing import Comparison, paired
from schemaless_core import Cell, Datastore
from schemaless_core.triggers.registry import trigger
from schemaless_core.triggers.worker import Worker
from tripstore.local.binlog import BinlogServer

CELLS_PER_PAGE = 500
PUTS_PER_SECOND = 500


def throughput(store: Datastore, server: BinlogServer, cells: int, pairs: int) -> Comparison:
    """An empty function, as fast as the log can be read."""
    for first in range(0, cells, 2_000):
        store.put_cells([Cell(uuid4(), "BASE", 1, BODY) for _ in range(first, min(first + 2_000, cells))])
    total = sum(store.get_cells_for_shard(shard, 0, 1).head for shard in range(store.config.shards))
    ours, theirs = [], []
    for pair in range(pairs + 1):
        ours.append(total / _by_trigger(store, f"bench_{pair}", total))
        theirs.append(total / _by_hand(store, server, total))
    name = "trigger, empty function (cells/s)"
    return paired(name, ours[1:], theirs[1:], unit="/s", bound=(">=", 0.7))  # the first pair warms


class _Stopwatch:
    """Counts calls; knows when the first and the last of an expected number came."""

    def __init__(self, expected: int) -> None:
        self._left = expected
        self._started = 0.0
        self.seconds = 0.0
        self.is_done = threading.Event()

    def __call__(self, row_key: UUID) -> None:
        if not self._started:
            self._started = time.perf_counter()
        self._left -= 1
        if self._left == 0:
            self.seconds = time.perf_counter() - self._started
            self.is_done.set()


def _by_trigger(store: Datastore, name: str, total: int) -> float:
    watch = _Stopwatch(total)

    @trigger(column="BASE", start="beginning", name=name)
    def empty(row_key: UUID) -> None:
        watch(row_key)

    worker = store.triggers.worker([empty])
    with running(worker):
        assert watch.is_done.wait(300)
    store.triggers.remove(name)
    return watch.seconds


@contextmanager
def running(worker: Worker) -> Iterator[None]:
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield
    finally:
        worker.stop()
        thread.join()


def _by_hand(store: Datastore, server: BinlogServer, total: int) -> float:
    """Shard by shard, 500 rows at a time; what it says of its progress is saved after each page."""
    watch, name = _Stopwatch(total), store.config.datastore
    connection = pymysql.connect(
        host="127.0.0.1", port=server.port, user="root", password=server.password, autocommit=True, ssl_disabled=True
    )
    with connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE IF NOT EXISTS {name}_meta.by_hand (shard INT PRIMARY KEY, added_id BIGINT)")
        for shard in range(store.config.shards):
            added_id = 0
            while True:
                cursor.execute(
                    "SELECT added_id, row_key, column_name, ref_key, body, created_at"
                    f" FROM {name}_{shard:04d}.cell WHERE added_id > %s ORDER BY added_id LIMIT {CELLS_PER_PAGE}",
                    (added_id,),
                )
                rows = cursor.fetchall()
                if not rows:
                    break
                for _added_id, row_key, _column_name, _ref_key, body, _created_at in rows:
                    msgspec.json.decode(body)
                    watch(UUID(bytes=row_key))
                added_id = rows[-1][0]
                cursor.execute(f"REPLACE INTO {name}_meta.by_hand VALUES (%s, %s)", (shard, added_id))
    return watch.seconds


def delivery_latency(config: Config, seconds: float) -> Comparison:
    """From the acknowledged put to the call of the function, at a steady rate of puts, in another process."""
    ours, theirs = SPAWN.Pipe()
    worker = SPAWN.Process(target=_serve, args=(config, theirs), daemon=True)
    worker.start()
    assert ours.recv() == "serving"
    with Datastore.open(config) as store:
        put_at = at_a_steady_rate(store, seconds)
        ours.send(len(put_at))
        called_at: dict[UUID, float] = ours.recv()
    worker.join()
    return percentile("delivery p99 at 500 puts/s (ms)", [called_at[key] - at for key, at in put_at.items()], 50.0)


def at_a_steady_rate(store: Datastore, seconds: float) -> dict[UUID, float]:
    """Put cells at 500 a second; when each was acknowledged, by the clock that processes share."""
    acknowledged = {}
    started = time.monotonic()
    for number in range(int(seconds * PUTS_PER_SECOND)):
        pause = started + number / PUTS_PER_SECOND - time.monotonic()
        if pause > 0:
            time.sleep(pause)
        row_key = uuid4()
        store.put_cell(row_key, "BASE", 1, body_of(number))
        acknowledged[row_key] = time.monotonic()
    return acknowledged


def percentile(name: str, durations: list[float], limit: float) -> Comparison:
    """The 99th percentile in milliseconds against a limit; the spread is that of the median and the maximum."""
    ordered = sorted(durations)
    p99 = ordered[int(len(ordered) * 0.99)] * 1e3
    middle, longest = statistics.median(ordered) * 1e3 / limit, ordered[-1] * 1e3 / limit
    return Comparison(name, p99, limit, p99 / limit, (middle, longest), unit="ms", bound=("<=", 1.0))


def _serve(config: Config, channel: Connection) -> None:
    called_at: dict[UUID, float] = {}

    @trigger(column="BASE", start="now", name="latency")
    def noted(row_key: UUID) -> None:
        called_at.setdefault(row_key, time.monotonic())

    with Datastore.open(config) as store:
        worker = store.triggers.worker([noted])
        with running(worker):
            _wait(lambda: store.triggers.status("latency")[0].unserved == 0)
            time.sleep(3.0)  # the leases are heard of at the next beat
            channel.send("serving")
            expected = channel.recv()
            _wait(lambda: len(called_at) >= expected)
            channel.send(called_at)


def _wait(is_so: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < give_up_at
        time.sleep(0.05)
