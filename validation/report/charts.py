"""Charts as geometry: where lines, marks and labels are. How they look is the page's business. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

from tripstore.engines.validation.report import words
from tripstore.engines.validation.report.document import LagHour, RateSeries, ReportLatency, ReportLimits

WIDTH, HEIGHT = 360, 176
#: The plot within it.
LEFT, RIGHT, TOP, BOTTOM = 56, 350, 14, 148
HOUR = timedelta(hours=1)
_TICKS_MAX = 5


class Tick(NamedTuple):
    """A labelled place on an axis."""

    at: float
    label: str


class Line(NamedTuple):
    """A series as an SVG path; `kind` says how it is drawn."""

    kind: str
    path: str


class ChartMark(NamedTuple):
    """Something that happened at a moment."""

    x: float
    text: str


class Chart(NamedTuple):
    """A quantity over time, on a logarithmic scale."""

    title: str
    #: The same in one sentence, for readers who do not see it.
    summary: str
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    lines: list[Line]
    marks: list[ChartMark]
    limit: Tick | None
    #: Where the main line ends, and with which value.
    end_x: float
    end_y: float
    end_label: str


class Span(NamedTuple):
    """From the median to the 99th percentile of one backend, in per cent of the width."""

    backend: str
    place: int
    p50: float
    p99: float
    text: str


class LatencyRow(NamedTuple):
    """An operation class, both backends below each other."""

    operation: str
    spans: list[Span]


class LatencyChart(NamedTuple):
    """On a logarithmic scale, in per cent of the width."""

    ticks: list[Tick]
    rows: list[LatencyRow]


class Scale(NamedTuple):
    """A logarithmic scale over whole powers of ten."""

    low: int
    high: int
    begin: float
    end: float

    def at(self, value: float) -> float:
        power = math.log10(value) if value > 0 else self.low
        share = (min(max(power, self.low), self.high) - self.low) / (self.high - self.low)
        return round(self.begin + share * (self.end - self.begin), 2)

    def powers(self) -> Iterator[int]:
        step = max(1, math.ceil((self.high - self.low) / _TICKS_MAX))
        yield from range(self.high, self.low - 1, -step)


def scale_of(values: Iterable[float], begin: float, end: float) -> Scale:
    """One that holds all of them."""
    powers = [math.log10(value) for value in values if value > 0]
    low = math.floor(min(powers, default=0))
    return Scale(low, max(math.ceil(max(powers, default=0)), low + 1), begin, end)


class Time(NamedTuple):
    """The time axis."""

    since: datetime
    until: datetime

    def at(self, moment: datetime) -> float:
        span = max((self.until - self.since).total_seconds(), 1.0)
        share = (moment - self.since).total_seconds() / span
        return round(LEFT + min(max(share, 0.0), 1.0) * (RIGHT - LEFT), 2)

    def ticks(self) -> list[Tick]:
        hours = (self.until - self.since) / HOUR
        step = next(step for step in (1, 3, 6, 12, 24, 48, 96, 168, 24 * 365) if hours / step <= _TICKS_MAX)
        first = self.since.replace(hour=0, minute=0, second=0, microsecond=0)
        moments = (first + n * step * HOUR for n in range(int(hours / step) + 26))
        say = words.day if step >= 24 else lambda at: f"{at:%H:%M}"
        return [Tick(self.at(each), say(each)) for each in moments if self.since <= each <= self.until][
            : _TICKS_MAX + 1
        ]


def rate_chart(series: RateSeries, limits: ReportLimits, time: Time) -> Chart:
    """How the bound of a mismatch rate fell, with the hours in which something differed."""
    hours, last = series.hours, series.hours[-1]
    scale = scale_of([*(each.rate_below for each in hours), limits.mismatch_rate_max / 5, 1.0], BOTTOM, TOP)
    bad = [each for each in hours if each.mismatches]
    mismatches = sum(each.mismatches for each in hours)
    bound, limit = words.percent(last.rate_below), words.percent(limits.mismatch_rate_max)
    found = f"{words.plural(mismatches, 'mismatch', 'mismatches')} in {words.plural(len(bad), 'hour')}"
    points = [(time.at(each.hour + HOUR), scale.at(each.rate_below)) for each in hours]
    return Chart(
        title=series.operation,
        summary=f"The mismatch rate of {series.operation} is below {bound}; the limit is {limit}. {found}.",
        x_ticks=time.ticks(),
        y_ticks=[Tick(scale.at(10.0**power), words.percent(10.0**power)) for power in scale.powers()],
        lines=[Line("main", _path(points))],
        marks=[
            ChartMark(time.at(each.hour + HOUR / 2), _mismatches(each.hour, each.mismatches, each.compared))
            for each in bad
        ],
        limit=Tick(scale.at(limits.mismatch_rate_max), f"limit {limit}"),
        end_x=points[-1][0],
        end_y=points[-1][1],
        end_label=f"below {bound}",
    )


def lag_chart(direction: str, hours: Sequence[LagHour], limits: ReportLimits, time: Time) -> Chart:
    """Median and 99th percentile of the mirror's lag."""
    values = [value for each in hours for value in (each.p50_seconds, each.p99_seconds)]
    scale = scale_of([*values, limits.lag_seconds_max], BOTTOM, TOP)
    last = hours[-1]
    worst = max(hours, key=lambda each: each.p99_seconds)
    runs = list(_runs(hours))
    end_y = scale.at(last.p99_seconds)
    return Chart(
        title=direction,
        summary=(
            f"Lag of the mirror, {direction}: 99 % of the looks in the last hour below"
            f" {words.duration(last.p99_seconds)}, half below {words.duration(last.p50_seconds)}; the worst hour was"
            f" {words.short_moment(worst.hour)} with {words.duration(worst.p99_seconds)}."
        ),
        x_ticks=time.ticks(),
        y_ticks=[Tick(scale.at(10.0**power), words.duration(10.0**power)) for power in scale.powers()],
        lines=[
            Line(
                kind,
                " ".join(_path([(_middle(time, each), scale.at(getattr(each, name))) for each in run]) for run in runs),
            )
            for kind, name in (("main", "p99_seconds"), ("second", "p50_seconds"))
        ],
        marks=[],
        limit=Tick(scale.at(limits.lag_seconds_max), f"limit {words.duration(limits.lag_seconds_max)}"),
        end_x=_middle(time, last),
        end_y=end_y,
        end_label=f"p99 {words.duration(last.p99_seconds)}",
    )


