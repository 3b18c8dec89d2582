"""From what was counted to what the report says of it: coverage, rates over time, latency, lag. Pure: asks nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from schemaless_core.control.ledgers.timings import Timed, Timing
from tripstore.engines.validation.confidence import upper_bound
from tripstore.engines.validation.reads import is_comparable
from tripstore.engines.validation.report.document import LagHour, Operation, RateHour, RateSeries, ReportLatency
from tripstore.engines.validation.shadow.ledger import OperationCounts
from tripstore.facade.latency import CALL, LAG, calls_of
from tripstore.migration.cutover.sufficiency import Sampled, missing_of_all
from tripstore.thresholds import CutoverSettings


def operations(
    counted: Sequence[OperationCounts], timings: Mapping[Timed, Timing], settings: CutoverSettings
) -> list[Operation]:
    """Every operation class that was compared or called: those that were never compared, too."""
    calls = calls_of(timings)
    known = {each.operation: each for each in counted}
    names = sorted(known.keys() | calls.keys(), key=lambda name: (not is_comparable(name), name))
    found = [known.get(name) or OperationCounts(name) for name in names]
    lacking = missing_of_all([sampled(each, calls[each.operation]) for each in found], settings)
    return [
        _operation(each, calls[each.operation], more, settings, can_be_compared=is_comparable(each.operation))
        for each, more in zip(found, lacking, strict=True)
    ]


def sampled(found: OperationCounts, calls: int | None) -> Sampled:
    """What the counts say of what was sampled."""
    return Sampled(
        found.operation,
        found.compared,
        found.mismatches,
        found.not_compared,
        found.by_reason,
        found.ignored,
        calls,
    )


def sampled_query(found: OperationCounts, calls: int) -> Sampled:
    """The same of an experiment."""
    return sampled(found, calls)._replace(is_query=True)


def evidence(found: OperationCounts, calls: int, lacking: int, settings: CutoverSettings) -> Operation:
    """Of what can be compared."""
    return _operation(found, calls, lacking, settings, can_be_compared=True)


def _operation(
    found: OperationCounts, calls: int, lacking: int, settings: CutoverSettings, *, can_be_compared: bool
) -> Operation:
    mismatches, compared = found.mismatches, found.compared
    return Operation(
        name=found.operation,
        calls=calls,
        is_comparable=can_be_compared,
        compared=compared,
        equal=found.equal,
        in_flight=found.in_flight,
        ignored=found.ignored,
        mismatches=mismatches,
        by_class=dict(found.by_class),
        not_compared=found.not_compared,
        by_reason=dict(found.by_reason),
        rate_below=upper_bound(mismatches, compared, settings.confidence),
        missing=lacking if can_be_compared else 0,
    )


def rates(hours: Mapping[datetime, Sequence[OperationCounts]], confidence: float) -> list[RateSeries]:
    """Per operation class, each hour's counts and the bound over all until then."""
    compared, mismatches = Counter[str](), Counter[str]()
    found: dict[str, list[RateHour]] = {}
    for hour, counted in hours.items():
        for each in counted:
            if not each.compared:
                continue
            name = each.operation
            compared[name] += each.compared
            mismatches[name] += each.mismatches
            bound = upper_bound(mismatches[name], compared[name], confidence)
            point = RateHour(hour=hour, compared=each.compared, mismatches=each.mismatches, rate_below=bound)
            found.setdefault(name, []).append(point)
    return [RateSeries(operation=name, hours=found[name]) for name in sorted(found)]


def latency(timings: Mapping[Timed, Timing]) -> list[ReportLatency]:
    return list(_latency(timings))


def lag(hours: Mapping[datetime, Mapping[Timed, Timing]]) -> list[LagHour]:
    return list(_lag(hours))


def _latency(timings: Mapping[Timed, Timing]) -> Iterator[ReportLatency]:
    for timed, timing in timings.items():
        if timed[0] != CALL:
            continue
        _call, name, backend, asked_by = timed
        yield ReportLatency(
            operation=name,
            backend=backend,
            asked_by=asked_by,
            answered=timing.answered,
            unanswered=timing.unanswered,
            p50_seconds=timing.quantile(0.5),
            p99_seconds=timing.quantile(0.99),
        )


def _lag(hours: Mapping[datetime, Mapping[Timed, Timing]]) -> Iterator[LagHour]:
    for hour, timings in hours.items():
        for timed, timing in timings.items():
            p50, p99 = timing.quantile(0.5), timing.quantile(0.99)
            if timed[0] == LAG and p50 is not None and p99 is not None:
                yield LagHour(direction=timed[1], hour=hour, looks=timing.answered, p50_seconds=p50, p99_seconds=p99)
