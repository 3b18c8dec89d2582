"""Runs one call per cluster at the same time. Threads start at first need and are bounded; a fork starts anew."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class FanOut:
    """A small pool of threads for calls that span clusters."""

    def __init__(self, threads: int) -> None:
        self._threads = max(1, threads)
        self._lock = threading.Lock()
        self._executor: ThreadPoolExecutor | None = None

    def run(self, calls: Mapping[K, Callable[[], T]]) -> dict[K, T]:
        """Run the calls and return their answers; a single call runs on the caller's own thread."""
        if len(calls) <= 1:
            return {key: call() for key, call in calls.items()}
        first, *others = calls
        executor = self._started()
        futures = {key: executor.submit(copy_context().run, calls[key]) for key in others}
        answers = {first: calls[first]()}
        return answers | {key: future.result() for key, future in futures.items()}

    def after_fork(self) -> None:
        """The parent's threads are the parent's."""
        self._lock = threading.Lock()
        self._executor = None

    def close(self) -> None:
        with self._lock:
            if self._executor is not None:
                self._executor.shutdown()
            self._executor = None

    def _started(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(self._threads, thread_name_prefix="schemaless-fanout")
            return self._executor
