"""What the charts show: numbers taken from what the sections saw anyway, of the last while."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from tripstore.cli.console.sections import JobsView, ServersSection
from tripstore.cli.status.migration import MigrationView

#: Half an hour at two seconds.
POINTS_MAX = 900


class ChartPoint(msgspec.Struct, frozen=True, array_like=True):
    """Seconds since 1970, and the number."""

    at: float
    value: float


class ConsoleChart(msgspec.Struct):
    """One line. A chart of a rate takes the difference of two counts."""

    name: str
    title: str
    unit: str
    section: str
    number: Callable[[Any], float | None]
    is_rate: bool = False
    points: deque[ChartPoint] = msgspec.field(default_factory=lambda: deque(maxlen=POINTS_MAX))
    _last: ChartPoint | None = None

    def take(self, document: Any, at: datetime) -> ChartPoint | None:
        """Add what a section saw; None: it says nothing of this chart."""
        number = self.number(document)
        if number is None:
            self._last = None
            return None
        found = ChartPoint(at.timestamp(), float(number))
        if self.is_rate:
            before, self._last = self._last, found
            # A count that fell is another count: a shard's owner changed, or a day passed out of those counted.
            if before is None or found.at <= before.at or found.value < before.value:
                return None
            found = ChartPoint(found.at, (found.value - before.value) / (found.at - before.at))
        self.points.append(found)
        return found


class ChartDocument(msgspec.Struct, frozen=True):
    """A chart as the page draws it."""

    name: str
    title: str
    unit: str
    #: It is as old as that.
    section: str
    points: list[ChartPoint]


class Charts:
    """All of them, fed by the sections."""

    def __init__(self) -> None:
        self._charts = [
            ConsoleChart("forward", "Mirror is behind", "s", "mirror", _forward_seconds),
            ConsoleChart("queue", "Changes that wait for the mirror", "", "mirror", _forward_changes),
            ConsoleChart("reverse", "Reverse mirror is behind", "s", "mirror", _reverse_seconds),
            ConsoleChart("compared", "Comparisons", "/s", "mirror", _compared, is_rate=True),
            ConsoleChart("cells", "Cells written", "/s", "servers", _cells, is_rate=True),
            ConsoleChart("rows", "Rows of jobs", "/s", "jobs", _rows),
        ]

    def take(self, section: str, document: Any, at: datetime) -> dict[str, ChartPoint]:
        """Add what a section saw; returns the new points by the name of their chart."""
        found = {each.name: each.take(document, at) for each in self._charts if each.section == section}
        return {name: point for name, point in found.items() if point is not None}

    def documents(self) -> list[ChartDocument]:
        """Those that have points."""
        return [
            ChartDocument(each.name, each.title, each.unit, each.section, list(each.points)) for each in self._charts
        ]


def _forward_seconds(seen: MigrationView) -> float | None:
    return None if seen.forward is None or seen.direction != "forward" else seen.forward.seconds


def _forward_changes(seen: MigrationView) -> float | None:
    return None if seen.forward is None or seen.direction != "forward" else seen.forward.changes


def _reverse_seconds(seen: MigrationView) -> float | None:
    return None if seen.reverse is None or seen.direction is None else seen.reverse.seconds


def _compared(seen: MigrationView) -> float | None:
    return None if seen.trouble else sum(each.compared for each in seen.compared)


def _cells(section: ServersSection) -> float | None:
    """Only of all shards: a server that comes back brings no new cells."""
    return section.seen.cells if section.seen.cells_of_shards == section.shards else None


def _rows(seen: JobsView) -> float:
    return sum(each.rate for each in seen.telling if each.job.state == "running")
