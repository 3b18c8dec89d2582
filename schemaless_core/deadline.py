"""The moment by which a call must have answered."""

from __future__ import annotations

import time
from collections.abc import Callable


class Deadline:
    """Counts down from the moment it is made."""

    __slots__ = ("_at", "_clock")

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._at = clock() + seconds

    def remaining_seconds(self) -> float:
        """Seconds left; negative once it has passed."""
        return self._at - self._clock()

    def extend(self, seconds: float) -> None:
        """Stop the clock for what the caller need not answer for."""
        self._at += seconds

    @property
    def is_over(self) -> bool:
        return self._clock() >= self._at
