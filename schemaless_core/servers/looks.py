"""`SharedLook`: asks one source on a thread of its own, once for all waiting threads; each waits only as long as
it likes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class SharedLook:
    """A source that may be silent. What it answers goes where its function puts it."""

    def __init__(self, name: str, ask: Callable[[], object], changed: threading.Condition) -> None:
        self.name = name
        #: What the latest look failed with; None after one that answered.
        self.failure: Exception | None = None
        self._ask = ask
        self._changed = changed
        self._asked = 0
        self._answered = 0
        self._is_running = False

    def request(self) -> int:
        """Ask for a look that begins after this moment; the caller holds the condition's lock."""
        self._asked += 1
        if not self._is_running:
            threading.Thread(target=self._run, name=f"schemaless-look-{self.name}", daemon=True).start()
            self._is_running = True  # only now: without a thread the next request tries again
        return self._asked

    def request_alone(self) -> None:
        """Ask without waiting for the answer, unless the source is being asked already."""
        with self._changed:
            if not self._is_running:
                self.request()

    @property
    def is_silent(self) -> bool:
        """Whether it was asked and has not answered."""
        return self._answered < self._asked

    def is_answered(self, request: int) -> bool:
        """Whether a look that began after this request has ended, well or badly."""
        return self._answered >= request

    def _run(self) -> None:
        while True:
            with self._changed:
                request = self._asked
            failure: Exception | None = None
            try:
                self._ask()
            except Exception as error:  # noqa: BLE001  # raised in the threads that wait
                failure = error
            with self._changed:
                self.failure, self._answered = failure, request
                self._changed.notify_all()
                if self._asked == request:
                    self._is_running = False
                    return
