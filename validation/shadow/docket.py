"""`Docket`: cases that one thread hears in turn. While one waits for its next hearing, others are heard."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Generic, TypeVar

Case = TypeVar("Case")


class Docket(Generic[Case]):
    """Of so many cases at most. Belongs to one thread."""

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        self._numbers = count()
        #: The one that is due first is the first.
        self._cases: list[tuple[float, int, Case]] = []

    def __len__(self) -> int:
        return len(self._cases)

    @property
    def is_full(self) -> bool:
        return len(self._cases) >= self._most

    @property
    def seconds_left(self) -> float | None:
        """Until a case is due; None: there is none."""
        return max(0.0, self._cases[0][0] - self._clock()) if self._cases else None

    def adjourn(self, case: Case, seconds: float) -> None:
        """Hear it in so long."""
        heapq.heappush(self._cases, (self._clock() + seconds, next(self._numbers), case))

    def due(self) -> Iterator[Case]:
        """Take those that are to be heard now, the longest due first. What is adjourned meanwhile waits."""
        now = self._clock()
        ready = []
        while self._cases and self._cases[0][0] <= now:
            ready.append(heapq.heappop(self._cases)[2])
        yield from ready

    def dismiss(self) -> Iterator[Case]:
        """Take all."""
        while self._cases:
            yield heapq.heappop(self._cases)[2]
