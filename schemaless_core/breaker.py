"""The circuit breaker of one server.

CLOSED -> OPEN        after `failures` failures in a row: calls fail at once instead of waiting for time-outs.
OPEN -> HALF_OPEN     after a pause: exactly one call goes through as a probe.
HALF_OPEN -> CLOSED   the probe succeeded; -> OPEN when it failed, with a longer pause.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum


class BreakerState(Enum):
    """How a server is treated."""

    CLOSED = "closed"  #: Calls go through.
    OPEN = "open"  #: Calls fail at once.
    HALF_OPEN = "half_open"  #: One probe is under way, other calls fail at once.


@dataclass(frozen=True, slots=True)
class BreakerConfig:
    """When a breaker opens, and how long it stays so."""

    failures: int = 3  #: Failures in a row that open it.
    pause_seconds: float = 0.5  #: The first pause before a probe.
    pause_seconds_max: float = 10.0  #: Pauses double up to this.


class Breaker:
    """Counts the failures of one server; safe to use from many threads. `moved` hears whether it is open."""

    def __init__(
        self,
        config: BreakerConfig,
        clock: Callable[[], float] = time.monotonic,
        moved: Callable[[bool], None] = lambda is_open: None,
    ) -> None:
        self._config = config
        self._clock = clock
        self._moved = moved
        self._lock = threading.Lock()
        self._failures = 0
        #: How many of them say that no server was there, which a call of another kind can disprove.
        self._absences = 0
        self._pause = config.pause_seconds
        self._probe_at = 0.0
        self._state = BreakerState.CLOSED

    @property
    def state(self) -> BreakerState:
        return self._state

    @property
    def is_due(self) -> bool:
        """Whether the next call would go through."""
        return self._state is BreakerState.CLOSED or self._clock() >= self._probe_at

    def admits(self) -> bool:
        """Say whether a call may go through; a probe is admitted once per pause."""
        if self._state is BreakerState.CLOSED:
            return True
        with self._lock:
            now = self._clock()
            if now < self._probe_at:
                return False
            # A probe whose caller died is replaced after one more pause.
            self._state, self._probe_at = BreakerState.HALF_OPEN, now + self._pause
            return True

    def succeeded(self, *, beside: Breaker | None = None) -> None:
        """A call was answered, whatever the answer. `beside`: of the server's calls of the other kind."""
        if beside is not None:
            beside.present()
        if self._failures == 0 and self._state is BreakerState.CLOSED:
            return
        with self._lock:
            self._failures, self._absences, self._pause = 0, 0, self._config.pause_seconds
            self._state = BreakerState.CLOSED
            self._moved(False)

    def present(self) -> None:
        """A call of another kind was answered: the server is there. What it refused of this kind still counts."""
        if not self._absences:
            return
        if self._absences >= self._failures:
            self.succeeded()
            return
        with self._lock:
            self._failures, self._absences = self._failures - self._absences, 0

    def failed(self, *, is_absent: bool = False) -> None:
        """A call was not answered, or refused by a server that cannot do it now."""
        with self._lock:
            self._failures += 1
            self._absences += is_absent
            if self._state is BreakerState.HALF_OPEN:
                self._pause = min(self._pause * 2, self._config.pause_seconds_max)
                self._open()
            elif self._failures >= self._config.failures:
                self._open()

    def trip(self) -> None:
        """Open at once: a caller made sure that the server does not answer."""
        with self._lock:
            self._failures = self._absences = max(self._failures, self._config.failures)
            if self._state is BreakerState.HALF_OPEN:
                self._pause = min(self._pause * 2, self._config.pause_seconds_max)
            self._open()

    def after_fork(self) -> None:
        """A lock that another thread of the parent held would never be released here."""
        self._lock = threading.Lock()

    def _open(self) -> None:
        self._state = BreakerState.OPEN
        self._probe_at = self._clock() + self._pause
        self._moved(True)
