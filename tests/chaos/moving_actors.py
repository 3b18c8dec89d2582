"""A mover in a process of its own, and services that put, read and ask an index while shards move."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch
from uuid import uuid4

from schemaless_core import Cell, Datastore
from schemaless_core.deadline import Deadline
from schemaless_core.errors import ControlUnavailable, SchemalessError
from schemaless_core.failpoints import use_folder
from schemaless_core.moves.mover import Mover
from schemaless_core.moves.orders import MoveOrder
from schemaless_core.moves.runner import ShardOrder
from schemaless_core.moves.steps import Moved, MoveStopped
from tests.forking import FORK_SERVER
from tripstore.local.proxy import Proxy

DRIVERS = [f"driver {n}" for n in range(5)]
HOLD_SECONDS = 5.0
#: Between two puts of one service.
PAUSE_SECONDS = 0.02
#: For how long the control database is away, and there between.
AWAY_SECONDS, THERE_SECONDS = 0.3, (0.5, 2.0)


class Put(NamedTuple):
    """A put of a service, by the clock of this process."""

    shard: int
    begun: float
    ended: float

    @property
    def seconds(self) -> float:
        return self.ended - self.begun


class Flip(NamedTuple):
    """A time for which a shard took no writes."""

    shard: int
    begun: float
    ended: float
    #: Whether a mover died in it: the shard was closed until the next one came.
    is_of_killed: bool = False

    def met(self, put: Put) -> bool:
        return put.shard == self.shard and put.begun < self.ended and put.ended > self.begun


def move_until_killed(config: Mapping[str, Any], failpoints: str, shard: int, to: str) -> None:
    """The armed failpoint ends the process, or the move is done."""
    use_folder(Path(failpoints))
    with Datastore.open(config) as store:
        move(store, shard, to)


def move(store: Datastore, shard: int, to: str, died_at: float | None = None) -> list[Flip]:
    """Go on with a move until it is done; when its shard was closed meanwhile.

    `died_at`: a mover died then, and left the shard closed.
    """
    mover = store.moves().mover(ShardOrder(shard, to), MoveOrder((shard,), to, HOLD_SECONDS))
    flips = list[Flip]()
    open_now = mover._patience.open

    def note(begun: float | None, *, is_of_killed: bool = False) -> None:
        if begun is not None:
            flips.append(Flip(shard, begun, time.monotonic(), is_of_killed))

    def opened() -> None:
        nonlocal died_at
        note(mover._patience.closed_at if died_at is None else died_at, is_of_killed=died_at is not None)
        died_at = None
        open_now()

    with patch.object(mover._patience, "open", opened):
        while not isinstance(tried(mover), Moved):
            pass
    note(died_at, is_of_killed=True)
    return flips


def tried(mover: Mover) -> Moved | MoveStopped | None:
    """None: the control database is away, for a moment."""
    try:
        return mover.run(lambda step: None)
    except ControlUnavailable:
        time.sleep(PAUSE_SECONDS)  # as a worker waits between two tries
        return None


def is_closed(store: Datastore, shard: int) -> bool:
    """Whether no cluster takes writes to it."""
    found = store._router.ask_all(lambda node: node.heads([shard], Deadline(10.0)))
    heads = [each for each in found.values() if not isinstance(each, SchemalessError)]
    return not any(each[shard].state.status in ("RW", "COPY") for each in heads if shard in each)


def killed_mover(config: Mapping[str, Any], failpoints: Path, shard: int, to: str) -> int | None:
    """How the process of a mover ended."""
    process = FORK_SERVER.Process(target=move_until_killed, args=(config, str(failpoints), shard, to), daemon=True)
    process.start()
    process.join(60)
    return process.exitcode


@contextmanager
def dying(proxy: Proxy) -> Iterator[None]:
    """The control database is away again and again."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(random.uniform(*THERE_SECONDS)):
            proxy.refuse()
            ended.wait(AWAY_SECONDS)
            proxy.heal()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        proxy.heal()


class Services:
    """Threads of one process; what befalls a call ends its thread, and is raised at the end."""

    def __init__(self, store: Datastore) -> None:
        self.store = store
        self.acknowledged: list[Cell] = []
        self.puts: list[Put] = []
        self.reads = 0
        self._ended = threading.Event()
        self._failures: list[BaseException] = []

    @contextmanager
    def at_work(self, *, writers: int) -> Iterator[None]:
        works = [*(self._write for _ in range(writers)), self._read]
        threads = [threading.Thread(target=self._run, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._ended.set()
            for thread in threads:
                thread.join(60)
        if self._failures:
            raise self._failures[0]

    def _run(self, work: Callable[[], None]) -> None:
        try:
            while not self._ended.wait(PAUSE_SECONDS):
                work()
        except BaseException as error:  # noqa: BLE001  # raised in the test's own thread
            self._failures.append(error)

    def _write(self) -> None:
        row = uuid4()
        for ref_key in (1, 2):
            cell = Cell(row, "BASE", ref_key, {"driver": random.choice(DRIVERS), "n": ref_key})
            begun = time.monotonic()
            self.store.put_cell(*cell.key, cell.body)
            self.puts.append(Put(self.store.shard_of(row), begun, time.monotonic()))
            self.acknowledged.append(cell)

    def _read(self) -> None:
        if self.acknowledged:
            cell = random.choice(self.acknowledged)
            found = self.store.using(include_buffered=True).get_cell(*cell.key)
            assert found == cell, f"{cell.key} was acknowledged, and is not read"
            self.store.query_index("trips_of_driver", random.choice(DRIVERS), limit=20)
            self.reads += 1


def percentile(pauses: Sequence[float], share: float) -> float:
    if not pauses:
        return 0.0
    return sorted(pauses)[min(len(pauses) - 1, int(share * len(pauses)))]
