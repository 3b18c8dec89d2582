"""`Lane`: calls of one kind, of which only so many are with the threads at once. First come, first served."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from threading import Lock
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class ThreadCall(Future[T], Generic[T]):
    """A call that a thread will make, unless it is cancelled before."""

    def __init__(self, call: Callable[[], T]) -> None:
        super().__init__()
        self._call = call

    def make(self) -> None:
        if not self.set_running_or_notify_cancel():
            return
        try:
            self.set_result(self._call())
        except BaseException as error:  # noqa: BLE001  # it is raised where the answer is awaited
            self.set_exception(error)


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
