"""`Growth`: what one subject takes at several sizes, as a table of Markdown."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

#: Of a call that is timed one by one.
CALLS = 300


@dataclass
class Growth:
    """Figures by what they say; each has one value per size."""

    subject: str
    #: What the sizes count.
    unit: str
    sizes: Sequence[int]
    _rows: dict[str, list[float]] = field(default_factory=dict)

    def note(self, name: str, value: float) -> None:
        """One size after the other."""
        self._rows.setdefault(name, []).append(value)

    def lines(self) -> Iterator[str]:
        """The last column: how many times as much the largest size takes as the smallest."""
        factor = self.sizes[-1] / self.sizes[0]
        yield f"### {self.subject}"
        yield ""
        yield f"| {self.unit} | {' | '.join(f'{size:,}' for size in self.sizes)} | × {factor:,.0f} |"
        yield f"|---|{'---:|' * len(self.sizes)}---:|"
        for name, values in self._rows.items():
            grown = f"× {values[-1] / values[0]:.1f}" if values[0] else "–"
            yield f"| {name} | {' | '.join(map(_rounded, values))} | {grown} |"


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def p50_ms(call: Callable[[], object], calls: int = CALLS) -> float:
    """The middle of many calls, behind some that warm."""
    for _ in range(calls // 10):
        call()
    return statistics.median(_timed(call) for _ in range(calls)) * 1e3


def seconds_of(call: Callable[[], object]) -> float:
    """Of a call that is made once."""
    return _timed(call)


def _timed(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started
