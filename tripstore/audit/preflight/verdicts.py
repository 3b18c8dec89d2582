"""`StatementVerdict` and `VerdictReason`: what becomes of a statement in a phase, and why. Values only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from tripstore.phase import Phase

#: Postgres is the authority: statements meet capture.
BEFORE = (Phase.OFF, Phase.DUALWRITE, Phase.SHADOW)
#: Schemaless is the authority: statements meet the gate.
AFTER = (Phase.LIVE, Phase.RAMPDOWN)
CAPTURED = (*BEFORE, *AFTER)
SWITCHED = (*AFTER, Phase.COMPLETE)
ALWAYS = tuple(Phase)


class StatementVerdict(StrEnum):
    """In the order of their weight, the least first: of several, the heaviest counts."""

    FINE = "fine"
    SLOWED = "slowed"  #: It works, and takes longer.
    UNSERVED = "unserved"  #: Postgres answers, and is not the authority; no key or index of ours answers it.
    UNCLEAR = "unclear"  #: It cannot be told from what is known.
    BREAKS = "breaks"  #: Postgres takes it, and capture misses changes or stops.
    REFUSED = "refused"  #: It fails, with the SQLSTATE that the reason names.

    @property
    def weight(self) -> int:
        return list(StatementVerdict).index(self)


@dataclass(frozen=True, slots=True)
class VerdictReason:
    """Why a statement has a verdict in some phases."""

    verdict: StatementVerdict
    phases: tuple[Phase, ...]
    text: str
    sqlstate: str | None = None


@dataclass(frozen=True)
class Judged:
    """What becomes of one statement."""

    reasons: tuple[VerdictReason, ...]

    def verdict(self, phase: Phase) -> StatementVerdict:
        found = [reason.verdict for reason in self.reasons if phase in reason.phases]
        return max(found, key=lambda verdict: verdict.weight, default=StatementVerdict.FINE)

    def because(self, phases: Iterable[Phase]) -> list[VerdictReason]:
        """The reasons that count: of each phase, those of its verdict."""
        wanted = list(phases)
        return [
            reason
            for reason in self.reasons
            if any(phase in reason.phases and self.verdict(phase) is reason.verdict for phase in wanted)
        ]


def judged(reasons: Iterable[VerdictReason]) -> Judged:
    return Judged(tuple(dict.fromkeys(reasons)))
