"""A worker in a thread of the test's own process: any, or that of `tripstore triggers run`."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from schemaless_core.triggers.worker import Worker
from tripstore.cli.worker.duty import Opened, ServedTriggers


@contextmanager
def serving(stores: Opened, module: str) -> Iterator[None]:
    with ServedTriggers(module)(stores, "a worker", 1) as worker, running(worker):
        yield


@contextmanager
def running(worker: Worker) -> Iterator[None]:
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield
    finally:
        worker.stop()
        thread.join(60)
