"""`Waiting`: work that pauses now and then, and leaves it to its caller how the time is spent."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import TypeVar

T = TypeVar("T")

#: Yields how many seconds it wants to pass before it goes on; returns its result.
Waiting = Generator[float, None, T]


def waited(work: Waiting[T], sleep: Callable[[float], object] = time.sleep) -> T:
    """Do it in this thread, and sleep in its pauses."""
    while True:
        try:
            sleep(next(work))
        except StopIteration as ended:
            result: T = ended.value
            return result
