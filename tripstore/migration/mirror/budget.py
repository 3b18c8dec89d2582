"""`RehearsalBudget`: how much of what the mirror was given is compared with what Postgres has."""

from __future__ import annotations

from collections.abc import Callable

#: Compared by one process in a second. It asks the store that is to be relieved, and has compared what the gate wants
#: within a few.
CELLS_PER_SECOND = 50


class RehearsalBudget:
    """Of one process."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._cells = float(CELLS_PER_SECOND)
        self._at = clock()

    @property
    def has_some(self) -> bool:
        now = self._clock()
        self._cells = min(self._cells + (now - self._at) * CELLS_PER_SECOND, CELLS_PER_SECOND)
        self._at = now
        return self._cells > 0

    def charge(self, cells: int) -> None:
        """May be more than there is: then nothing is left for some time."""
        self._cells -= cells
