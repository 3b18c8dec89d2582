"""`Speed`: rows per second of late, of one worker."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

#: Of this time the rate is told.
SECONDS = 10.0


class Speed:
    """Pauses count: it is the speed of the whole, not of a chunk."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._begun_at = clock()
        self._chunks: deque[tuple[float, int]] = deque()
        self._rows = 0

    def copied(self, rows: int) -> None:
        self._chunks.append((self._clock(), rows))
        self._rows += rows

    def per_second(self) -> float:
        now = self._clock()
        while self._chunks and self._chunks[0][0] < now - SECONDS:
            self._rows -= self._chunks.popleft()[1]
        seconds = min(SECONDS, now - self._begun_at)
        return self._rows / seconds if seconds > 0 else 0.0
