"""What the report says of rewritten queries, and of the code that is not rewritten."""

from __future__ import annotations

from collections.abc import Sequence

from schemaless_core.control.database import ControlDatabase
from schemaless_core.control.ledgers.timings import Timing
from tripstore.engines.validation.report.document import ExperimentSide, ReportExperiment, ReportUses
from tripstore.migration.cutover.sufficiency import missing_of_all
from tripstore.migration.report.comparisons import evidence, sampled_query
from tripstore.migration.rewrites.standings import ExperimentStanding
from tripstore.migration.rewrites.uses import UseBooks
from tripstore.thresholds import CutoverSettings


def experiments(found: Sequence[ExperimentStanding], settings: CutoverSettings) -> list[ReportExperiment]:
    """Those that are retired lack nothing, and speak for no others."""
    used = [each for each in found if not each.flags.is_retired]
    lacking = missing_of_all([sampled_query(each.counts, each.calls) for each in used], settings)
    missing = {each.name: more for each, more in zip(used, lacking, strict=True)}
    return [_experiment(each, missing.get(each.name, 0), settings) for each in found]


def remaining_uses(control: ControlDatabase) -> list[ReportUses]:
    return [
        ReportUses(
            code=code,
            at=each.at,
            is_complete=each.is_complete,
            uses=len(each.uses),
            unnamed=[use.place for use in each.unnamed],
        )
        for code, each in UseBooks(control).all().items()
    ]


def _experiment(found: ExperimentStanding, lacking: int, settings: CutoverSettings) -> ReportExperiment:
    flags = found.flags
    return ReportExperiment(
        name=found.name,
        percent=flags.percent,
        is_compared=flags.is_compared,
        is_retired=flags.is_retired,
        seen=found.seen,
        calls=found.calls,
        calls_by_control=found.calls_by_control,
        evidence=evidence(found.counts, found.calls, lacking, settings),
        control=_side(found.by_control),
        candidate=_side(found.by_candidate),
        candidate_beside=_side(found.candidate_beside),
    )


def _side(timing: Timing) -> ExperimentSide:
    return ExperimentSide(
        answered=timing.answered,
        failed=timing.unanswered,
        p50_seconds=timing.quantile(0.5),
        p99_seconds=timing.quantile(0.99),
    )
