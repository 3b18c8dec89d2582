"""`CopyThrottle`: how fast a log is copied: by what the target's replicas and the source's callers bear."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

logger = logging.getLogger(__name__)

#: A rest that is longer is interrupted so often.
HEAR_SECONDS = 1.0
#: Between two questions to the replicas.
ASK_SECONDS = 1.0
#: While replicas are further behind, nothing is copied.
LAG_SECONDS_MAX = 2.0
#: A page that takes the source so many times as long as its fastest one says that the source has other work.
SLOW_FACTOR = 4.0
#: Of pages that have so many cells.
CELLS_MEASURED = 500
#: Such a source has rest, for each second that it reads.
REST_PER_SECOND = 3.0
REST_SECONDS_MAX = 1.0


@dataclass
class CopyThrottle:
    """Of one copier. `lag_seconds`: how far the target's replicas are behind; None: they do not say."""

    lag_seconds: Callable[[], float | None]
    cells_per_second: float | None = None
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], object] = time.sleep
    #: Is told while it rests; may end the copy by raising.
    hear: Callable[[], object] = lambda: None
    _asked_at: float = float("-inf")
    _fastest: float = field(default=float("inf"))

    def rest(self, cells: int, read_seconds: float, seconds: float) -> None:
        """After a page of so many cells, which took `read_seconds` to read and `seconds` in all."""
        self._rest(max(0.0, self._for_rate(cells, seconds), self._for_source(cells, read_seconds)))
        self._for_replicas()

    def _rest(self, seconds: float) -> None:
        """Short enough at a time that a worker which is to end does so."""
        while seconds > HEAR_SECONDS:
            self.hear()
            self.sleep(HEAR_SECONDS)
            seconds -= HEAR_SECONDS
        self.sleep(seconds)

    def _for_rate(self, cells: int, seconds: float) -> float:
        return 0.0 if self.cells_per_second is None else cells / self.cells_per_second - seconds

    def _for_source(self, cells: int, read_seconds: float) -> float:
        if cells < CELLS_MEASURED:
            return 0.0  # a page that is nearly empty takes as long as its round trip
        per_cell = read_seconds / cells
        self._fastest = min(self._fastest, per_cell)
        is_slow = per_cell > SLOW_FACTOR * self._fastest
        return min(REST_PER_SECOND * read_seconds, REST_SECONDS_MAX) if is_slow else 0.0

    def _for_replicas(self) -> None:
        while self.clock() - self._asked_at >= ASK_SECONDS:
            self._asked_at = self.clock()
            lag = self.lag_seconds()
            if lag is None or lag <= LAG_SECONDS_MAX:
                return
            extra = {"event": "logcopy.waits", "seconds": lag}
            logger.info("replicas of the target are behind", extra=extra)
            self.hear()
            self.sleep(ASK_SECONDS)
