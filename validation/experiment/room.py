"""`Room`: how much memory one process keeps for answers that wait for their comparison, all together.

The queue of the shadow is bounded in samples, and one answer of a query may be as large as thousands of cells.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque

from tripstore.engines.validation.experiment.answers import QueryAnswer

BYTES_MAX = 64 * 1024**2


class Room:
    """Threads share it."""

    def __init__(self, bytes_max: float = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._taken = 0
        #: What was given back. An answer may end on any thread, in the midst of anything: it must not wait for a lock.
        self._back: deque[int] = deque()
        self.after_fork()

    def after_fork(self) -> None:
        """A lock that another thread of the parent held would never be released here."""
        self._lock = threading.Lock()

    def takes(self, answer: QueryAnswer) -> bool:
        """Whether there is room, which the answer has until it is gone. One that is alone always has."""
        with self._lock:
            while self._back:
                self._taken -= self._back.popleft()
            if self._taken and self._taken + answer.weight > self._bytes_max:
                return False
            self._taken += answer.weight
        weakref.finalize(answer, self._back.append, answer.weight).atexit = False
        return True
