"""`StepTurns`: when a worker of a diff may go on, so that services are spared."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol


class StepGivenUp(Exception):
    """The step at hand is to end undone: the worker stops, or its job does. Never leaves the runner."""


class Attended(NamedTuple):
    """A worker, as it is asked and told while it waits."""

    #: Whether it is not to go on: it was stopped, its job does not run any more, or another worker has its part.
    is_ended: Callable[[], bool]
    #: Its rate; why it waits, and by which limit.
    tell: Callable[[float, str | None, str | None], object]
    #: So many seconds, or until it is stopped.
    rest: Callable[[float], object]


class StepTurns(Protocol):
    """Of one worker."""

    def attend(self, worker: Attended) -> None:
        """From now on this worker is asked and told."""
        ...

    def wait(self) -> None:
        """Until a step may begin. Raises `StepGivenUp` when the worker is not to go on."""
        ...

    def stepped(self, rows_per_second: float) -> None:
        """A step is saved."""
        ...

    def close(self) -> None:
        """Let go of what it looks with."""
        ...


class NoTurns:
    """It goes on at once, and tells its rate."""

    def __init__(self) -> None:
        self._worker: Attended | None = None

    def attend(self, worker: Attended) -> None:
        self._worker = worker

    def wait(self) -> None:
        pass

    def stepped(self, rows_per_second: float) -> None:
        if self._worker is not None:
            self._worker.tell(rows_per_second, None, None)

    def close(self) -> None:
        pass
