"""`Lane`: calls of one kind, of which only so many are with the threads at once. First come, first served."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class ThreadCall(Generic[T]):
    """A call that a thread will make, unless it is cancelled before. `done` hears of its answer, or of its error.

    A `Future` of `concurrent.futures` can be waited for by threads, and costs more for it: here none waits.
    """

    __slots__ = ("_done", "_waiting", "is_cancelled")

    def __init__(self, call: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        self._waiting = [call]  # to take it out is one step: the thread does it, or the one that cancels
        self._done = done
        self.is_cancelled = False

    def make(self) -> None:
        try:
            call = self._waiting.pop()
        except IndexError:
            return
        try:
            answer = call()
        except BaseException as error:  # noqa: BLE001  # it is raised where the answer is awaited
            self._done(None, error)
        else:
            self._done(answer, None)

    def cancel(self) -> bool:
        """Return whether it was never begun, and never will be."""
        try:
            self._waiting.pop()
        except IndexError:
            return self.is_cancelled
        self.is_cancelled = True
        return True


class Lane:
    """Hands its calls to the threads, one for each place that is free."""

    def __init__(self, places: int, submit: Callable[[Callable[[], None]], object]) -> None:
        self._free = places
        self._submit = submit
        self._waiting: deque[ThreadCall[Any]] = deque()
        self._lock = Lock()

    def add(self, call: ThreadCall[Any]) -> None:
        self._waiting.append(call)
        self._begin()

    def _begin(self) -> None:
        """Give a free place to the first call that waits."""
        with self._lock:
            if not self._free or not self._waiting:
                return
            self._free -= 1
            call = self._waiting.popleft()
        self._submit(lambda: self._make(call))

    def _make(self, call: ThreadCall[Any]) -> None:
        """On a thread. The place goes on to the next call after this one: the other lane's calls have their turn."""
        try:
            call.make()
        finally:
            with self._lock:
                self._free += 1
            self._begin()
