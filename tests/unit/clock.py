"""A clock that stands still until a test moves it."""

from __future__ import annotations


class FakeClock:
    """Monotonic seconds; called like `time.monotonic`."""

    def __init__(self, seconds: float = 1_000.0) -> None:
        self._seconds = seconds

    def __call__(self) -> float:
        return self._seconds

    def advance(self, seconds: float) -> None:
        # Rounded, so that 0.999 and 0.001 make the second that a test means.
        self._seconds = round(self._seconds + seconds, 6)
