"""A child of a fleet: how its life begins, and that it ends with its parent."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait

from schemaless_core.process.seat import SIGNALS, Seat, heard_signals

logger = logging.getLogger(__name__)

#: How long work may take to end before its process is killed; more than what a worker grants its functions.
FINISH_SECONDS = 45.0

Work = Callable[[Seat], None]


@contextmanager
def held_signals() -> Iterator[None]:
    """Signals wait: a child that is being born is to meet them when it knows what they mean."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def sit(work: Work, number: int, parent: Connection | int) -> None:
    """A child's life. `parent` breaks with the parent. Ctrl-C reaches a child too, but the parent decides."""
    seat = Seat(number)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with heard_signals(seat.end, seat.end, [signal.SIGTERM]):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        threading.Thread(target=_end_with_parent, args=(seat, parent), name="parent", daemon=True).start()
        work(seat)


def _end_with_parent(seat: Seat, parent: Connection | int) -> None:
    wait([parent])
    logger.warning("the parent process died: ending", extra={"event": "fleet.parent_died", "worker": seat.name})
    seat.end()
    time.sleep(FINISH_SECONDS)  # a time limit: the process ends here unless it has ended by itself
    os._exit(1)  # a function that never returns would keep an orphan for ever
