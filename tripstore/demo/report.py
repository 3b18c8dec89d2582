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
    #: How fast something was is measured, and never wrong.
    is_of_speed: bool = False

    @property
    def is_wrong(self) -> bool:
        return not self.is_fine and not self.is_of_speed

    @property
    def is_slow(self) -> bool:
        return not self.is_fine and self.is_of_speed

    @property
    def verdict(self) -> str:
        return "WRONG" if self.is_wrong else "slow" if self.is_slow else "ok"


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

    def measure(self, name: str, is_met: bool, detail: str) -> None:
        """What depends on how much else the machine does."""
        self.checks.append(Promise(name, is_met, detail, is_of_speed=True))


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
                self._say(f"   {check.verdict}: {check.name} ({check.detail})")
            self._say(f"   {step.seconds:.1f} s")

    @property
    def seconds(self) -> float:
        return round(time.perf_counter() - self._started, 3)

    @property
    def is_fine(self) -> bool:
        return not any(check.is_wrong for step in self.steps for check in step.checks)
