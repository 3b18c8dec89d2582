"""A mover in a process of its own, and services that put, read and ask an index while shards move."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from schemaless_core import Cell, Datastore
from schemaless_core.failpoints import use_folder
from schemaless_core.moves.moves import MoveOrder
from schemaless_core.moves.runner import ShardOrder
from schemaless_core.moves.steps import Moved
from tests.forking import FORK_SERVER

DRIVERS = [f"driver {n}" for n in range(5)]
HOLD_SECONDS = 5.0
#: Between two puts of one service.
PAUSE_SECONDS = 0.02


def move_until_killed(config: Mapping[str, Any], failpoints: str, shard: int, to: str) -> None:
    """The armed failpoint ends the process, or the move is done."""
    use_folder(Path(failpoints))
    with Datastore.open(config) as store:
        move(store, shard, to)


def move(store: Datastore, shard: int, to: str) -> float:
    """Go on with a move until it is done; for how long its shard was closed."""
    mover = store.moves().mover(ShardOrder(shard, to), MoveOrder((shard,), to, HOLD_SECONDS))
    while not isinstance(mover.run(lambda step: None), Moved):
        pass
    return mover.seconds_closed


def killed_mover(config: Mapping[str, Any], failpoints: Path, shard: int, to: str) -> int | None:
    """How the process of a mover ended."""
    process = FORK_SERVER.Process(target=move_until_killed, args=(config, str(failpoints), shard, to), daemon=True)
    process.start()
    process.join(60)
    return process.exitcode


class Services:
    """Threads of one process; what befalls a call ends its thread, and is raised at the end."""

    def __init__(self, store: Datastore) -> None:
        self.store = store
        self.acknowledged: list[Cell] = []
        self.pauses: list[float] = []
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
            self.pauses.append(time.monotonic() - begun)
            self.acknowledged.append(cell)

    def _read(self) -> None:
        if self.acknowledged:
            cell = random.choice(self.acknowledged)
            found = self.store.using(include_buffered=True).get_cell(*cell.key)
            assert found == cell, f"{cell.key} was acknowledged, and is not read"
            self.store.query_index("trips_of_driver", random.choice(DRIVERS), limit=20)
            self.reads += 1


def percentile(pauses: Sequence[float], share: float) -> float:
    return sorted(pauses)[min(len(pauses) - 1, int(share * len(pauses)))]
