"""Workers in threads of the test's own process, and triggers that write down what they were called for."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from schemaless_core import Cell, CellKey, Datastore
from schemaless_core.triggers.registry import Start, Trigger, trigger
from schemaless_core.triggers.worker import Worker
from tests.chaos.actors import wait_until

#: A test must not wait for leases to run out as long as production does.
QUICK = {"lease_seconds": 0.9, "checkpoint_seconds": 0.02, "first_pause_seconds": 0.005, "retry_seconds": 0.3}


class Notebook:
    """What a trigger was called for, in order; and what it is to fail for."""

    def __init__(self) -> None:
        self.cells: list[Cell] = []
        self.failing: Callable[[Cell], bool] = lambda _cell: False
        self._lock = threading.Lock()

    def note(self, cell: Cell) -> None:
        if self.failing(cell):
            raise ValueError("the notebook refuses this cell")
        with self._lock:
            self.cells.append(cell)

    @property
    def keys(self) -> list[CellKey]:
        return [CellKey(*cell.key) for cell in self.cells]

    def of_shards(self, store: Datastore) -> dict[int, list[int]]:
        """The added ids that were delivered, per shard, in order."""
        found = defaultdict[int, list[int]](list)
        for cell in self.cells:
            found[store.shard_of(cell.row_key)].append(cell.added_id or 0)
        return dict(found)


def noting(
    notebook: Notebook, *, column: str = "BASE", start: Start | None = "beginning", name: str = "noted", **options: Any
) -> Trigger:
    """A trigger that writes into a notebook."""

    @trigger(column=column, start=start, name=name, **options)
    def note(cell: Cell) -> None:
        notebook.note(cell)

    return note


@contextmanager
def working(
    store: Datastore,
    triggers: Sequence[Trigger],
    *,
    workers: int = 1,
    threads: int = 1,
    read: Literal["primary", "replica"] = "primary",
) -> Iterator[list[Worker]]:
    """Workers until the end of the block; what one raises is raised there."""
    made = [store.triggers.worker(triggers, threads=threads, read=read) for _ in range(workers)]
    failures: list[BaseException] = []

    def run(worker: Worker) -> None:
        try:
            worker.run()
        except BaseException as error:  # noqa: BLE001  # raised in the test's own thread below
            failures.append(error)

    running = [threading.Thread(target=run, args=(worker,)) for worker in made]
    for thread in running:
        thread.start()
    try:
        yield made
    finally:
        for worker in made:
            worker.stop()
        for thread in running:
            thread.join(60)
    assert not any(thread.is_alive() for thread in running)
    if failures:
        raise failures[0]


def wait_until_caught_up(store: Datastore, group: str, seconds: float = 60) -> None:
    """Until every shard's offset has reached its head."""

    def is_so() -> bool:
        (status,) = store.triggers.status(group)
        return status.lag_cells == 0 and status.unknown == 0

    try:
        wait_until(f"{group} has caught up", is_so, seconds)
    except AssertionError as late:
        lagging = [shard for shard in store.triggers.status(group)[0].shards if shard.lag_cells != 0]
        raise AssertionError(f"{late}: {lagging}") from late


def quick(**options: Any) -> Mapping[str, Any]:
    """The triggers section of a configuration for tests."""
    return QUICK | options
