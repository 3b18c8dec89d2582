"""`Standings`: all that processes and operators have said of experiments, put together per query."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Self

from schemaless_core.control.database import ControlDatabase
from schemaless_core.control.ledgers.ledgers import Ledgers
from schemaless_core.control.ledgers.timings import Timed, Timing, TimingLedger
from tripstore.engines.validation.shadow.ledger import OperationCounts, ShadowLedger
from tripstore.facade.experiments.experiments import CANDIDATE, CONTROL, TIMED
from tripstore.facade.experiments.flags import UNSET, ExperimentBook, ExperimentFlags
from tripstore.facade.experiments.roll import Roll
from tripstore.facade.latency import Asker

_NONE = Timing({})


@dataclass(frozen=True, slots=True)
class ExperimentStanding:
    """One experiment. `seen`: the beginning of the hour in which a process had it last.

    None: none had, as far as counts are kept.
    """

    name: str
    flags: ExperimentFlags
    seen: datetime | None
    counts: OperationCounts
    #: How long callers waited for a side that answered them.
    by_control: Timing
    by_candidate: Timing
    #: How long the candidate took on a thread beside them.
    candidate_beside: Timing

    @classmethod
    def unknown(cls, name: str) -> Self:
        """Of one that no process ever had."""
        return cls(name, UNSET, None, OperationCounts(name), _NONE, _NONE, _NONE)

    @property
    def calls(self) -> int:
        """Of services; one whose candidate failed is a call of the control."""
        return self.calls_by_control + self.by_candidate.answered

    @property
    def calls_by_control(self) -> int:
        return self.by_control.answered + self.by_control.unanswered


class Standings:
    """Of one datastore."""

    def __init__(self, control: ControlDatabase) -> None:
        ledgers = Ledgers(control)
        self._book = ExperimentBook(control)
        self._roll = Roll(ledgers)
        self._ledger = ShadowLedger(ledgers)
        self._timings = TimingLedger(ledgers)

    def all(self, since: datetime | None = None, epoch: int = 0) -> list[ExperimentStanding]:
        """Every experiment that a process ever had or that a flag names, with what was counted since."""
        flags, seen, timed = self._book.find(), self._roll.seen(), self._timings.total(since)
        counts = {each.operation: each for each in self._ledger.experiments(since, epoch)}
        names = flags.by_name.keys() | seen.keys() | counts.keys()
        return [
            ExperimentStanding(
                name,
                flags.of(name),
                seen.get(name),
                counts.get(name, OperationCounts(name)),
                timed.get(_words(name, CONTROL, Asker.CALLERS), _NONE),
                timed.get(_words(name, CANDIDATE, Asker.CALLERS), _NONE),
                timed.get(_words(name, CANDIDATE, Asker.SHADOW), _NONE),
            )
            for name in sorted(names)
        ]


def _words(name: str, side: str, asked_by: Asker) -> Timed:
    return TIMED, name, side, asked_by.value
