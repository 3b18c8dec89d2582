"""The JSON document of `audit statements`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from tripstore.audit.preflight.preflight import JudgedStatement
from tripstore.audit.preflight.verdicts import StatementVerdict
from tripstore.phase import Phase


class ReasonView(msgspec.Struct, frozen=True):
    """Why; `sqlstate` is what the refusal carries."""

    verdict: str
    phases: list[str]
    sqlstate: str | None
    text: str


class StatementView(msgspec.Struct, frozen=True):
    """Statements that differ in their values alone; `where` is the first, `rows` is null where nothing counts them."""

    where: str
    places: int
    calls: int
    rows: int | None
    statement: str
    verdicts: dict[str, str]
    reasons: list[ReasonView]


class PhaseView(msgspec.Struct, frozen=True):
    """How many kinds of statements have each verdict in a phase."""

    phase: str
    verdicts: dict[str, int]


class PreflightDocument(msgspec.Struct, frozen=True):
    """The JSON document. `forgotten`: how often pg_stat_statements threw kinds of statements away to make room."""

    source: str
    statements: int
    calls: int
    is_asked: bool
    forgotten: int
    asked_phases: list[str]
    phases: list[PhaseView]
    findings: list[StatementView]


def preflight_document(
    source: str, findings: Sequence[JudgedStatement], phases: Sequence[Phase], *, is_asked: bool, forgotten: int
) -> PreflightDocument:
    return PreflightDocument(
        source=source,
        statements=len(findings),
        calls=sum(finding.asked.calls for finding in findings),
        is_asked=is_asked,
        forgotten=forgotten,
        asked_phases=[phase.value for phase in (phases or Phase)],
        phases=[_counted(phase, findings) for phase in Phase],
        findings=[_view(finding) for finding in findings],
    )


def _counted(phase: Phase, findings: Sequence[JudgedStatement]) -> PhaseView:
    counts = Counter(finding.judged.verdict(phase) for finding in findings)
    return PhaseView(phase.value, {verdict.value: counts[verdict] for verdict in StatementVerdict})


def _view(finding: JudgedStatement) -> StatementView:
    asked = finding.asked
    return StatementView(
        where=asked.where,
        places=finding.places,
        calls=asked.calls,
        rows=asked.rows,
        statement=asked.text,
        verdicts={phase.value: finding.judged.verdict(phase).value for phase in Phase},
        reasons=[
            ReasonView(reason.verdict.value, [phase.value for phase in reason.phases], reason.sqlstate, reason.text)
            for reason in finding.judged.reasons
        ],
    )
