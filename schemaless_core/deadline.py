"""The moment by which a call must have answered."""

from __future__ import annotations

import time
from collections.abc import Callable


class InAll(float):
    """Seconds for a call in all: waiting for a free connection counts, too. For what a caller can do without."""


class Deadline:
    """Counts down from the moment it is made."""

    __slots__ = ("_at", "_clock", "is_in_all")

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._at = clock() + seconds
        self.is_in_all = isinstance(seconds, InAll)

    def remaining_seconds(self) -> float:
        """Seconds left; negative once it has passed."""
        return self._at - self._clock()

    def left(self) -> float:
        """What is left, for a call that is a part of this one."""
        return InAll(self.remaining_seconds()) if self.is_in_all else self.remaining_seconds()

    def patience(self, seconds: float) -> float:
        """For how long the call may wait for what it need not answer for."""
        return min(seconds, max(self.remaining_seconds(), 0.0)) if self.is_in_all else seconds

    def extend(self, seconds: float) -> None:
        """Stop the clock for what the caller need not answer for."""
        if not self.is_in_all:
            self._at += seconds

    @property
    def is_over(self) -> bool:
        return self._clock() >= self._at
