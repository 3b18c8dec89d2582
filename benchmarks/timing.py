"""How two ways of doing the same are compared on a noisy machine: in alternating blocks, by medians, as a ratio."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Comparison:
    """One line of the table."""

    name: str
    ours: float
    theirs: float
    #: Median over the pairs of blocks of ours / theirs.
    ratio: float
    spread: tuple[float, float]
    unit: str = "µs"
    #: What the ratio must keep to: ("<=", 1.25); None: only printed.
    bound: tuple[str, float] | None = None

    @property
    def is_kept(self) -> bool | None:
        if self.bound is None:
            return None
        sign, limit = self.bound
        return self.ratio <= limit if sign == "<=" else self.ratio >= limit


def block_p50(call: Callable[[], object], calls: int, pause_seconds: float = 0.0) -> float:
    """The median duration of a call in one block, in microseconds; of the pause before it nothing counts."""
    durations = []
    # What a benchmark keeps ready would be walked by every collection inside the clock.
    gc.collect()
    gc.freeze()
    for _ in range(calls):
        if pause_seconds:
            time.sleep(pause_seconds)  # a caller that has other work as well
        started = time.perf_counter()
        call()
        durations.append(time.perf_counter() - started)
    return statistics.median(durations) * 1e6


def paired(
    name: str,
    ours: Sequence[float],
    theirs: Sequence[float],
    *,
    unit: str = "µs",
    bound: tuple[str, float] | None = None,
    invert: bool = False,
) -> Comparison:
    """Medians over blocks, and of their ratios pair by pair; `invert` turns times into speeds."""
    ratios = [b / a if invert else a / b for a, b in zip(ours, theirs, strict=True)]
    middle = statistics.median
    return Comparison(name, middle(ours), middle(theirs), middle(ratios), (min(ratios), max(ratios)), unit, bound)


def compare(
    name: str,
    ours: Callable[[], object],
    theirs: Callable[[], object],
    *,
    calls: int,
    pairs: int,
    bound: tuple[str, float] | None = None,
    invert: bool = False,
    pause_seconds: float = 0.0,
) -> Comparison:
    """Alternate blocks of both and compare pair by pair."""
    for call in (ours, theirs):
        block_p50(call, max(3, calls // 5), pause_seconds)  # warm
    a: list[float] = []
    b: list[float] = []
    for pair in range(pairs):
        # Who goes first changes, so that neither always profits from the other's caches.
        first, second = ((ours, a), (theirs, b)) if pair % 2 else ((theirs, b), (ours, a))
        for call, figures in (first, second):
            figures.append(block_p50(call, calls, pause_seconds))
    return paired(name, a, b, bound=bound, invert=invert)


def middle_of(measure: Callable[[], Comparison], runs: int = 3) -> Comparison:
    """The middle one of several runs: a percentile of one run says how the disk did in its worst moment."""
    return sorted((measure() for _ in range(runs)), key=lambda each: each.ratio)[runs // 2]
