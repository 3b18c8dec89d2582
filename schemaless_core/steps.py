"""`Step`: one thing that is done in one go. A procedure is a generator that yields each step before it does it.

Between two yields there is one call of a port and nothing else that others could see. So whatever happens to a
process happens at a yield: tests put their accidents there, and the explorer tries every order.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import NamedTuple, TypeVar

from schemaless_core.failpoints import reach

T = TypeVar("T")


class Step(NamedTuple):
    """What is done next."""

    #: Also that of its failpoint.
    name: str
    #: For the plan and the log.
    sentence: str
    #: How long to wait before it is done once more.
    pause_seconds: float = 0


Steps = Generator[Step, None, T]


def run(steps: Steps[T], hear: Callable[[Step], None] | None = None, sleep: Callable[[float], None] = time.sleep) -> T:
    """Do all the steps. `hear` is told of each before it is done, and may end the run by raising."""
    waited_for: set[Step] = set()
    while True:
        try:
            step = next(steps)
        except StopIteration as end:
            answer: T = end.value
            return answer
        if step.pause_seconds:
            if step in waited_for:
                sleep(step.pause_seconds)
            waited_for.add(step)
        if hear is not None:
            hear(step)
        reach(step.name)
