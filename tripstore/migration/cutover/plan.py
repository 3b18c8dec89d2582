"""`CutoverPlan`: what a hand-over does, step by step, and what the gates say of it now. Changes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tripstore.handover import switch
from tripstore.handover.authority import Backend
from tripstore.handover.steps import Step
from tripstore.migration.cutover.facts import Facts, Unknown
from tripstore.migration.cutover.gates import back_verdicts, forward_verdicts
from tripstore.migration.cutover.standbys import risks
from tripstore.migration.cutover.verdicts import GateVerdict, refusals
from tripstore.thresholds import CutoverSettings


class Direction(Enum):
    """Where authority goes."""

    FORWARD = "switch"  #: To Schemaless.
    BACK = "reverse"  #: To Postgres.

    @property
    def target(self) -> Backend:
        return Backend.STORE if self is Direction.FORWARD else Backend.LEGACY

    @property
    def steps(self) -> tuple[Step, ...]:
        """In order; some are done again and again until there is nothing left to do."""
        return switch.FORWARD if self is Direction.FORWARD else switch.BACK


#: From here on callers wait.
CLOSES = frozenset({switch.CLOSE, switch.BACK_CLOSE})
#: From here on nothing may end the run: it is decided, or is being undone.
DECIDES = frozenset({switch.DECIDE, switch.BACK_DECIDE})


@dataclass(frozen=True, slots=True)
class CutoverPlan:
    """A hand-over that may be done."""

    direction: Direction
    verdicts: tuple[GateVerdict, ...]
    steps: tuple[Step, ...]
    #: What no gate refuses, and the operator should know.
    warnings: tuple[str, ...] = ()
    #: How many breaches there were when the gates were looked at; None: capture could not be looked at.
    breaches: int | None = None

    @property
    def refusals(self) -> list[GateVerdict]:
        return refusals(list(self.verdicts))


def plan(direction: Direction, facts: Facts, settings: CutoverSettings) -> CutoverPlan:
    judge = forward_verdicts if direction is Direction.FORWARD else back_verdicts
    return CutoverPlan(
        direction, tuple(judge(facts, settings)), direction.steps, tuple(risks(facts.standbys)), _breaches(facts)
    )


def _breaches(facts: Facts) -> int | None:
    if isinstance(facts.capture, Unknown):
        return None
    return 0 if facts.capture.breach is None else facts.capture.breach.number
