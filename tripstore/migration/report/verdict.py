"""The answer at the head of the report: may we, and what to run next."""

from __future__ import annotations

from collections.abc import Sequence

from tripstore.engines.validation.report.document import ReportGate, ReportVerdict
from tripstore.handover.authority import Authority, Backend
from tripstore.migration.cutover.facts import Facts
from tripstore.migration.cutover.gates import back_verdicts, forward_verdicts
from tripstore.migration.cutover.verdicts import GateVerdict, refusals
from tripstore.phase import Phase
from tripstore.thresholds import CutoverSettings

SWITCH, REVERSE, COMPLETE = "switch", "reverse", "complete"


def direction_of(facts: Facts) -> str:
    """What there is to decide: the switch, and once it was made the way back, until the migration is complete."""
    if facts.phase is Phase.COMPLETE:
        return COMPLETE
    row = facts.authority
    return REVERSE if isinstance(row, Authority) and row.backend is Backend.STORE else SWITCH


def gates_of(direction: str, facts: Facts, settings: CutoverSettings) -> list[GateVerdict]:
    if direction == COMPLETE:
        return []
    return forward_verdicts(facts, settings) if direction == SWITCH else back_verdicts(facts, settings)


def verdict(direction: str, gates: Sequence[GateVerdict]) -> ReportVerdict:
    if direction == COMPLETE:
        return ReportVerdict(
            direction=direction,
            question="Is the migration complete?",
            is_allowed=True,
            answer="Schemaless is the authority, and there is no way back.",
            command="tripstore status",
        )
    refused = len(refusals(list(gates)))
    target = "Schemaless" if direction == SWITCH else "Postgres"
    question = "Ready to switch to Schemaless?" if direction == SWITCH else "Ready to switch back to Postgres?"
    if refused:
        verb = "gate refuses" if refused == 1 else "gates refuse"
        answer = f"{refused} of {len(gates)} {verb}."
    else:
        answer = f"All {len(gates)} gates pass: {target} may be made the authority."
    return ReportVerdict(
        direction=direction,
        question=question,
        is_allowed=not refused,
        answer=answer,
        command="tripstore cutover plan" if refused else f"tripstore cutover {direction} --dry-run",
    )


def gate(found: GateVerdict) -> ReportGate:
    return ReportGate(name=found.name, is_passed=found.is_passed, said=found.said, wanted=found.wanted, hint=found.hint)
