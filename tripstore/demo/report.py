"""What the demo found: steps with their figures, checks, and the sums. Said while it happens, and kept for JSON."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

Say = Callable[[str], None]


class Promise(msgspec.Struct, frozen=True):
    """Something that must be true."""

    name: str
    is_fine: bool
    detail: str


class StoryStep(msgspec.Struct):
    """One step: what a person would type, how long it took, what it showed."""

    number: int
    title: str
    command: str
    lines: list[str] = msgspec.field(default_factory=list)
    checks: list[Promise] = msgspec.field(default_factory=list)
    seconds: float = 0.0

    def say(self, line: str) -> None:
        self.lines.append(line)

    def check(self, name: str, is_fine: bool, detail: str) -> None:
        self.checks.append(Promise(name, is_fine, detail))


class StorySums(msgspec.Struct, frozen=True):
    """The counts that are compared at the end."""

    acknowledged: int
    stored: int
    missing: int
    different: int


class DemoReport(msgspec.Struct, frozen=True):
    """The JSON document of the demo."""

    engine: str
    is_fine: bool
    seconds: float
    shards: int
    sums: StorySums
    steps: list[StoryStep]
    folder: str | None
    """Where a kept playground is."""


class Narrator:
    """Numbers the steps, measures them, and says each when it is over."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._started = time.perf_counter()
        self.steps: list[StoryStep] = []

    @contextmanager
    def step(self, title: str, command: str) -> Iterator[StoryStep]:
        step = StoryStep(len(self.steps) + 1, title, command)
        self.steps.append(step)
        self._say(f"{step.number}. {title}")
        self._say(f"   $ {command}")
        started = time.perf_counter()
        try:
            yield step
        finally:
            step.seconds = round(time.perf_counter() - started, 3)
            for line in step.lines:
                self._say(f"   {line}")
            for check in step.checks:
                self._say(f"   {'ok' if check.is_fine else 'WRONG'}: {check.name} ({check.detail})")
            self._say(f"   {step.seconds:.1f} s")

    @property
    def seconds(self) -> float:
        return round(time.perf_counter() - self._started, 3)

    @property
    def is_fine(self) -> bool:
        return all(check.is_fine for step in self.steps for check in step.checks)
