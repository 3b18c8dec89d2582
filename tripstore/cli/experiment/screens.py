"""What is known of experiments, on a screen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.text import Text

from tripstore.cli.compared import compared_cells, compared_headings
from tripstore.cli.experiment.documents import (
    CodeUsesView,
    ExperimentStatusDocument,
    ExperimentStatusView,
    ExperimentView,
    TimedView,
)
from tripstore.cli.tables import table

NONE_YET = "No experiment is known: docs/howto/experiments.md shows how a service makes one."
#: Places that are listed of one code base.
_PLACES_MAX = 10


def list_screen(found: Sequence[ExperimentView], uses: Sequence[CodeUsesView]) -> Iterator[RenderableType]:
    if found:
        rows = [
            (each.name, answering(each), _compared(each), f"{each.seen:%Y-%m-%d %H:00}" if each.seen else "not lately")
            for each in found
        ]
        yield table(("experiment", "answered by", "compared", "a process had it"), rows)
    else:
        yield Text(NONE_YET, style="yellow")
    yield from uses_screen(uses)


def status_screen(document: ExperimentStatusDocument) -> Iterator[RenderableType]:
    if not document.experiments:
        yield Text(NONE_YET, style="yellow")
        yield from uses_screen(document.uses)
        return
    headings = "experiment", "answered by", "calls", *compared_headings(document.confidence)
    yield table(headings, [_row(each) for each in document.experiments])
    yield Text(f"wanted: a rate below {100 * document.rate_wanted:.4g} % of each experiment", style="dim")
    yield Text()
    timed = (
        "experiment",
        "left to the control",
        "control p50 / p99",
        "candidate p50 / p99",
        "beside callers p50 / p99",
    )
    yield table(timed, [_timed_row(each) for each in document.experiments])
    if document.mismatches:
        yield Text()
        rows = [(str(each.at)[:19], each.operation, each.kind, each.entry, each.path) for each in document.mismatches]
        yield table(("mismatch", "experiment", "class", "entry", "path"), rows)
    yield from uses_screen(document.uses)


def answering(found: ExperimentView) -> str:
    if found.percent <= 0:
        return "control"
    return "candidate" if found.percent >= 100 else f"candidate, {found.percent:g} % of callers"


def _compared(found: ExperimentView) -> str:
    if found.is_retired:
        return "retired"
    return "yes" if found.is_compared else "no"


def _row(each: ExperimentStatusView) -> tuple[str | Text, ...]:
    known = each.experiment
    cells = compared_cells(each.evidence, is_retired=known.is_retired)
    return known.name, answering(known), f"{each.calls:,}", *cells


def _timed_row(each: ExperimentStatusView) -> tuple[str, ...]:
    left = f"{each.calls_by_control:,} of {each.calls:,} calls"
    return each.experiment.name, left, *map(_quantiles, (each.control, each.candidate, each.candidate_beside))


def _quantiles(found: TimedView) -> str:
    if found.p50_seconds is None or found.p99_seconds is None:
        return "–"
    failed = f", {found.failed:,} failed" if found.failed else ""
    return f"{1000 * found.p50_seconds:.3g} / {1000 * found.p99_seconds:.3g} ms{failed}"


def uses_screen(uses: Sequence[CodeUsesView]) -> Iterator[RenderableType]:
    for each in uses:
        yield Text()
        said = f"{each.code}: {each.uses:,} uses remain, {len(each.unnamed):,} of them without a reason"
        yield Text(said, style="yellow" if each.unnamed or not each.is_complete else "green")
        if not each.is_complete:
            yield Text("  the audit could not read or tell everything", style="yellow")
        for place in each.unnamed[:_PLACES_MAX]:
            yield Text(f"  {place}")
        if len(each.unnamed) > _PLACES_MAX:
            yield Text(f"  and {len(each.unnamed) - _PLACES_MAX:,} more")
        for reason in each.acknowledged:
            yield Text(f"  {reason.pattern}: {reason.why}", style="dim")
