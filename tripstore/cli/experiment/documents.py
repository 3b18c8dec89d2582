"""What is known of experiments, as documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from tripstore.cli.compared import ComparedCounts, compared_document, compared_documents
from tripstore.engines.validation.reads import EXPERIMENT
from tripstore.engines.validation.shadow.ledger import KnownMismatch
from tripstore.migration.report.comparisons import sampled_query
from tripstore.migration.rewrites.standings import ExperimentStanding
from tripstore.migration.rewrites.uses import CodeUses
from tripstore.thresholds import CutoverSettings


class ExperimentView(msgspec.Struct, frozen=True):
    """Which side answers. `seen`: the hour in which a process had it last; null: none, as far as counts are kept."""

    name: str
    percent: float
    is_compared: bool
    is_retired: bool
    seen: datetime | None


class TimedView(msgspec.Struct, frozen=True):
    """How long a side took, in seconds; null: it was not asked. `failed` ones gave no answer and are in no quantile."""

    answered: int
    failed: int
    p50_seconds: float | None
    p99_seconds: float | None


class ExperimentStatusView(msgspec.Struct, frozen=True):
    """One experiment. `calls_by_control`: what is left of the old query."""

    experiment: ExperimentView
    calls: int
    calls_by_control: int
    evidence: ComparedCounts
    control: TimedView
    candidate: TimedView
    #: On a thread beside callers.
    candidate_beside: TimedView

    @property
    def is_proven(self) -> bool:
        return not self.evidence.missing


class ReasonedView(msgspec.Struct, frozen=True):
    """Uses that may remain, and why."""

    pattern: str
    why: str


class CodeUsesView(msgspec.Struct, frozen=True):
    """What an audit of a code base found last; `unnamed`: where the uses are that no reason is given for."""

    code: str
    at: datetime
    is_complete: bool
    uses: int
    unnamed: list[str]
    acknowledged: list[ReasonedView]


class ExperimentListDocument(msgspec.Struct, frozen=True):
    """The JSON document of `list`."""

    experiments: list[ExperimentView]
    uses: list[CodeUsesView]


class ExperimentStatusDocument(msgspec.Struct, frozen=True):
    """The JSON document of `status`."""

    since: datetime
    confidence: float
    rate_wanted: float
    experiments: list[ExperimentStatusView]
    uses: list[CodeUsesView]
    mismatches: list[KnownMismatch]


class ExperimentSetDocument(msgspec.Struct, frozen=True):
    """The JSON document of `set`."""

    before: ExperimentView
    experiment: ExperimentView
    is_done: bool


def experiment_view(found: ExperimentStanding) -> ExperimentView:
    flags = found.flags
    return ExperimentView(found.name, flags.percent, flags.is_compared, flags.is_retired, found.seen)


def status_views(found: Sequence[ExperimentStanding], settings: CutoverSettings) -> list[ExperimentStatusView]:
    """Each with what it lacks; those that are retired lack nothing, and speak for no others."""
    used = [each for each in found if not each.flags.is_retired]
    judged = compared_documents(((each.counts, sampled_query(each.counts, each.calls)) for each in used), settings)
    evidence = {each.operation: each for each in judged}
    return [_status(each, evidence.get(each.name) or compared_document(each.counts, 0, settings)) for each in found]


def mismatch_views(found: Sequence[KnownMismatch], names: Sequence[str], limit: int) -> list[KnownMismatch]:
    """Those of these experiments."""
    wanted = {f"{EXPERIMENT}{name}" for name in names}
    return [each for each in found if each.operation in wanted][:limit]


def use_views(found: Mapping[str, CodeUses]) -> list[CodeUsesView]:
    return [use_view(code, each) for code, each in found.items()]


def use_view(code: str, found: CodeUses) -> CodeUsesView:
    reasons = [ReasonedView(pattern, why) for pattern, why in found.acknowledged.items()]
    places = [use.place for use in found.unnamed]
    return CodeUsesView(code, found.at, found.is_complete, len(found.uses), places, reasons)


def _status(found: ExperimentStanding, evidence: ComparedCounts) -> ExperimentStatusView:
    timings = found.by_control, found.by_candidate, found.candidate_beside
    views = [TimedView(each.answered, each.unanswered, each.quantile(0.5), each.quantile(0.99)) for each in timings]
    return ExperimentStatusView(experiment_view(found), found.calls, found.calls_by_control, evidence, *views)
