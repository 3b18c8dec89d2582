"""Worker processes whose triggers write down, in files that outlive kill -9, what they were called for."""

from __future__ import annotations

import os
import signal
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from uuid import UUID

from schemaless_core import Cell, CellStore, Datastore
from schemaless_core.errors import ControlUnavailable
from schemaless_core.failpoints import use_folder
from schemaless_core.triggers.registry import Trigger, trigger
from schemaless_core.triggers.worker import Worker
from tests.forking import FORK_SERVER

GROUP = "counted"


@dataclass(frozen=True, slots=True)
class Delivery:
    """One call of a trigger's function."""

    shard: int
    added_id: int
    #: Of the one clock that all processes of this machine share.
    seconds: float
    pid: int


def serve(config: Mapping[str, Any], folder: str, failpoints: str | None = None) -> None:
    """A worker process: notes each delivery; ends gracefully on SIGTERM."""
    if failpoints is not None:
        use_folder(Path(failpoints))
    path = Path(folder) / f"delivered-{os.getpid()}"
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with Datastore.open(config) as store:

        @trigger(column="BASE", start="beginning", name=GROUP)
        def counted(cell: Cell) -> None:
            line = f"{store.shard_of(cell.row_key)} {cell.added_id} {time.monotonic()}\n"
            os.write(file, line.encode())

        worker = _worker_of(store, counted)
        signal.signal(signal.SIGTERM, lambda *_: worker.stop())
        worker.run()


def bill(config: Mapping[str, Any], failpoints: str) -> None:
    """A worker process with a transactional trigger that appends one version per call."""
    use_folder(Path(failpoints))
    with Datastore.open(config) as store:

        @trigger(column="BASE", start="beginning", name="billing", transactional=True)
        def billing(row_key: UUID, store: CellStore) -> None:
            store.append_cell(row_key, "STATUS", {"by": os.getpid()})

        worker = _worker_of(store, billing)
        signal.signal(signal.SIGTERM, lambda *_: worker.stop())
        worker.run()


def _worker_of(store: Datastore, served: Trigger) -> Worker:
    """Begun again for as long as the control database is down, as a supervisor of workers does."""
    while True:
        try:
            return store.triggers.worker([served])
        except ControlUnavailable:
            time.sleep(0.1)  # between two attempts


def server(config: Mapping[str, Any], folder: Path, failpoints: Path | None = None) -> BaseProcess:
    arguments = (config, str(folder), None if failpoints is None else str(failpoints))
    return FORK_SERVER.Process(target=serve, args=arguments, daemon=True)


def deliveries(folder: Path) -> Iterator[Delivery]:
    """Whatever was noted so far, in no order between processes."""
    for path in folder.glob("delivered-*"):
        pid = int(path.name.removeprefix("delivered-"))
        for line in path.read_text().splitlines():
            words = line.split()
            if len(words) == 3:  # the last may be half written
                yield Delivery(int(words[0]), int(words[1]), float(words[2]), pid)


def first_deliveries(folder: Path) -> dict[int, dict[int, float]]:
    """When each cell of each shard was delivered first."""
    firsts = defaultdict[int, dict[int, float]](dict)
    for delivery in deliveries(folder):
        of_shard = firsts[delivery.shard]
        of_shard[delivery.added_id] = min(delivery.seconds, of_shard.get(delivery.added_id, delivery.seconds))
    return dict(firsts)