def latency_chart(latency: Sequence[ReportLatency], backends: Sequence[str]) -> LatencyChart:
    """Both backends side by side: what callers waited, and where no caller asked, what shadow reads took."""
    chosen = {
        (each.operation, each.backend): each for each in sorted(latency, key=lambda each: each.asked_by, reverse=True)
    }
    shown = {key: each for key, each in chosen.items() if each.p50_seconds is not None and each.p99_seconds is not None}
    scale = scale_of(
        (value for each in shown.values() for value in (each.p50_seconds or 0, each.p99_seconds or 0)), 2, 98
    )
    rows = []
    for name in sorted({operation for operation, _backend in shown}):
        spans = [
            _span(shown[name, backend], place, scale)
            for place, backend in enumerate(backends)
            if (name, backend) in shown
        ]
        rows.append(LatencyRow(name, spans))
    ticks = [Tick(scale.at(10.0**power), words.duration(10.0**power)) for power in range(scale.low, scale.high + 1)]
    return LatencyChart(ticks, rows)


def _span(found: ReportLatency, place: int, scale: Scale) -> Span:
    p50, p99 = found.p50_seconds or 0.0, found.p99_seconds or 0.0
    text = f"{found.backend}: median {words.duration(p50)}, 99th percentile {words.duration(p99)}"
    return Span(found.backend, place, scale.at(p50), scale.at(p99), text)


def _mismatches(hour: datetime, mismatches: int, compared: int) -> str:
    return (
        f"{words.short_moment(hour)}: {words.plural(mismatches, 'mismatch', 'mismatches')} in {words.count(compared)}"
    )


def _middle(time: Time, hour: LagHour) -> float:
    return time.at(hour.hour + HOUR / 2)


def _runs(hours: Sequence[LagHour]) -> Iterator[list[LagHour]]:
    """Hours that follow each other: an hour without a look has no line."""
    run: list[LagHour] = list(hours[:1])
    for before, after in pairwise(hours):
        if after.hour - before.hour > HOUR:
            yield run
            run = []
        run.append(after)
    yield run


def _path(points: Sequence[tuple[float, float]]) -> str:
    """A line through points; one alone is a short one, so that it can be seen."""
    if len(points) == 1:
        (x, y) = points[0]
        return f"M{x - 3:g} {y:g}H{x + 3:g}"
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in points)
