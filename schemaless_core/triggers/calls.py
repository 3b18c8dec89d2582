"""`RunningCalls`: which functions of a worker run now, and since when: for a thread that can see one that does not
return.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from schemaless_core.cell.cell import Cell


@dataclass(frozen=True, slots=True)
class Call:
    """A function at work for these cells of one shard."""

    group: str
    cells: Sequence[Cell]
    began_at: float
    #: None: it may take as long as it takes.
    allowed_seconds: float | None


class RunningCalls:
    """The calls of one worker, one per thread at most."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._running: dict[int, Call] = {}

    def begin(self, group: str, cells: Sequence[Cell], allowed_seconds: float | None) -> None:
        """A function is called by this thread."""
        self._running[threading.get_ident()] = Call(group, cells, self._clock(), allowed_seconds)

    def end(self) -> None:
        """It returned, or raised."""
        self._running.pop(threading.get_ident(), None)

    def ages(self) -> dict[str, float]:
        """How long the oldest call of each group has gone on, in seconds."""
        now, ages = self._clock(), dict[str, float]()
        for call in list(self._running.values()):
            ages[call.group] = max(ages.get(call.group, 0.0), now - call.began_at)
        return ages

    def overdue(self) -> list[Call]:
        """The calls that have taken longer than they may."""
        now = self._clock()
        running = list(self._running.values())
        return [call for call in running if call.allowed_seconds and now - call.began_at > call.allowed_seconds]
