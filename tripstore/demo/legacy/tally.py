"""`WorkTally`: what a workload did, counted by action and outcome."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tripstore.demo.legacy.worker import Done, WorkOutcome


@dataclass
class WorkTally:
    """Counts; tallies of several workers add up."""

    outcomes: Counter[tuple[str, WorkOutcome]] = field(default_factory=Counter)
    retries: Counter[str] = field(default_factory=Counter)
    failures: Counter[tuple[str, str]] = field(default_factory=Counter)  #: By action and SQLSTATE.
    first_failure: str | None = None

    def count(self, done: Done) -> None:
        self.outcomes[done.action, done.outcome] += 1
        self.retries[done.action] += done.retries

    def count_failure(self, action: str, code: str, words: str) -> None:
        """An error that no retry mends: refused by Postgres, or Postgres was gone."""
        self.failures[action, code] += 1
        self.first_failure = self.first_failure or f"{action}: {words}"

    def add(self, other: WorkTally) -> None:
        self.outcomes += other.outcomes
        self.retries += other.retries
        self.failures += other.failures
        self.first_failure = self.first_failure or other.first_failure

    def total(self, outcome: WorkOutcome) -> int:
        return sum(count for (_, found), count in self.outcomes.items() if found is outcome)

    @property
    def committed(self) -> int:
        return self.total(WorkOutcome.COMMITTED)

    @property
    def failed(self) -> int:
        return self.failures.total()

    @property
    def actions(self) -> int:
        """How many units of work there were, however they ended."""
        return self.outcomes.total() + self.failed

    def to_document(self) -> dict[str, object]:
        """The counts for a reader: by action, and in total."""
        names = sorted({name for name, _ in self.outcomes} | {name for name, _ in self.failures})
        return {
            "actions": {name: self._row(name) for name in names},
            "total": {str(outcome): self.total(outcome) for outcome in WorkOutcome}
            | {"retries": self.retries.total(), "failed": self.failed},
            "first_failure": self.first_failure,
        }

    def _row(self, name: str) -> dict[str, int]:
        counts = {str(outcome): self.outcomes[name, outcome] for outcome in WorkOutcome}
        failed = sum(count for (action, _), count in self.failures.items() if action == name)
        return counts | {"retries": self.retries[name], "failed": failed}
