"""`ClosedTime`: how long a shard may take no writes, and how long a move waits while it does take them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from schemaless_core.cell.standing import ShardStatus
from schemaless_core.deadline import Deadline, InAll

#: What may be waited for, or done, of the time for which the shard may be closed: the last cells take the rest.
PRACTICE_SHARE = 0.6
#: How long it waits for replicas while nothing waits for it.
WAIT_SECONDS = 60.0


@dataclass
class ClosedTime:
    """Of one move: a `ClosedTimePort`."""

    hold_seconds: float
    clock: Callable[[], float] = time.monotonic
    waits_seconds: float = WAIT_SECONDS
    #: None: the shard takes writes.
    closed_at: float | None = None
    #: Whether the shard has gone: then what opens it is waited for, however long it takes.
    is_decided: bool = False
    _waits_since: float | None = None
    #: How long it took none, the last time.
    seconds_closed: float = 0.0

    @property
    def is_closed(self) -> bool:
        return self.closed_at is not None

    def close(self) -> None:
        self.closed_at = self.closed_at or self.clock()
        self._waits_since = None

    def open(self) -> None:
        if self.closed_at is not None:
            self.seconds_closed = self.clock() - self.closed_at
        self.closed_at = self._waits_since = None
        self.is_decided = False

    def deadline(self, seconds: float) -> Deadline:
        """For a call that a closed shard waits for: as long as it may be closed it may stay, and no longer."""
        if self.closed_at is None or self.is_decided:
            return Deadline(seconds, self.clock)
        left = self.closed_at + self.hold_seconds - self.clock()
        return Deadline(InAll(min(seconds, max(left, 0.0))), self.clock)

    def saw(self, state: str) -> None:
        """Hear what the row of the shard says. RO is not heard: a promotion has it, and callers wait still."""
        if state == ShardStatus.GOING.value:
            self.close()
        elif state in (ShardStatus.RW.value, ShardStatus.COPY.value):
            self.open()

    def was_quick(self) -> bool:
        now, since, self._waits_since = self.clock(), self._waits_since, None
        return since is None or now - since <= PRACTICE_SHARE * self.hold_seconds

    def is_over(self) -> bool:
        now = self.clock()
        if self.closed_at is not None:
            return now - self.closed_at > self.hold_seconds
        self._waits_since = self._waits_since or now
        if now - self._waits_since <= self.waits_seconds:
            return False
        self._waits_since = None  # the next try has as long again
        return True
