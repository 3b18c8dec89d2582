"""`ConsolePace`: how much rarer looks are than usual, so that a console beside a large datastore takes little of it.

A look at thousands of shards costs what it costs. What the whole process has computed is measured, and the time between
two looks grows until that is a small share of a core.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

#: Of a core; page loads and commands come on top.
SHARE_MAX = 0.015
#: The process is judged by so long a time.
WINDOW_SECONDS = 30.0
STRETCH_MAX = 20.0


class ConsolePace:
    """One for all sections of a console."""

    def __init__(
        self, processor: Callable[[], float] = time.process_time, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._processor = processor
        self._clock = clock
        self._lock = threading.Lock()
        self._stretch = 1.0
        self._begin()

    @property
    def stretch(self) -> float:
        """The factor of the time between two looks; 1 is the usual one."""
        with self._lock:
            seconds = self._clock() - self._since
            if seconds >= WINDOW_SECONDS:
                share = (self._processor() - self._computed) / seconds
                # What looks take falls as the time between them grows.
                self._stretch = min(max(self._stretch * share / SHARE_MAX, 1.0), STRETCH_MAX)
                self._begin()
            return self._stretch

    def _begin(self) -> None:
        self._since, self._computed = self._clock(), self._processor()
