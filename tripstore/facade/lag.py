"""`Lag`: what the mirror has not got yet, as this process knows it: how far behind it is, and which rows it wrote.

The mirror is looked at every now and then; what is known is old by that much, and is not believed when it is older.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

#: What is known is believed so long. A process that was stopped knows nothing any more.
BELIEVED_SECONDS = 0.5
#: Rows that are remembered; with more of them every read goes to the authority.
ROWS_MAX = 10_000


class Lag:
    """One for all stores of a process."""

    def __init__(self, max_lag_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_lag_seconds = max_lag_seconds
        self._clock = clock
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        #: When each row was written last.
        self._rows: dict[Any, float] = {}
        self._has_dropped = False
        self._is_watched = False
        self._seconds = math.inf
        self._known_at = -math.inf

    def after_fork(self) -> None:
        self._begin()

    def watch(self, *, is_watched: bool) -> None:
        """Whether anybody asks `allows`: only then rows are remembered."""
        with self._lock:
            if is_watched and not self._is_watched:
                self._known_at = -math.inf  # what was written until now is not remembered: look first
            self._is_watched = is_watched
            if not is_watched:
                self._rows.clear()
                self._has_dropped = False

    def forget(self) -> None:
        """The mirror is another one now."""
        with self._lock:
            self._seconds, self._known_at = math.inf, -math.inf

    def wrote(self, row_keys: Iterable[Any]) -> None:
        """This process has written, or may have."""
        if not self._is_watched:
            return
        now = self._clock()
        with self._lock:
            for row_key in row_keys:
                if len(self._rows) >= ROWS_MAX and row_key not in self._rows:
                    self._has_dropped = True
                    return
                self._rows[row_key] = now

    def pending(self) -> dict[Any, float]:
        """Rows that were written and not seen to have arrived."""
        with self._lock:
            return dict(self._rows)

    def looked(self, begun_at: float, seconds: float, pending: Mapping[Any, float], missing: Collection[Any]) -> None:
        """The mirror was looked at: it is so far behind, and of the pending rows it lacks these."""
        with self._lock:
            for row_key, written_at in pending.items():
                if row_key not in missing and self._rows.get(row_key) == written_at and written_at < begun_at:
                    del self._rows[row_key]
            if self._has_dropped and not self._rows:
                self._has_dropped = False
            self._seconds, self._known_at = seconds, begun_at

    def allows(self, rows: Collection[Any]) -> bool:
        """Whether the mirror may answer: it is close, and has what this process wrote of these rows; () is any row."""
        if self._has_dropped or self._seconds > self._max_lag_seconds:
            return False
        if self._clock() - self._known_at > BELIEVED_SECONDS:
            return False
        if not rows:
            return not self._rows
        return all(row not in self._rows for row in rows)
