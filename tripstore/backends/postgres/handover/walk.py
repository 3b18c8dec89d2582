"""`QueueWalk`: where in the queue a claim begins to look.

What was delivered stays in table and index until a vacuum, which every old snapshot of the company's holds up: a claim
that begins at the oldest change walks over all of it. So most begin where the last one found something. Ids are given
before commits, and what was claimed by others comes back: now and then one begins at the beginning.
"""

from __future__ import annotations

import time
from collections.abc import Callable

#: So much later a change is carried whose transaction was open while this many others changed something.
WHOLE_SECONDS = 0.5
NEAR_IDS = 5_000
#: Walks from the beginning take no more than this share of the time.
SHARE = 0.05


class QueueWalk:
    """Threads share it: what one of them has found, the others need not look for."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._first = 0
        self._whole_at = 0.0

    def begin(self) -> int:
        """The lowest id to look at."""
        return 0 if self._clock() >= self._whole_at else self._first

    def found(self, began: int, first: int | None, last: int, seconds: float) -> None:
        """The lowest id that was claimed, the last one that was given to a change, and how long the walk took."""
        self._first = last - NEAR_IDS if first is None else min(first, last - NEAR_IDS)
        if not began:
            self._whole_at = self._clock() + max(WHOLE_SECONDS, seconds / SHARE)
