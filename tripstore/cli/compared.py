"""`ComparedCounts`: what was compared of an operation class or an experiment, as a document and on a screen."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from rich.text import Text

from tripstore.engines.validation.confidence import upper_bound
from tripstore.engines.validation.shadow.ledger import OperationCounts
from tripstore.migration.cutover.sufficiency import Sampled, missing_of_all
from tripstore.thresholds import CutoverSettings


class ComparedCounts(msgspec.Struct, frozen=True):
    """By its name. `rate_below` is the upper end of its mismatch rate; `missing` comparisons are too few."""

    operation: str
    compared: int
    equal: int
    in_flight: int
    ignored: int
    mismatches: int
    by_class: dict[str, int]
    not_compared: int
    by_reason: dict[str, int]
    rate_below: float
    missing: int


def compared_documents(
    found: Iterable[tuple[OperationCounts, Sampled]], settings: CutoverSettings
) -> list[ComparedCounts]:
    """Of all of them: what is rare is judged beside the others."""
    pairs = list(found)
    lacking = missing_of_all([sampled for _counts, sampled in pairs], settings)
    return [compared_document(counts, more, settings) for (counts, _), more in zip(pairs, lacking, strict=True)]


def compared_document(found: OperationCounts, lacking: int, settings: CutoverSettings) -> ComparedCounts:
    return ComparedCounts(
        found.operation,
        found.compared,
        found.equal,
        found.in_flight,
        found.ignored,
        found.mismatches,
        dict(found.by_class),
        found.not_compared,
        dict(found.by_reason),
        upper_bound(found.mismatches, found.compared, settings.confidence),
        lacking,
    )


def compared_headings(confidence: float) -> tuple[str, ...]:
    wanted = f"rate, {confidence:.0%} sure"
    return "compared", "in flight", "ignored", "mismatches", wanted, "missing", "not compared"


def compared_cells(found: ComparedCounts, *, is_retired: bool = False) -> tuple[str | Text, ...]:
    """Under these headings."""
    return (
        f"{found.compared:,}",
        f"{found.in_flight:,}",
        f"{found.ignored:,}",
        Text(_listed(found.by_class) or "0", style="bold red" if found.mismatches else "green"),
        f"below {100 * found.rate_below:.4g} %",
        Text("retired" if is_retired else f"{found.missing:,}", style="yellow" if found.missing else "green"),
        _listed(found.by_reason) or "0",
    )


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())
