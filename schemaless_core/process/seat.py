"""`Seat`: a process's place in a fleet, and how the work in it hears that it is to end."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from queue import SimpleQueue
from uuid import uuid4

#: What asks a process to end: a service manager or `kill`, and Ctrl-C.
SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Seat:
    """The place of one process: its number from 0, and a name that no other process ever has."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.name = f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:8]}"
        self._lock = threading.Lock()
        self._is_over = False
        self._calls: list[Callable[[], None]] = []

    def at_end(self, call: Callable[[], None]) -> None:
        """Have something called when the work is to end; at once when it is to end already."""
        with self._lock:
            if not self._is_over:
                self._calls.append(call)
                return
        call()

    @property
    def is_over(self) -> bool:
        """Whether the work was asked to end."""
        return self._is_over

    def end(self) -> None:
        """Ask the work to end. Asking again changes nothing."""
        with self._lock:
            calls, self._calls, self._is_over = self._calls, [], True
        for call in calls:
            call()


@contextmanager
def heard_signals(
    first: Callable[[], None], further: Callable[[], None], numbers: Sequence[signal.Signals] = SIGNALS
) -> Iterator[None]:
    """Call `first` at the first signal and `further` at each that follows, on a thread of its own.

    A handler runs in the middle of anything, also where the main thread holds a lock, so it must not wait for one.
    """
    heard: SimpleQueue[int | None] = SimpleQueue()
    before = {number: signal.signal(number, lambda got, _frame: heard.put(got)) for number in numbers}
    thread = threading.Thread(target=_obey, args=(heard, first, further), name="signals", daemon=True)
    thread.start()
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        heard.put(None)
        thread.join()


def _obey(heard: SimpleQueue[int | None], first: Callable[[], None], further: Callable[[], None]) -> None:
    obey = first
    while heard.get() is not None:
        obey()
        obey = further
