"""A worker of `tripstore triggers run` in a thread of the test's own process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tripstore.cli.worker.duty import Opened, ServedTriggers


@contextmanager
def serving(stores: Opened, module: str) -> Iterator[None]:
    with ServedTriggers(module)(stores, "a worker", 1) as worker:
        running = threading.Thread(target=worker.run)
        running.start()
        try:
            yield
        finally:
            worker.stop()
            running.join(60)
